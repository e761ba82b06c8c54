"""What falls due is found, in portions."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey.ids import MessageId
from queuey.model import visible_times
from queuey.model.visible_times import VisibleTimes

ids = st.builds(MessageId, st.integers(0, 40), st.integers(-2, 2))


@given(st.lists(st.tuples(st.integers(0, 1 << 26), ids), max_size=30), st.integers(0, 1 << 26))
def test_what_is_due_is_taken_out_once(entered: list[tuple[int, MessageId]], now: int) -> None:
    times = VisibleTimes()
    for visible_at, message_id in entered:
        times.add(visible_at, message_id)

    taken: list[MessageId] = []
    while times.reaches(now):
        taken += times.take(now)
    for visible_at, message_id in entered:
        assert visible_at > now or message_id in taken
    assert not times.take(now)
    least = times.next()
    while times.reaches(1 << 62):
        taken += times.take(1 << 62)
    assert sorted(taken) == sorted(message_id for _, message_id in entered)
    assert least is None or least > now


def test_very_many_that_fall_due_together_are_taken_out_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visible_times, "_MOST_TAKEN", 10)
    times = VisibleTimes()
    assert times.add_all(5, array("q", range(25)), array("q", [0]) * 25)
    taken = [times.take(6) for _ in range(3)]
    assert [len(some) for some in taken] == [10, 10, 5]
    assert not times.reaches(6)
    assert not times.add(5, taken[0][0]), "its slot is gone"
