"""The answers of a simulation as text, and as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import msgspec

from qdo.bench.page import STYLE, html_table
from qdo.bench.plots import Plot, lines_of, place_of
from qdo.bench.simulation.simulating import Simulated, first_limit, shown
from qdo.bench.summary import varied_number
from qdo.bench.tables import aligned, markdown_table

__all__ = ["answer", "answer_markdown", "answer_page"]


def answer(document: Simulated) -> str:
    """The figures of all variants, the first limit of each, and what to change."""
    lines = [document["scenario"]["name"], document["scenario"]["about"], "", *aligned(_figures(document)), ""]
    for variant in document["variants"]:
        label = shown(variant["values"]) or "the first limit"
        first = first_limit(variant)
        reached = "passed" if first.use > 1 else f"{first.use:.0%} used"
        lines += [f"{label}: {first.name}, {reached}: {first.said}."]
        if first.use > 1:
            lines.append(f"  Change: {first.change}.")
    return "\n".join(lines)


def answer_markdown(document: Simulated) -> str:
    """The answer for a page of the documentation: the figures, and the limits that are passed."""
    scenario = document["scenario"]
    lines = [f"### {scenario['name']}", "", scenario["about"], "", markdown_table(_figures(document))]
    firsts = [(shown(variant["values"]), first_limit(variant)) for variant in document["variants"]]
    passed = [(label, first) for label, first in firsts if first.use > 1]
    if passed:
        lines += ["", "The first limit, where one is passed:", ""]
    for label, first in passed:
        lines.append(f"- {label + ': ' if label else ''}{first.name}, passed: {first.said}. Change: {first.change}.")
    return "\n".join(lines)


def _figures(document: Simulated) -> list[list[str]]:
    """A row for each variant: its values, figures, and the use of each limit."""
    variants = document["variants"]
    names = [*variants[0]["values"]]
    figures = [*dict.fromkeys(name for variant in variants for name in variant["figures"])]
    limits = sorted({limit["name"] for variant in variants for limit in variant["limits"]})
    rows = [[*(names or [""]), *figures, *(f"{name}, used" for name in limits)]]
    for variant in variants:
        used = {limit["name"]: limit["use"] for limit in variant["limits"]}
        values = [shown({name: value}).partition("=")[2] for name, value in variant["values"].items()]
        rows.append(
            [
                *(values or ["-"]),
                *(_number(variant["figures"].get(name)) for name in figures),
                *(f"{used[name]:,.0%}" if name in used else "-" for name in limits),
            ]
        )
    return rows


def _number(value: float | None) -> str:
    """Three digits; a dash for what a variant does not have.

    >>> _number(12345.6), _number(12.345), _number(0.01234), _number(0), _number(None)
    ('12,346', '12.3', '0.0123', '0', '-')
    """
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def answer_page(document: Simulated) -> str:
    """The page."""
    scenario = document["scenario"]
    name = escape(scenario["name"])
    text = msgspec.json.format(msgspec.json.encode({**scenario, "costs": document["costs"]}), indent=2).decode()
    parts = [
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{name}</title>',
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>',
        f"<h1>{name}</h1><p>{escape(scenario['about'])}</p>",
        html_table(_figures(document)),
        "<h2>Where the first limit is</h2>",
        *(_limits(variant) for variant in document["variants"]),
        *(plot.svg() for plot in simulated_plots(document)),
        f"<h2>The exact scenario</h2><pre>{escape(text)}</pre></body></html>",
    ]
    return "\n".join(parts)


def _limits(variant: Mapping[str, Any]) -> str:
    rows = [["limit", "used", "why", "what to change"]]
    rows += [[one["name"], f"{one['use']:,.0%}", one["said"], one["change"]] for one in variant["limits"]]
    head = f"<h3>{escape(shown(variant['values']))}</h3>" if variant["values"] else ""
    return head + html_table(rows)


def simulated_plots(document: Simulated) -> list[Plot]:
    """How much of each limit is used over the first value that is a number in some variants; and what happened over time."""
    variants: Sequence[Mapping[str, Any]] = document["variants"]
    across = varied_number(variants)
    plots = []
    if len(variants) > 1 and across is not None:
        lines = lines_of(
            (
                " ".join(filter(None, [limit["name"], shown(_without(variant["values"], across))])),
                place,
                100 * min(limit["use"], 2),
            )
            for variant in variants
            if (place := place_of(variant["values"][across])) is not None
            for limit in variant["limits"]
        )
        plots.append(Plot(f"Use of the limits over {across}", across, "%, cut at 200", lines, log_across=True))
    for variant in variants:
        for name, points in variant["series"].items():
            if len(points) > 2:
                title = " ".join(filter(None, [name, shown(variant["values"])]))
                plots.append(Plot(f"{title}, over time", "second", name, [("", [tuple(one) for one in points])]))
    return plots


def _without(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return {one: value for one, value in values.items() if one != name}
