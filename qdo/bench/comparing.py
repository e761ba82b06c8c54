"""Whether two results differ, and by how much, with an interval for the doubt.

Runs in turn share the moods of the machine, so each run is compared with the one beside it: the mean of the ratios'
logarithms, with Student's interval. It holds the true ratio 95 times in 100 if the moods are alike in both.

Several figures are compared at once, and of nine one would leave its interval in a third of all comparisons of a system with
itself. So a difference is said to be shown by Holm's method: in at most 5 of 100 comparisons of equals is it said of any.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import mean, stdev
from typing import Any, NamedTuple

from qdo.bench.document import Document

DOUBT = 0.05
"""The share of comparisons of equals in which a difference is said to be shown, at most."""


class Ratio(NamedTuple):
    """How much larger the second is than the first."""

    name: str
    first: float
    second: float
    """Geometric means of the runs."""
    ratio: float
    low: float
    high: float
    """The interval; 0 and infinity if there is one run only."""
    chance: float
    """How often runs of equals would differ as much."""
    is_shown: bool = False
    """The difference is shown, all figures of the comparison considered."""

    @property
    def said(self) -> str:
        """Whether they differ."""
        if self.low <= 1 <= self.high:
            return "no difference shown"
        if not self.is_shown:
            return f"perhaps {self._difference}, or chance: make more runs"
        return self._difference

    @property
    def _difference(self) -> str:
        return f"{'more' if self.ratio > 1 else 'less'} by {abs(self.ratio - 1):.1%}"


FIGURES: dict[str, Callable[[Any], float | None]] = {
    "sent a second": lambda run: run["publish_rate"],
    "received a second": lambda run: run["consume_rate"],
    "response p50, ms": lambda run: run["response_ms"].get("p50"),
    "response p99, ms": lambda run: run["response_ms"].get("p99"),
    "service p99, ms": lambda run: run["service_ms"].get("p99"),
    "receive p50, ms": lambda run: run["receive_ms"].get("p50"),
    "receive p99, ms": lambda run: run["receive_ms"].get("p99"),
    "end to end p50, ms": lambda run: run["end_to_end_ms"].get("p50"),
    "end to end p99, ms": lambda run: run["end_to_end_ms"].get("p99"),
}


def ratio_of(name: str, first: Sequence[float], second: Sequence[float]) -> Ratio:
    """The ratio of runs that lay beside each other, one at least; all figures are above 0.

    >>> one = ratio_of("rate", [100, 110, 105], [200, 220, 210])
    >>> round(one.ratio, 6), one.chance < 0.001
    (2.0, True)
    >>> ratio_of("rate", [100, 110, 105], [99, 112, 104]).said
    'no difference shown'
    >>> ratio_of("rate", [100], [300]).said
    'no difference shown'
    """
    pairs = [*zip(first, second, strict=False)]
    logs = [math.log(b / a) for a, b in pairs]
    one, other = (math.exp(mean(math.log(pair[at]) for pair in pairs)) for at in (0, 1))
    middle = mean(logs)
    if len(logs) < 2:
        return Ratio(name, one, other, math.exp(middle), 0, math.inf, 1)
    error, freedom = stdev(logs) / math.sqrt(len(logs)), len(logs) - 1
    half = student_quantile(freedom) * error
    chance = student_chance(abs(middle) / error, freedom) if error else float(not middle)
    return Ratio(name, one, other, math.exp(middle), math.exp(middle - half), math.exp(middle + half), chance)


def student_chance(value: float, freedom: int) -> float:
    """How often Student's distribution is as far from 0 as this, on either side.

    :param freedom: its degrees, 1 at least.
    :source: Abramowitz and Stegun, 26.7.3 and 26.7.4.

    >>> [round(student_chance(*one), 3) for one in ((12.706, 1), (4.303, 2), (2.262, 9), (1.984, 100))]
    [0.05, 0.05, 0.05, 0.05]
    """
    angle = math.atan(value / math.sqrt(freedom))
    square, odd = math.cos(angle) ** 2, freedom % 2
    term, total = (math.cos(angle), 0.0) if odd else (1.0, 0.0)
    for at in range(1 + odd, freedom, 2):
        total += term
        term *= square * at / (at + 1)
    total *= math.sin(angle)
    return 1 - (2 / math.pi * (angle + total) if odd else total)


def student_quantile(freedom: int, chance: float = DOUBT) -> float:
    """The value that is exceeded so often, on either side.

    >>> [round(student_quantile(freedom), 2) for freedom in (1, 2, 3, 30)]
    [12.71, 4.3, 3.18, 2.04]
    """
    low, high = 0.0, 1.0
    while student_chance(high, freedom) > chance:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if student_chance(middle, freedom) > chance else (low, middle)
    return high


def compared(first: Document, second: Document) -> list[Ratio]:
    """The figures that both have, and that have a ratio: in no run is one of them 0."""
    found = []
    for name, pairs in _pairs(first, second).items():
        if all(a > 0 and b > 0 for a, b in pairs):
            found.append(ratio_of(name, [a for a, _ in pairs], [b for _, b in pairs]))
    return with_shown(found)


def _pairs(first: Document, second: Document) -> dict[str, list[tuple[float, float]]]:
    """By name, the figures of runs that lay beside each other, as far as both have them."""
    found = {}
    for name, figure in FIGURES.items():
        ours, theirs = ([figure(run["queuey"]) for run in one["runs"]] for one in (first, second))
        pairs = [(a, b) for a, b in zip(ours, theirs, strict=False) if a is not None and b is not None]
        if pairs:
            found[name] = pairs
    return found


def with_shown(ratios: Sequence[Ratio]) -> list[Ratio]:
    """The same, each with whether its difference is shown.

    Of k figures by rising chance, the n-th is shown if its chance is at most ``DOUBT / (k - n + 1)``, and so are all before it.
    """
    shown = set()
    for at, one in enumerate(sorted(ratios, key=lambda ratio: ratio.chance)):
        if one.chance > DOUBT / (len(ratios) - at):
            break
        shown.add(one.name)
    return [one._replace(is_shown=one.name in shown) for one in ratios]


def doubts(first: Document, second: Document) -> list[str]:
    """Why the comparison may say nothing."""
    found = []
    if first["workload"] != second["workload"]:
        differing = sorted(_differing(first["workload"], second["workload"]))
        found.append(f"the workloads differ: {', '.join(differing)}")
    if first["environment"] | {"load": ""} != second["environment"] | {"load": ""}:
        found.append("the machines or programs differ")
    if not _in_turn(first, second):
        found.append("the runs were not made in turn: give both drivers to one 'queuey bench run' for that")
    if nothing := [name for name, pairs in _pairs(first, second).items() if min(map(min, pairs)) <= 0]:
        found.append(f"what is 0 in a run has no ratio: {', '.join(nothing)}")
    for at, one in enumerate((first, second), 1):
        if one["verdict"]["exit"]:
            found.append(f"the {'first' if at == 1 else 'second'} is not both trusted and clean")
        if len(one["runs"]) < 3:
            found.append(f"the {'first' if at == 1 else 'second'} has fewer than three runs")
    return found


def _differing(first: Any, second: Any, place: str = "") -> list[str]:
    if isinstance(first, dict) and isinstance(second, dict):
        names = sorted(first.keys() | second.keys())
        return [one for name in names for one in _differing(first.get(name), second.get(name), f"{place}.{name}")]
    return [] if first == second else [place.lstrip(".")]


def _in_turn(first: Document, second: Document) -> bool:
    """Each run of the one began between two of the other, or next to one."""
    began = sorted((run["queuey"]["began"], at) for at, one in enumerate((first, second)) for run in one["runs"])
    pairs = [{began[at][1], began[at + 1][1]} for at in range(0, len(began) - 1, 2)]
    return all(len(pair) == 2 for pair in pairs)
