"""What the parts of the suite share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, TypeVar
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from queuey.clock import ManualClock
from queuey.future import Future
from queuey.ids import TICKS_PER_SECOND, ZERO_ID, IdGenerator, MessageId, tail_from_low
from queuey.model import (
    Appended,
    AppendRequest,
    Consistency,
    Draft,
    IdempotencyKey,
    Location,
    Message,
    Overwrite,
    Page,
    PartitionState,
    Queue,
    ReadRequest,
    Span,
    SpanCount,
)
from queuey.storage import MessageStore, MetadataStore, OffsetStore, Stores

T = TypeVar("T")

SECOND = TICKS_PER_SECOND
STRONG = Consistency.STRONG

HISTORIES = settings(
    stateful_step_count=40,
    deadline=None,
    phases=[Phase.reuse, Phase.generate, Phase.shrink],
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
"""A history writes to a real disk: examples enough to find a planted fault, few enough to take seconds."""


def done(future: Future[T]) -> T:
    """The value of a future; a store that has not answered after half a minute has failed."""
    return future.wait(30.0)


def drive_histories(make: Callable[[], RuleBasedStateMachine], examples: int) -> None:
    """Try out histories; any callable that makes one will do, whatever the annotation there says."""
    run_state_machine_as_test(make, settings=settings(HISTORIES, max_examples=examples))  # type: ignore[arg-type]


def client_id(ticks: int, number: int = 1) -> MessageId:
    """An id as a client makes them, for a PUT."""
    return MessageId(ticks, tail_from_low(0b10 << 62 | 1 << 40 | number))


def draft(body: bytes = b"body", partition: int = 1, ttl_seconds: int = 3600, **more: Any) -> Draft:
    return Draft(partition, body, ttl_seconds, **more)


def located(wanted: Iterable[tuple[int, MessageId]]) -> list[Location]:
    """Pairs of a partition number and an id, as tests write them."""
    return [Location(number, id_) for number, id_ in wanted]


class QueueLog:
    """One queue of a message store, and what tests do with it again and again."""

    def __init__(self, store: MessageStore, clock: ManualClock, partitions: int = 4) -> None:
        self.store = store
        self.clock = clock
        self.queue = Queue("app", "log", uuid4(), clock.now_ticks(), partitions)
        self._delay = round(store.read_delay_seconds * SECOND)

    def watermark(self) -> int:
        """A moment up to which all that was appended before this call is there: nobody else writes.

        It is the watermark, as soon as what a store writes of its own accord does not hold it back, and
        without the read delay, which waits for other servers.
        """
        deadline = time.monotonic() + 30
        while (watermark := self.store.watermark(STRONG) + self._delay) < self.clock.now_ticks():
            assert time.monotonic() < deadline, "the watermark does not catch up with the clock"
        return watermark

    def append(self, *drafts: Draft, idempotency: IdempotencyKey | None = None) -> Appended:
        return done(self.store.append(AppendRequest(self.queue, drafts, idempotency)))

    def add(self, *bodies: bytes, partition: int = 1) -> list[MessageId]:
        """Append each body by itself."""
        return [self.append(draft(body, partition)).placed[0].id for body in bodies]

    def read(self, partition: int = 1, after: MessageId = ZERO_ID, upto: MessageId | None = None, **how: Any) -> Page:
        """Read up to :meth:`watermark` at most, which also decides expiry as it never falls."""
        watermark = self.watermark() if upto is None else self.store.watermark(STRONG) + self._delay
        end = MessageId.last_of(watermark)
        span = Span(after, end if upto is None else min(upto, end))
        now_ticks, consistency = how.pop("now_ticks", watermark), how.pop("consistency", STRONG)
        request = ReadRequest(self.queue.partition(partition), span, **{"limit": 1000} | how)
        return done(self.store.read(request, now_ticks=now_ticks, consistency=consistency))

    def count_span(self, after: MessageId = ZERO_ID, upto: MessageId | None = None, **how: Any) -> SpanCount:
        """What lies in a span of partition 1, at most up to :meth:`watermark`; its split points in a list."""
        end = MessageId.last_of(self.watermark())
        span = Span(after, end if upto is None else min(upto, end))
        found = done(self.store.count_span(self.queue.partition(1), span, now_ticks=end.ticks, **how))
        return found._replace(split_points=list(found.split_points))

    def bodies(self, partition: int = 1, **how: Any) -> list[bytes]:
        return [message.body for message in self.read(partition, **how).messages]

    def fetch(self, *wanted: tuple[int, MessageId]) -> Sequence[Message | None]:
        return done(self.store.fetch(self.queue, located(wanted), now_ticks=self.watermark()))

    def put(
        self,
        *wanted: tuple[int, MessageId],
        body: bytes = b"put",
        content_type: str | None = None,
        key: str | None = None,
        headers: bytes | None = None,
        ttl_seconds: int = 3600,
    ) -> bool:
        """Put; True if the answer says that it came late."""
        new = Overwrite(body, ttl_seconds, content_type, key, headers)
        return done(self.store.put(self.queue, located(wanted), new))

    def delete(self, *wanted: tuple[int, MessageId]) -> None:
        done(self.store.delete(self.queue, located(wanted)))

    def inspect(self, *partitions: int) -> Sequence[PartitionState]:
        asked = [self.queue.partition(number) for number in partitions]
        return done(self.store.inspect(asked, now_ticks=self.watermark()))


class StoreContract:
    """The fixtures of the suite. A backend provides ``stores``."""

    histories: ClassVar[int] = 80
    """How many any-history tests try: fewer for a store that takes long for each step."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def ids(self, clock: ManualClock) -> IdGenerator:
        return IdGenerator(clock)

    @pytest.fixture
    def store(self, stores: Stores) -> MessageStore:
        return stores.messages

    @pytest.fixture
    def offsets(self, stores: Stores) -> OffsetStore:
        return stores.offsets

    @pytest.fixture
    def metadata(self, stores: Stores) -> MetadataStore:
        return stores.metadata

    @pytest.fixture
    def log(self, store: MessageStore, clock: ManualClock) -> QueueLog:
        return QueueLog(store, clock)
