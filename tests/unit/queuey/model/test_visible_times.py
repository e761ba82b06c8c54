"""What falls due is found, in portions."""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey.ids import MessageId
from queuey.model import visible_times
from queuey.model.holes import Hole, HoleTable
from queuey.model.visible_times import VisibleTimes

moments = st.integers(0, 1 << 26)


class Receive(NamedTuple):
    """What was leased together, and what becomes of it."""

    visible_at: int
    settled: list[bool]
    """By message."""
    again: dict[int, int]
    """When some of them are due now, by index."""
    also: dict[int, int]
    """Another time at which some are to be looked at, by index: their leases were extended."""


times_by_index = st.dictionaries(st.integers(0, 8), moments)
receives = st.builds(Receive, moments, st.lists(st.booleans(), min_size=1, max_size=9), times_by_index, times_by_index)
CLEAN_SOON: dict[str, Any] = {"_LEAST_CLEANED": 0, "_CLEANED_AT": 1, "_OLD": 1}


@given(st.lists(receives, max_size=6), moments, st.booleans(), st.integers(1, 4))
def test_what_is_due_and_not_settled_is_found(made: list[Receive], now: int, in_a_block: bool, most: int) -> None:
    with mock.patch.multiple(visible_times, _MOST_TAKEN=most, **CLEAN_SOON):
        table = HoleTable()
        times = VisibleTimes(table)
        tick = 0
        for visible_at, settled, _, _ in made:
            ticks = array("q", range(tick, tick := tick + len(settled)))
            table.extend(ticks, array("q", [7]) * len(ticks), Hole(MessageId(0, 0), visible_at))
            if not in_a_block:
                assert times.add_all(visible_at, ticks, array("q", [7]) * len(ticks))
        if in_a_block:
            ticks, tails, visible, *_ = table.block(MessageId(-1, 0)).columns
            assert not times.add_each(visible, ticks, tails)
        tick = 0
        for visible_at, settled, again, also in made:
            for at, is_settled in enumerate(settled):
                message_id = MessageId(tick + at, 7)
                if at in also:
                    assert times.add(also[at], message_id)
                if is_settled or at in again:
                    times.leave(visible_at)
                if is_settled:
                    table.remove(message_id)
                elif at in again:
                    table.put(Hole(message_id, again[at]))
                    assert times.add(again[at], message_id)
            tick += len(settled)

        found: set[Hole] = set()
        while times.reaches(now):
            some = times.take(now)
            assert len(some) <= most
            found.update(some)
        least = times.next()
        assert least is None or least > now
        assert {hole for hole in table if hole.visible_at <= now} <= found <= {*table}
        for hole in [*table][::2]:
            times.leave(hole.visible_at)
            table.remove(hole.id)
        while times.reaches(1 << 62):
            found.update(times.take(1 << 62))
        assert found >= {*table}


def test_very_many_that_fall_due_together_are_taken_out_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visible_times, "_MOST_TAKEN", 10)
    table = HoleTable()
    times = VisibleTimes(table)
    ticks, tails = array("q", range(25)), array("q", [0]) * 25
    table.extend(ticks, tails, Hole(MessageId(0, 0), 5))
    assert times.add_all(5, ticks, tails)
    taken = [times.take(6) for _ in range(3)]
    assert [len(some) for some in taken] == [10, 10, 5]
    assert not times.reaches(6)
    assert not times.add(5, taken[0][0].id), "its slot is gone"
    assert not times.add_all(5, ticks, tails)


def test_what_was_settled_of_a_receive_takes_no_time() -> None:
    """When ten million messages were consumed in a minute, their times took a third of a second of one step, again and
    again.
    """
    table = HoleTable()
    times = VisibleTimes(table)
    for tick in range(0, 100_000, 1000):
        ticks, tails = array("q", range(tick, tick + 1000)), array("q", [0]) * 1000
        table.extend(ticks, tails, Hole(MessageId(0, 0), 5))
        assert times.add_all(5, ticks, tails)
        for one in ticks[1:]:
            table.remove(MessageId(one, 0))
    with mock.patch.object(HoleTable, "find", side_effect=AssertionError("a look-up for each message")):
        while times.reaches(5):
            assert len(times.take(5)) == 1


@pytest.mark.parametrize("together", [1, 2, 3, 8])
@pytest.mark.parametrize("stuck", [0, 3])
def test_what_is_settled_gives_its_room_back(together: int, stuck: int) -> None:
    """A lease may last for twelve hours, and a group may consume much meanwhile."""
    table = HoleTable()
    times = VisibleTimes(table)
    for tick in range(0, 12_000, together):
        visible_at = tick << 13  # some 500 messages are in one slot
        ticks, tails = array("q", range(tick, tick + together)), array("q", [0]) * together
        table.extend(ticks, tails, Hole(MessageId(0, 0), visible_at))
        assert times.add_all(visible_at, ticks, tails)
        removed = table.remove_all([MessageId(one, 0) for one in ticks if one % 480 >= stuck])
        if removed is not None:
            times.leave_all(removed[1])
    old = [slot for number, slot in times._slots.items() if number <= times._old]
    assert len(old) == (16 if stuck else 0)
    assert all(len(slot.ids) + len(slot.rows) <= 256 for slot in old)
    found: set[Hole] = set()
    while times.reaches(1 << 62):
        found.update(times.take(1 << 62))
    assert found == {*table}
    assert len(found) == 25 * stuck
