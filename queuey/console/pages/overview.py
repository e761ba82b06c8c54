"""What goes on: an application's figures, or the server's with an hour of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from queuey.console.pages.page import ConsolePage, PageAnswer
from queuey.console.visits import Visit

__all__ = ["PAGES", "points"]

_HOUR = 3600
CHART_POINTS = 240
"""Points of a chart: an hour has one for each quarter of a minute, the greatest of it."""
CHARTS = ("appended", "read", "received", "settled", "requests", "errors", "p99", "waiters")
_APPLICATIONS = 25
_WORST = 5
"""Queues on an overview: those with the most messages."""


def of_application(visit: Visit, application: str) -> PageAnswer:
    """What was counted of an application since the server began."""
    found = visit.ask(application, stats="true", sort="depth", limit=_WORST).content
    visit.in_shell_of(application, "queuey", "queue", "ls")
    values = {"application": application, "figures": found, "stream": f"/console/v1/{application}?stats=true"}
    values |= {"server": None, "charts": [], "applications": [], "following": None, "nodes": None}
    return PageAnswer("overview.html", {**values, "worst": [one for one in found["queues"] if one["depth"]]})


def of_server(visit: Visit) -> PageAnswer:
    """The server, an hour of rates, and its applications."""
    answer = visit.ask(stats="true", history=_HOUR, sort="depth", limit=_APPLICATIONS, offset=visit.query.get("offset"))
    found = answer.content
    fields, samples = found["history"]["fields"], found["history"]["samples"]
    visit.in_shell("queuey", "application", "ls")
    values: dict[str, Any] = {"application": None, "figures": found, "stream": "/console/v1?stats=true"}
    values |= {
        "server": found["server"],
        "nodes": found["nodes"],
        "worst": [one for one in found["queues"][:_WORST] if one["depth"]],
        "charts": [_chart(name, [sample[fields.index(name)] for sample in samples]) for name in CHARTS],
        "applications": found["applications"],
    }
    return PageAnswer("overview.html", {**values, "following": answer.following})


def _chart(name: str, values: Sequence[float]) -> dict[str, Any]:
    most = max(values, default=0.0)
    return {"name": name, "most": most, "newest": values[-1] if values else 0.0, "points": points(values)}


def points(values: Sequence[float]) -> str:
    """The corners of a line through values, in a box of :data:`CHART_POINTS` by 100.

    Several neighbours are one point, the greatest of them, so that no peak is lost. The newest stands at the right.

    >>> points([0, 5, 10])
    '237,100 238,50 239,0'
    """
    step = -(-len(values) // CHART_POINTS) or 1
    kept = [max(values[max(end - step, 0) : end]) for end in range(len(values), 0, -step)][::-1]
    most = max(kept, default=0) or 1
    first = CHART_POINTS - len(kept)
    return " ".join(f"{first + place},{100 - 100 * value / most:.0f}" for place, value in enumerate(kept))


PAGES = (
    ConsolePage("/console/overview", of_server),
    ConsolePage("/console/overview/{application}", of_application),
)
