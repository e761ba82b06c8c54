"""Order in bounded memory says what :func:`qdo.measure.disorder` says of the whole list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdo.bench import order
from qdo.bench.order import StreamOrder
from qdo.measure import disorder


def judged(numbers: list[int]) -> tuple[float, float]:
    found = StreamOrder()
    for number in numbers:
        found.add(number)
    found.end()
    return found.out_of_order / len(numbers), found.moved / len(numbers)


@given(st.integers(1, 40).flatmap(lambda count: st.permutations(range(count))), st.integers(0, 20))
def test_any_order_with_gaps_is_judged_as_a_whole_list(numbers: list[int], lost: int) -> None:
    received = numbers[: max(1, len(numbers) - lost)]

    assert judged(received) == pytest.approx(disorder(received))


def test_a_gap_is_given_up_behind_the_horizon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "HORIZON", 10)
    found = StreamOrder()
    for number in range(1, 1000):
        found.add(number)

    waiting = len(found._waiting)
    found.add(0)
    found.end()

    assert waiting <= 10
    assert (found.received, found.out_of_order) == (1000, 1)
