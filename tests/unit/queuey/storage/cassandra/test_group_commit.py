"""Requests that go together: which share a group, in what order, and what becomes of each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest

from queuey.clock import ManualClock
from queuey.errors import OutcomeUnknown, QueueyError, StorageUnavailable
from queuey.future import Future
from queuey.ids import MessageId
from queuey.model import Consistency, Draft, Location, Queue
from queuey.storage.cassandra.group_commit import GROUP_BYTES, GROUP_ROWS, UNDER_WAY, GroupCommit, may_share
from queuey.storage.observing import Unobserved

PATIENCE_SECONDS = 10.0
QUEUE = Queue("app", "q", UUID(int=1), 0, partitions=4)


def drafts(*bodies: str, partition: int = 1) -> list[Draft]:
    return [Draft(partition, body.encode(), 60) for body in bodies]


class Store:
    """Stores when the test says so, under ids that count up."""

    def __init__(self) -> None:
        self.under_way: list[tuple[list[str], Future[Sequence[Location]]]] = []
        self.levels: list[Consistency] = []
        self._stored = 0

    async def store(self, queue: Queue, wanted: Sequence[Draft]) -> Sequence[Location]:
        self.levels.append(queue.consistency)
        promise: Future[Sequence[Location]] = Future()
        self.under_way.append(([draft.body.decode() for draft in wanted], promise))
        return await promise

    @property
    def bodies(self) -> list[list[str]]:
        """Those of each group under way."""
        return [bodies for bodies, _ in self.under_way]

    def finish(self, at: int = 0) -> None:
        bodies, promise = self.under_way.pop(at)
        first = self._stored
        self._stored += len(bodies)
        promise.set_result([Location(1, MessageId(tick, 0)) for tick in range(first, self._stored)])

    def fail(self, error: QueueyError) -> None:
        self.under_way.pop(0)[1].set_error(error)


def ticks(placed: Future[Sequence[Location]]) -> list[int]:
    return [place.id.ticks for place in placed.result()]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def groups(store: Store, clock: ManualClock) -> GroupCommit:
    return GroupCommit(store.store, clock, Unobserved(), PATIENCE_SECONDS)


def busy(groups: GroupCommit, store: Store) -> None:
    """As many groups under way as may be."""
    for turn in range(UNDER_WAY):
        groups.append(QUEUE, drafts(f"early {turn}"))
    assert len(store.under_way) == UNDER_WAY


def test_a_lone_request_is_stored_at_once(groups: GroupCommit, store: Store) -> None:
    placed = groups.append(QUEUE, drafts("a", "b"))

    assert store.bodies == [["a", "b"]]
    assert not placed.done
    store.finish()
    assert ticks(placed) == [0, 1]


def test_what_comes_while_enough_is_under_way_goes_together_in_its_order(groups: GroupCommit, store: Store) -> None:
    busy(groups, store)

    first, second, third = (groups.append(QUEUE, drafts(*bodies)) for bodies in ("a", "bc", "d"))

    assert len(store.under_way) == UNDER_WAY
    store.finish()
    assert store.bodies[-1] == ["a", "b", "c", "d"]
    store.finish(-1)
    assert [ticks(placed) for placed in (first, second, third)] == [[1], [2, 3], [4]]


def test_headers_take_room_in_a_group(groups: GroupCommit, store: Store) -> None:
    """A thousand small messages with headers were one write of 64 MiB, which no node takes."""
    large = Draft(1, b"", 60, headers=b"h" * (GROUP_BYTES // 2))
    busy(groups, store)
    for _ in range(4):
        groups.append(QUEUE, [large])

    store.finish()
    store.finish()

    assert [len(bodies) for bodies in store.bodies[-2:]] == [2, 2]


def test_another_partition_does_not_wait(groups: GroupCommit, store: Store) -> None:
    busy(groups, store)

    groups.append(QUEUE, drafts("other", partition=2))

    assert store.bodies[-1] == ["other"]


def test_a_change_of_consistency_begins_a_group(groups: GroupCommit, store: Store) -> None:
    """What was asked of a queue that has become stronger is not stored as before."""
    weak = Queue("app", "q", QUEUE.uuid, 0, consistency=Consistency.WEAK)
    busy(groups, store)

    groups.append(weak, drafts("weak"))

    assert store.bodies[-1] == ["weak"]
    assert store.levels == [*[Consistency.STRONG] * UNDER_WAY, Consistency.WEAK]


def test_all_that_comes_in_one_turn_of_the_loop_goes_together(groups: GroupCommit, store: Store) -> None:
    async def turn() -> None:
        for name in "abc":
            groups.append(QUEUE, drafts(name))
        assert store.bodies == []
        await asyncio.sleep(0)
        assert store.bodies == [["a", "b", "c"]]

    asyncio.run(turn())


@pytest.mark.parametrize(
    ("wanted", "fitting"),
    [
        (drafts(*["x"] * (GROUP_ROWS // 2)), 2),
        (drafts("x" * (GROUP_BYTES // 2)), 2),
        (drafts(*["x"] * (2 * GROUP_ROWS)), 1),
    ],
)
def test_a_group_ends_with_the_request_that_fills_it(
    groups: GroupCommit, store: Store, wanted: list[Draft], fitting: int
) -> None:
    busy(groups, store)
    for _ in range(3):
        groups.append(QUEUE, wanted)

    store.finish()

    assert len(store.bodies[-1]) == fitting * len(wanted)


def test_a_failure_is_told_to_the_requests_of_its_group_alone(groups: GroupCommit, store: Store) -> None:
    busy(groups, store)
    together = [groups.append(QUEUE, drafts(name)) for name in "ab"]
    for _ in range(UNDER_WAY):
        store.finish()

    store.fail(OutcomeUnknown())
    after = groups.append(QUEUE, drafts("c"))
    store.finish()

    for placed in together:
        with pytest.raises(OutcomeUnknown):
            placed.result()
    assert ticks(after) == [UNDER_WAY]


def test_a_mistake_of_the_store_leaves_nobody_waiting(groups: GroupCommit, store: Store) -> None:
    placed = groups.append(QUEUE, drafts("a"))

    store.under_way.pop()[1].set_error(ValueError("unheard of"))

    with pytest.raises(ValueError, match="unheard of"):
        placed.result()
    groups.append(QUEUE, drafts("b"))
    assert store.bodies == [["b"]]


def test_an_answer_of_the_store_that_makes_no_sense_leaves_nobody_waiting(groups: GroupCommit, store: Store) -> None:
    """Its group counted as under way for ever: after four of them nothing was stored in that partition."""
    for body in "abcde":
        placed = groups.append(QUEUE, drafts(body))
        store.under_way.pop()[1].set_result(None)  # type: ignore[arg-type]

        with pytest.raises(TypeError):
            placed.result()


def test_who_has_waited_too_long_is_refused_and_not_stored(
    groups: GroupCommit, store: Store, clock: ManualClock
) -> None:
    busy(groups, store)
    late = groups.append(QUEUE, drafts("late"))
    clock.advance(PATIENCE_SECONDS - 1)
    soon = groups.append(QUEUE, drafts("soon"))
    clock.advance(2)

    store.finish()

    assert store.bodies[-1] == ["soon"]
    with pytest.raises(StorageUnavailable):
        late.result()
    store.finish(-1)
    assert soon.done


def test_nothing_is_remembered_of_a_partition_at_rest(groups: GroupCommit, store: Store) -> None:
    busy(groups, store)
    groups.append(QUEUE, drafts("a"))
    while store.under_way:
        store.finish()

    assert groups._lines == {}


@pytest.mark.parametrize(
    ("wanted", "share"),
    [
        (drafts("a", "b"), True),
        ([], False),
        ([*drafts("a"), *drafts("b", partition=2)], False),
        ([Draft(1, b"later", 60, due_ticks=10**18)], False),
    ],
)
def test_only_what_is_for_now_and_one_partition_is_shared(wanted: list[Draft], share: bool) -> None:
    assert may_share(wanted) == share
