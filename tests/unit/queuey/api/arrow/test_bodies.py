"""Bodies in Arrow's memory are like a list of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey.api.arrow.bodies import ArrowBodies
from queuey.ids import MessageId
from queuey.model import Alike, Columns
from queuey.storage.sqlite.packs import cut, packed, taken_from

_END = st.none() | st.integers(-12, 12)
_STEP = st.none() | st.sampled_from([1, 2, 3, -1])


@given(st.lists(st.binary(max_size=5), max_size=10), st.integers(0, 3), st.builds(slice, _END, _END, _STEP), st.data())
def test_they_are_like_a_list(bodies: list[bytes], before: int, part: slice, draw: st.DataObject) -> None:
    found = ArrowBodies.of(pa.array([b"before"] * before + bodies, pa.binary())[before:])

    assert [*found] == bodies
    assert (len(found), found.size, [*found.sizes()]) == (len(bodies), len(b"".join(bodies)), [*map(len, bodies)])
    assert ([*found[part]], bytes(found.whole())) == (bodies[part], b"".join(bodies))
    if bodies:
        chosen = draw.draw(st.lists(st.integers(0, len(bodies) - 1)))
        assert [*found.picked(chosen)] == [bodies[at] for at in chosen]
        assert (found[0], found[-1]) == (bodies[0], bodies[-1])
    with pytest.raises(IndexError):
        found[len(bodies)]


@pytest.mark.parametrize("chosen", [range(900), range(3, 900, 7), [at for at in range(900) if at % 7 != at % 3]])
def test_packs_of_them_are_those_of_a_list(chosen: Any) -> None:
    bodies = [b"%d" % number * (number % 40) for number in range(900)]
    count, first = len(bodies), MessageId(1 << 57, -5)

    def packs(bodies: Any) -> Any:
        ticks, nothing = range(first.ticks, first.ticks + count), Alike(None, count)
        columns = Columns(ticks, Alike(first.tail, count), ticks, nothing, nothing, bodies, nothing)
        return [packed(run) for run in cut(taken_from(columns, chosen))]

    assert packs(ArrowBodies.of(pa.array(bodies, pa.binary()))) == packs(bodies)
