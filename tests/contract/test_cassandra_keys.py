"""Idempotency keys on a real node, when attempts overlap (G7)."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

import pytest

from queuey.clock import ManualClock
from queuey.errors import InProgress, OutcomeUnknown, StorageUnavailable
from queuey.future import Future, start
from queuey.ids import IdGenerator
from queuey.model import Appended, AppendRequest, Draft, IdempotencyKey, Queue
from queuey.model.values import IDEMPOTENCY_SECONDS
from queuey.storage.cassandra.messages import CassandraMessages
from queuey.storage.cassandra.server import Timing
from queuey.storage.cassandra.session import CassandraSession, Rows
from queuey.storage.contract.common import draft
from tests.support.cassandra_stores import messages_of
from tests.support.counted import Counted

TIMING = Timing(request_seconds=0.5, clock_error_seconds=2.0)
DEAD_SECONDS = 0.5 + 2 * 2.0 + 5.0
"""After so long an attempt counts as dead."""
ONCE = IdempotencyKey("key", b"digest")


class Gated(CassandraSession):
    """It sends the records of keys only once the gate is open."""

    gate: Future[None] | None = None
    reached: threading.Event

    def tell(self, name: str, values: Sequence[Any], level: int) -> Future[Rows]:
        if name == "idempotency_stored" and self.gate is not None:
            return start(self._later(self.gate, name, values, level))
        return super().tell(name, values, level)

    async def _later(self, gate: Future[None], name: str, values: Sequence[Any], level: int) -> Rows:
        self.reached.set()
        await gate
        return await super().tell(name, values, level)


class Server:
    """One server that appends to a queue."""

    def __init__(self, session: CassandraSession, clock: ManualClock, queue: Queue) -> None:
        self.counted = Counted("idempotency_", "message_")
        self.session = Gated(session.options, self.counted)
        self.session.reached = threading.Event()
        self.store: CassandraMessages = messages_of(self.session, clock, IdGenerator(clock), TIMING)
        self._queue, self._clock = queue, clock

    def start(self, *drafts: Draft, key: IdempotencyKey | None = ONCE) -> Future[Appended]:
        return self.store.append(AppendRequest(self._queue, drafts, key))

    def append(self, *drafts: Draft, key: IdempotencyKey | None = ONCE) -> Appended:
        return self.start(*drafts, key=key).wait(30)

    def start_and_stop(self, *drafts: Draft) -> Future[Appended]:
        """Append, but for the record that it is done, which waits for :meth:`go_on`."""
        self.session.gate = Future()
        appended = self.start(*drafts)
        assert self.session.reached.wait(30)
        return appended

    def go_on(self) -> None:
        gate, self.session.gate = self.session.gate, None
        assert gate is not None
        gate.set_result(None)

    def bodies(self, *answers: Appended) -> list[bytes | None]:
        places = [place for answer in answers for place in answer.placed]
        found = self.store.fetch(self._queue, places, now_ticks=self._clock.now_ticks()).wait(30)
        return [None if message is None else message.body for message in found]

    def close(self) -> None:
        self.store.close()
        self.session.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def servers(session: CassandraSession, clock: ManualClock) -> Iterator[tuple[Server, Server]]:
    queue = Queue("app", "q", uuid4(), clock.now_ticks())
    first, second = Server(session, clock, queue), Server(session, clock, queue)
    yield first, second
    first.close()
    second.close()


def test_a_new_key_costs_one_transaction(servers: tuple[Server, Server]) -> None:
    first, _ = servers

    first.append(draft(b"a"))

    assert first.counted.statements == {"idempotency_claim": 1, "message_insert": 1, "idempotency_stored": 1}


def test_an_attempt_that_another_one_took_for_dead_is_unknown(
    servers: tuple[Server, Server], clock: ManualClock
) -> None:
    first, second = servers
    slow = first.start_and_stop(draft(b"a"))
    clock.advance(DEAD_SECONDS + 1)

    again = second.append(draft(b"a"))
    first.go_on()

    with pytest.raises(OutcomeUnknown):
        slow.wait(30)
    assert not again.repeated
    assert second.bodies(again) == [b"a"]
    for server in servers:  # the late record changes nothing
        repeated = server.append(draft(b"a"))
        assert repeated.repeated
        assert list(repeated.placed) == list(again.placed)


def test_a_late_attempt_that_nobody_took_for_dead_has_stored(
    servers: tuple[Server, Server], clock: ManualClock
) -> None:
    first, second = servers
    slow = first.start_and_stop(draft(b"a"))
    clock.advance(DEAD_SECONDS + 1)
    first.go_on()

    stored = slow.wait(30)

    assert first.bodies(stored) == [b"a"]
    assert list(second.append(draft(b"a")).placed) == list(stored.placed)
    assert first.counted.statements["idempotency_change"] == 1


def test_an_attempt_that_may_live_is_waited_for(servers: tuple[Server, Server], clock: ManualClock) -> None:
    first, second = servers
    slow = first.start_and_stop(draft(b"a"))
    clock.advance(DEAD_SECONDS - 1)

    with pytest.raises(InProgress):
        second.append(draft(b"a"))
    first.go_on()

    assert list(second.append(draft(b"a")).placed) == list(slow.wait(30).placed)


def test_what_an_earlier_request_stored_stays_if_a_later_one_dies(
    servers: tuple[Server, Server], clock: ManualClock
) -> None:
    """Though the dead one stands for it as well, and its own key has expired meanwhile."""
    first, second = servers
    own = draft(b"a", idempotency=IdempotencyKey("a", b"digest", seconds=5))
    before = first.append(own, key=None)
    slow = first.start_and_stop(own, draft(b"b"))
    clock.advance(DEAD_SECONDS + 1)

    again = second.append(own, draft(b"b"))

    assert second.bodies(before) == [b"a"]
    assert second.bodies(again) == [b"a", b"b"]
    first.go_on()
    with pytest.raises(OutcomeUnknown):
        slow.wait(30)


def test_a_key_is_free_again_after_an_append_that_was_refused(servers: tuple[Server, Server]) -> None:
    first, second = servers
    with pytest.raises(StorageUnavailable):
        first.append(draft(b"x" * (17 << 20)))

    stored = second.append(draft(b"a"))

    assert second.bodies(stored) == [b"a"]
    assert list(first.append(draft(b"a")).placed) == list(stored.placed)


def test_a_key_that_ran_out_is_free_again_after_an_append_that_was_refused(
    servers: tuple[Server, Server], clock: ManualClock
) -> None:
    """The record of the first attempt is still there: it counts for no other attempt, and keeps none from its claim."""
    first, second = servers
    before = first.append(draft(b"a", ttl_seconds=10 * IDEMPOTENCY_SECONDS))
    clock.advance(IDEMPOTENCY_SECONDS + 1)
    with pytest.raises(StorageUnavailable):
        first.append(draft(b"x" * (17 << 20)))

    stored = second.append(draft(b"b"))

    assert not stored.repeated
    assert second.bodies(before) == [b"a"]
    assert second.bodies(stored) == [b"b"]
    assert list(first.append(draft(b"b")).placed) == list(stored.placed)
