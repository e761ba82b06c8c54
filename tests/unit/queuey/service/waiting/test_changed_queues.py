"""Which queues got something: what an answer says, what is not known, and how much is kept."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from queuey.clock import ManualClock
from queuey.errors import InvalidParameter
from queuey.ids import TICKS_PER_SECOND, MessageId
from queuey.model import Location, Queue
from queuey.service.waiting import changed_queues as arrivals
from queuey.service.waiting.changed_queues import FORGET_SECONDS, MOST_APPLICATIONS, ChangedQueues, NewlyReadable


class House:
    """Queues of one application, and time in the test's hand."""

    def __init__(self, *, alone: bool = True, delay_seconds: float = 0.0) -> None:
        self.clock = ManualClock()
        self._delay_ticks = round(delay_seconds * TICKS_PER_SECOND)
        self.arrivals = ChangedQueues(self.clock, self.readable, alone=alone)

    def readable(self) -> int:
        return self.clock.now_ticks() - self._delay_ticks

    def append(self, *names: str, after_seconds: float = 0.0, application: str = "demo") -> None:
        ticks = self.clock.now_ticks() + round(after_seconds * TICKS_PER_SECOND)
        for name in names:
            self.arrivals.note(Queue(application, name, uuid4(), 0), [Location(1, MessageId(ticks, 0))] * 3)

    def ask(self, cursor: str | None = None, limit: int = 1000, application: str = "demo") -> NewlyReadable:
        return self.arrivals.since(application, cursor, limit)


def test_what_came_since_a_cursor_is_told_once_in_order() -> None:
    house = House()
    house.append("before")
    begun = house.ask()

    for name in ("a", "b", "a", "c", "b"):
        house.append(name)
        house.clock.advance(0.2)
    told = house.ask(begun.cursor)

    assert (begun.names, begun.more, begun.complete) == ([], False, False)
    assert (told.names, told.more, told.complete) == (["a", "c", "b"], False, True)
    assert house.ask(told.cursor) == NewlyReadable([], told.cursor, more=False, complete=True)
    assert house.ask(begun.cursor) == told


def test_who_comes_later_is_told_what_is_remembered() -> None:
    house = House()
    house.ask()
    house.append("a")
    house.clock.advance(1)

    begun = house.ask()
    house.append("b")
    house.clock.advance(1)

    assert (begun.names, begun.complete) == (["a"], False)
    assert house.ask(begun.cursor)[0::3] == (["b"], True)


def test_pages_join_without_gap() -> None:
    house = House()
    cursor, found = house.ask().cursor, []
    house.append(*map(str, range(7)))
    house.clock.advance(1)

    more = True
    while more:
        names, cursor, more, complete = house.ask(cursor, 3)
        found.append(names)
        assert complete

    assert found == [["0", "1", "2"], ["3", "4", "5"], ["6"]]


@pytest.mark.parametrize(("delay", "due", "wait"), [(0, 30, 30), (2, 0, 2), (2, 5, 7)])
def test_a_queue_is_told_when_its_message_can_be_read(delay: float, due: float, wait: float) -> None:
    house = House(delay_seconds=delay)
    cursor = house.ask().cursor
    house.append("q", after_seconds=due)

    house.clock.advance(wait - 0.2)
    before = house.ask(cursor)
    house.clock.advance(0.3)

    assert (before.names, before.complete) == ([], True)
    assert house.ask(before.cursor).names == ["q"]


def test_applications_are_apart() -> None:
    house = House()
    ours, theirs = house.ask().cursor, house.ask(application="other").cursor
    house.append("q", application="other")
    house.clock.advance(1)

    assert house.ask(ours).names == []
    assert house.ask(theirs, application="other").names == ["q"]
    foreign = house.ask(ours, application="other")
    assert (foreign.names, foreign.complete) == ([], False)


def forgets_by_time(house: House) -> None:
    house.clock.advance(FORGET_SECONDS + 1)
    house.append("q")


def forgets_by_many_applications(house: House) -> None:
    for number in range(MOST_APPLICATIONS):
        house.ask(application=str(number))


@pytest.mark.parametrize("forget", [forgets_by_time, forgets_by_many_applications])
def test_what_nobody_asks_for_is_forgotten_and_told_so(forget: Callable[[House], None]) -> None:
    house = House()
    cursor = house.ask().cursor
    forget(house)

    lost = house.ask(cursor)
    house.append("q")
    house.clock.advance(1)

    assert (lost.names, lost.complete) == ([], False)
    assert house.ask(lost.cursor)[0::3] == (["q"], True)


@pytest.mark.parametrize("after_seconds", [0, 30])
def test_what_there_is_no_room_for_is_told_so(monkeypatch: pytest.MonkeyPatch, after_seconds: int) -> None:
    monkeypatch.setattr(arrivals, "MOST_QUEUES", 2)
    house = House()
    cursor = house.ask().cursor
    house.append("a", "b", "c", after_seconds=after_seconds)

    house.clock.advance(after_seconds + 1)
    lost = house.ask(cursor)
    house.append("d")
    house.clock.advance(1)

    assert not lost.complete
    assert set(lost.names) < {"a", "b", "c"}
    assert house.ask(lost.cursor)[0::3] == (["d"], True)


def test_where_others_append_it_never_is_all() -> None:
    house = House(alone=False)
    cursor = house.ask().cursor
    house.append("q")
    house.clock.advance(1)

    assert house.ask(cursor)[0::3] == (["q"], False)


@pytest.mark.parametrize("cursor", ["x", "0-0", f"{'a' * 16}-", f"{'a' * 16}-1-2", "a" * 100])
def test_what_is_no_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidParameter):
        House().ask(cursor)


STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 9), st.sampled_from([0, 0, 0, 1, 40])),
    st.tuples(st.just("pass"), st.sampled_from([0.2, 1, 20]), st.just(0)),
    st.tuples(st.just("ask"), st.integers(0, 2), st.integers(1, 4)),
)


# What there was no room for came after what is forgotten later.
FORGOTTEN_LATER = [("ask", 0, 1), ("append", 0, 1), ("append", 1, 0), *[("append", at, 1) for at in (2, 3, 4, 5)]]


@given(steps=st.lists(STEPS, max_size=60))
@example(steps=[*FORGOTTEN_LATER, ("ask", 0, 1), ("append", 1, 0)])
def test_any_history_is_told_whole_or_said_not_to_be(steps: list[tuple[str, float, int]]) -> None:
    """Three readers, each at its own pace; room for five queues, and for five moments still to come."""
    house = House()
    cursors: dict[float, str | None] = {}
    owed: dict[float, list[tuple[int, str]]] = {0: [], 1: [], 2: []}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrivals, "MOST_QUEUES", 5)
        for what, number, more in [*steps, ("pass", 41, 0), ("ask", 0, 100), ("ask", 1, 100), ("ask", 2, 100)]:
            if what == "append":
                house.append(f"q{number}", after_seconds=more)
                for reader in cursors:
                    owed[reader].append((house.clock.now_ticks() + more * TICKS_PER_SECOND, f"q{number}"))
            elif what == "pass":
                house.clock.advance(number)
            else:
                told = house.ask(cursors.get(number), more)
                due = {name for moment, name in owed[number] if moment <= house.readable() - TICKS_PER_SECOND // 10}
                if not told.complete:
                    owed[number] = []
                elif not told.more:
                    assert due <= set(told.names)
                owed[number] = [
                    entry for entry in owed[number] if entry[1] not in told.names or entry[0] > house.readable()
                ]
                cursors[number] = told.cursor
