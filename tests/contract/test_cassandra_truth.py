"""G10 on a real node: an append that ends in a refusal has stored nothing, and nobody has read any of it.

The node refuses a write that is larger than it can hold. So of an append over two time buckets it takes one and refuses
the other. Time is set by hand: it goes on when the node has answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

import pytest

from queuey.clock import ManualClock
from queuey.errors import ClockUnsafe, OutcomeUnknown, QueueyError, StorageUnavailable
from queuey.future import start
from queuey.ids import IdGenerator
from queuey.model import Consistency, Draft, Location, Queue
from queuey.storage.cassandra import cluster as cassandra_cluster
from queuey.storage.cassandra.buckets import WIDTHS
from queuey.storage.cassandra.clock import ClockGuard
from queuey.storage.cassandra.messages import CassandraMessages
from queuey.storage.cassandra.server import Timing
from queuey.storage.cassandra.session import CassandraSession
from queuey.storage.contract.common import draft
from queuey.storage.observing import Unobserved
from tests.support.cassandra_stores import messages_of
from tests.support.servers import eventually
from tests.support.services.proxy import Proxy, Way

TOO_LARGE = 17 << 20
TIMING = Timing(request_seconds=32.0)
STALE_SECONDS = 31.0
"""After so long a time nobody knows any more how right the clock is."""


@dataclass
class Slow(Unobserved):
    """Each answer to a write of messages moves the clock on by this many seconds."""

    clock: ManualClock
    seconds: float = 0.0
    given_up: int = 0
    """Writes of messages that failed."""
    refused: int = 0
    """Of these, writes that the node refused, so that nothing of them is stored."""

    def took(self, what: str, seconds: float) -> None:
        self._answered(what)

    def failed(self, what: str, code: str) -> None:
        self.given_up += what == "message_insert"
        self.refused += what == "message_insert" and code == StorageUnavailable().code
        self._answered(what)

    def _answered(self, what: str) -> None:
        if what == "message_insert":
            self.clock.advance(self.seconds)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def slow(clock: ManualClock) -> Slow:
    return Slow(clock)


@pytest.fixture
def guard(clock: ManualClock) -> ClockGuard:
    guard = ClockGuard(clock, TIMING.clock_error_seconds)
    guard.learn("node", clock.now_ticks(), clock.elapsed(), clock.elapsed())
    return guard


@pytest.fixture
def store(session: CassandraSession, slow: Slow, guard: ClockGuard) -> Iterator[CassandraMessages]:
    own = CassandraSession(session.options, slow)
    store = messages_of(own, slow.clock, IdGenerator(slow.clock), TIMING, guard)
    yield store
    store.close()
    own.close()


@dataclass
class Append:
    """One append, and the places that it has drawn."""

    store: CassandraMessages
    clock: ManualClock
    drafts: Sequence[Draft]
    consistency: Consistency = Consistency.STRONG

    def __post_init__(self) -> None:
        self.queue = Queue("app", "q", uuid4(), self.clock.now_ticks(), consistency=self.consistency)
        self.drawn: list[Location] = []
        self.plan_seconds = 0.0
        """How long it takes to claim the append's keys."""
        self.then: Callable[[], object] = lambda: None
        """What happens just before it is sent."""

    def error(self) -> QueueyError:
        with pytest.raises(QueueyError) as raised:
            start(self.store.appender.store(self.queue, self.drafts, self._plan)).wait(30)
        return raised.value

    def store_one(self) -> None:
        start(self.store.appender.store(self.queue, self.drafts, self._plan)).wait(30)

    def stored(self) -> int:
        found = self.store.fetch(self.queue, self.drawn, now_ticks=self.clock.now_ticks()).wait(30)
        return sum(message is not None for message in found)

    async def _plan(self, placed: Sequence[Location]) -> None:
        self.drawn += placed
        self.clock.advance(self.plan_seconds)
        self.then()


@pytest.fixture
def half_refused(clock: ManualClock) -> list[Draft]:
    """Two time buckets; the node takes one."""
    return [draft(b"x"), draft(b"x" * TOO_LARGE, due_ticks=clock.now_ticks() + 2 * WIDTHS[0])]


def test_what_is_refused_in_part_is_withdrawn_and_refused(
    store: CassandraMessages, clock: ManualClock, half_refused: list[Draft], slow: Slow
) -> None:
    """At once: what the node refuses it would refuse again. A starved node may leave a try before that without an answer."""
    append = Append(store, clock, half_refused)

    error = append.error()

    assert isinstance(error, StorageUnavailable)
    assert append.stored() == 0
    assert slow.refused == 1


@pytest.mark.parametrize(
    ("seconds", "consistency"), [(TIMING.write_budget_seconds, Consistency.STRONG), (0.0, Consistency.WEAK)]
)
def test_what_is_refused_in_part_and_may_have_been_read_is_unknown(
    store: CassandraMessages,
    clock: ManualClock,
    half_refused: list[Draft],
    slow: Slow,
    seconds: float,
    consistency: Consistency,
) -> None:
    """It is withdrawn so late that a reader can have come to it; or from nodes that a reader of one did not ask."""
    slow.seconds = seconds
    append = Append(store, clock, half_refused, consistency)

    assert isinstance(append.error(), OutcomeUnknown)
    assert append.stored() == 0


def test_a_refusal_after_a_first_try_that_may_have_been_read_is_unknown(
    store: CassandraMessages, clock: ManualClock, slow: Slow
) -> None:
    """The clock is not known to be right any more when the second try begins."""
    slow.seconds = STALE_SECONDS
    append = Append(store, clock, [draft(b"x")])

    error = append.error()

    assert isinstance(error, OutcomeUnknown)
    assert isinstance(error.__cause__, ClockUnsafe)
    assert append.stored() == 0


def test_an_append_that_was_never_sent_is_refused(store: CassandraMessages, clock: ManualClock) -> None:
    """To claim its keys takes longer than the write budget, each time."""
    append = Append(store, clock, [draft(b"x")])
    append.plan_seconds = 0.6 * TIMING.request_seconds

    error = append.error()

    assert isinstance(error, StorageUnavailable)
    assert not isinstance(error, ClockUnsafe)
    assert len(append.drawn) == 2
    assert append.stored() == 0


def test_a_write_is_given_up_when_its_budget_is_over(
    session: CassandraSession, slow: Slow, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its keys took most of it. The sooner it is withdrawn, the fewer readers meet it."""
    monkeypatch.setattr(cassandra_cluster, "_HEARTBEAT_SECONDS", 0)
    with Proxy(lambda: (session.options.hosts[0], session.options.port)) as proxy:
        host, port = proxy.address
        own = CassandraSession(replace(session.options, hosts=[host], port=port, timeout_seconds=300.0), slow)
        store = messages_of(own, clock, IdGenerator(clock), TIMING)
        append = Append(store, clock, [draft(b"x")])
        append.store_one()
        append.plan_seconds = 0.9 * TIMING.write_budget_seconds
        append.then = lambda: proxy.drop([Way.BACK])

        stored = start(store.appender.store(append.queue, append.drafts, append._plan))
        given_up = eventually(lambda: slow.given_up)
        append.then = lambda: None
        proxy.heal()

        assert given_up == 1
        assert stored.wait(90) == append.drawn[-1:]
        assert append.stored() == 2
        store.close()
        own.close()
