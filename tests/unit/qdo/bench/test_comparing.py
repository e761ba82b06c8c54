"""Comparisons: equals are seldom called different, and what differs is found."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from qdo.bench.comparing import compared

COMPARISONS = 400
NOISE, MOOD = 0.03, 0.05
"""Of each figure of a run, and of both runs that lie beside each other: standard deviations of logarithms."""


def documents(chance: random.Random, runs: int, *, slower: float = 1.0) -> tuple[Any, Any]:
    """Two results; the response times of the second are longer by this factor."""
    pairs = []
    for _ in range(runs):
        mood = chance.gauss(0, MOOD)
        pairs.append([_run(chance, mood, factor) for factor in (1.0, slower)])
    first, second = zip(*pairs, strict=True)
    return {"runs": first}, {"runs": second}


def _run(chance: random.Random, mood: float, factor: float) -> Any:
    def drawn(middle: float) -> float:
        return middle * math.exp(mood + chance.gauss(0, NOISE))

    times = {
        name: {"p50": drawn(2), "p99": drawn(9)}
        for name in ("response_ms", "service_ms", "receive_ms", "end_to_end_ms")
    }
    times["response_ms"]["p50"] *= factor
    return {"queuey": {"publish_rate": drawn(1000), "consume_rate": drawn(900), **times}}


def shown(first: Any, second: Any) -> list[str]:
    """The figures of which a difference is said without 'perhaps'."""
    return [one.name for one in compared(first, second) if one.said.startswith(("more", "less"))]


@pytest.mark.parametrize("runs", [3, 5, 20])
def test_of_a_hundred_comparisons_of_equals_at_most_five_show_any_difference(runs: int) -> None:
    chance = random.Random(runs)
    wrong = sum(bool(shown(*documents(chance, runs))) for _ in range(COMPARISONS))

    # Three standard deviations above 5 %.
    assert wrong / COMPARISONS <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / COMPARISONS)


def test_a_tenth_is_found_with_ten_runs_and_is_the_only_difference() -> None:
    chance = random.Random(7)
    found = [shown(*documents(chance, 10, slower=1.1)) for _ in range(100)]

    assert sum("response p50, ms" in names for names in found) >= 95
    assert sum(len(names) > 1 for names in found) <= 10


def test_a_figure_outside_its_interval_that_may_be_there_by_chance_is_said_to_be_perhaps() -> None:
    chance = random.Random(7)
    said = [one.said for _ in range(100) for one in compared(*documents(chance, 3))]

    perhaps = [text for text in said if text.startswith("perhaps")]
    assert 0.02 <= len(perhaps) / len(said) <= 0.08
    assert perhaps[0].endswith("or chance: make more runs")


def test_an_interval_holds_the_true_ratio_95_times_in_100() -> None:
    chance = random.Random(11)
    held = 0
    for _ in range(COMPARISONS):
        one = next(one for one in compared(*documents(chance, 4, slower=1.1)) if one.name == "response p50, ms")
        held += one.low <= 1.1 <= one.high

    assert abs(held / COMPARISONS - 0.95) <= 3 * math.sqrt(0.05 * 0.95 / COMPARISONS)
