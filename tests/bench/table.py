"""Rows, the bars they are held against, and the table as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from qdo.bench.tables import markdown_table
from tests.bench.measure import Spread, percentile

_LIMIT = re.compile(r"(\w+) (<=|>=) ([0-9.,]+)( \S+)?")


class Limit(NamedTuple):
    """One condition of a bar."""

    name: str
    at_most: bool
    value: float

    def met(self, figures: Mapping[str, float]) -> bool:
        figure = figures[self.name]
        return figure <= self.value if self.at_most else figure >= self.value


def parse_bar(text: str) -> list[Limit]:
    """A bar as it is written in the table; several limits hold together.

    >>> parse_bar("ratio >= 0.5, p99 <= 5 ms")
    [Limit(name='ratio', at_most=False, value=0.5), Limit(name='p99', at_most=True, value=5.0)]
    >>> parse_bar("rate >= 12,000 /s")
    [Limit(name='rate', at_most=False, value=12000.0)]
    """
    limits = []
    for part in text.split(", ") if text else []:
        found = _LIMIT.fullmatch(part)
        if found is None:
            raise ValueError(f"{part!r} is no limit")
        limits.append(Limit(found[1], found[2] == "<=", float(found[3].replace(",", ""))))
    return limits


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    baseline: str
    ours: str
    ratio: Spread | None = None
    first: str = ""
    """The first bar, as :func:`parse_bar` reads it; empty for figures that are only recorded."""
    goal: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    """What the bars name beside ``ratio``."""

    @property
    def verdict(self) -> str:
        """How far it got: ``reached`` the goal, the ``first bar``, or ``short`` of it."""
        if not self.first and not self.goal:
            return "recorded"
        figures = {**self.figures, **({} if self.ratio is None else {"ratio": self.ratio.middle})}
        if all(limit.met(figures) for limit in parse_bar(self.goal)):
            return "reached"
        return "first bar" if self.first and all(limit.met(figures) for limit in parse_bar(self.first)) else "short"


def number(value: float) -> str:
    """For people: three digits that count, thousands set apart.

    >>> number(17234.5), number(3.14159), number(0.0123), number(123.4)
    ('17,200', '3.14', '0.0123', '123')
    """
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:g}"


def times(what: str, took: Sequence[float], *, more: str = "", first: str = "", goal: str) -> Row:
    """A row of milliseconds without a baseline; its bars are about ``p50`` and ``p99``.

    >>> times("arrival", [1.0, 2.0, 3.0], goal="p99 <= 3 ms").ours
    'p50 2.00 ms, p99 3.00 ms, worst 3.0 ms'
    """
    p50, p99 = percentile(took, 0.5), percentile(took, 0.99)
    said = f"p50 {p50:.2f} ms, p99 {p99:.2f} ms, worst {max(took):.1f} ms{more}"
    return Row(what, "", said, first=first, goal=goal, figures={"p50": p50, "p99": p99})


_HEADS = ("what", "baseline", "Queuey", "ratio (least..most)", "first bar", "to reach", "verdict")


def markdown(rows: Iterable[Row]) -> str:
    """
    >>> print(markdown([Row("append", "10 /s", "8 /s", Spread(0.8, 0.7, 0.9), "ratio >= 0.3", "ratio >= 0.9")]))
    | what | baseline | Queuey | ratio (least..most) | first bar | to reach | verdict |
    |---|---|---|---|---|---|---|
    | append | 10 /s | 8 /s | 0.80 (0.70..0.90) | ratio >= 0.3 | ratio >= 0.9 | first bar |
    """
    cells = [
        _HEADS,
        *((row.what, row.baseline, row.ours, str(row.ratio or ""), row.first, row.goal, row.verdict) for row in rows),
    ]
    return re.sub(r" +\|", " |", markdown_table(cells))
