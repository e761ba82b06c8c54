"""Plots as SVG, drawn here: a page with them needs nothing from anywhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

WIDTH, HEIGHT = 620, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 30, 42
COLOURS = ("#1b6ca8", "#c8553d", "#3f8f5b", "#8a5aa8", "#b58900", "#808080")
"""Each is seen on a white and on a black page."""
DASHES = ("none", "7 3", "2 3")
"""Of lines beyond the number of colours."""
LEAST_TICKS = 3
"""Of an axis by powers of ten; with fewer it has the steps between them."""
MOST_DOTS = 20
"""A line of up to this number of points shows each: one alone would not be seen."""
DRAWN = (
    ".grid { stroke: #bbb; stroke-width: .5 } .title { font-weight: 600 } .mark { stroke: #d33; stroke-dasharray: 3 3 }"
)
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Plot:
    """Lines over one axis."""

    title: str
    across: str
    upward: str
    lines: Sequence[tuple[str, Points]]
    log_across: bool = False
    marks: Sequence[tuple[float, str]] = field(default_factory=tuple)
    """Moments on the axis across, and what happened then."""

    def svg(self) -> str:
        """The plot; a sentence in its place if there is nothing to draw."""
        points = [point for _, some in self.lines for point in some if point[0] > 0 or not self.log_across]
        if not points:
            return f"<p>{escape(self.title)}: nothing to draw.</p>"
        least, most = min(x for x, _ in points), max(x for x, _ in points)
        top = max(y for _, y in points) or 1.0
        across = _Scale(least, most, _LEFT, WIDTH - _RIGHT, is_log=self.log_across)
        upward = _Scale(0.0, top, HEIGHT - _BOTTOM, _TOP)
        parts = [
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(self.title)}">',
            f'<text x="{_LEFT}" y="16" class="title">{escape(self.title)}</text>',
            *(_across_tick(across, tick) for tick in across.ticks()),
            *(_upward_tick(upward, tick) for tick in upward.ticks()),
            f'<text x="{WIDTH - _RIGHT}" y="{HEIGHT - 6}" text-anchor="end">{escape(self.across)}</text>',
            f'<text x="{WIDTH - _RIGHT}" y="16" text-anchor="end">{escape(self.upward)}</text>',
        ]
        for moment, what in self.marks:
            x = across.place(min(max(moment, least), most))
            parts.append(
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}" class="mark">'
                f"<title>{escape(what)}</title></line>"
            )
        for at, (name, some) in enumerate(self.lines):
            style = _style(at)
            shown = [(across.place(x), upward.place(y)) for x, y in some if x > 0 or not self.log_across]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in shown)
            parts.append(f'<polyline points="{path}" fill="none" {style}/>')
            if len(shown) <= MOST_DOTS:
                parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2" fill="none" {style}/>' for x, y in shown]
            parts.append(_legend(at, name, style))
        if self.marks:
            parts.append(_legend(len(self.lines), "a fault, or its end", 'class="mark"'))
        return "".join([*parts, "</svg>"])


def _style(at: int) -> str:
    colour, dash = COLOURS[at % len(COLOURS)], DASHES[at // len(COLOURS) % len(DASHES)]
    return f'stroke="{colour}" stroke-dasharray="{dash}" stroke-width="1.6"'


def _legend(at: int, name: str, style: str) -> str:
    """A piece of the line, and its name."""
    y = _TOP + 14 + 14 * at
    return (
        f'<line x1="{_LEFT + 8}" x2="{_LEFT + 28}" y1="{y - 4}" y2="{y - 4}" {style}/>'
        f'<text x="{_LEFT + 34}" y="{y}">{escape(name)}</text>'
    )


def lines_of(points: Iterable[tuple[str, float, float]]) -> list[tuple[str, Points]]:
    """A line for each name, from points in any order.

    >>> lines_of([("a", 2, 5), ("b", 1, 7), ("a", 1, 6)])
    [('a', [(1, 6), (2, 5)]), ('b', [(1, 7)])]
    """
    lines: dict[str, list[tuple[float, float]]] = {}
    for name, x, y in points:
        lines.setdefault(name, []).append((x, y))
    return [(name, sorted(some)) for name, some in lines.items()]


def place_of(value: Any) -> float | None:
    """Of a value that varies on an axis: a number, or the first one in a mapping, as of what a network loses.

    >>> place_of(3), place_of({"requests": 0.1, "answers": 0.1}), place_of("auto"), place_of(True)
    (3.0, 0.1, None, None)
    """
    if isinstance(value, Mapping):
        value = next(iter(value.values()), None)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None


def drawing(plots: Sequence[Plot]) -> str:
    """Some plots below each other, as a file of its own."""
    size = f'viewBox="0 0 {WIDTH} {HEIGHT * len(plots)}" width="{WIDTH}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12" fill="#777">',
        f"<style>{DRAWN}</style>",
    ]
    for at, plot in enumerate(plots):
        inner = plot.svg().replace("<svg ", f'<svg x="0" y="{HEIGHT * at}" width="{WIDTH}" height="{HEIGHT}" ', 1)
        parts.append(inner)
    return "\n".join([*parts, "</svg>", ""])


@dataclass(frozen=True)
class _Scale:
    least: float
    most: float
    begin: float
    end: float
    is_log: bool = False

    def place(self, value: float) -> float:
        low, high, at = self.least, self.most, value
        if self.is_log:
            low, high, at = math.log10(low), math.log10(high), math.log10(value)
        share = (at - low) / (high - low) if high > low else 0.5
        return self.begin + share * (self.end - self.begin)

    def ticks(self) -> list[float]:
        """Round values, some five of them."""
        if self.is_log and self.most > self.least:
            powers = range(math.floor(math.log10(self.least)), math.ceil(math.log10(self.most)) + 1)
            for steps in (1,), (1, 2, 5), range(1, 10):
                found = [step * 10.0**power for power in powers for step in steps]
                found = [tick for tick in found if self.least <= tick <= self.most]
                if len(found) >= LEAST_TICKS:
                    return found
        span = self.most - self.least
        if span <= 0:
            return [self.most]
        raw = span / 5
        unit = 10.0 ** math.floor(math.log10(raw))
        step = unit * next(factor for factor in (1, 2, 5, 10) if raw <= factor * unit)
        first = math.ceil(self.least / step)
        return [step * at for at in range(first, math.floor(self.most / step + 1e-9) + 1)]


def _across_tick(scale: _Scale, tick: float) -> str:
    x = scale.place(tick)
    return (
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}" class="grid"/>'
        f'<text x="{x:.1f}" y="{HEIGHT - _BOTTOM + 15}" text-anchor="middle">{tick:g}</text>'
    )


def _upward_tick(scale: _Scale, tick: float) -> str:
    y = scale.place(tick)
    return (
        f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
        f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
    )
