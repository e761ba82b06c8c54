"""Workers: what they report, which groups the queues in use have, and what moved in the last hour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import orjson

from queuey.console.pages.page import ConsolePage, PageAnswer
from queuey.console.visits import Visit
from queuey.errors import Forbidden, QueueNotFound
from queuey.model.worker_reports import REPORTS

__all__ = ["PAGES", "failure_of"]

MOST_REPORTS = 200
MOST_QUEUES = 20
"""Queues in use whose groups are looked at: each costs a call or some."""
MOST_GROUPS = 5
"""Lease groups of a queue whose receivers are looked at."""
MOST_HELD = 1000
"""Held messages that are counted by their receivers."""
_TEXTS = ("name", "group", "way", "host")
_NUMBERS = ("time", "started", "done", "failed", "dead", "per_second", "owned", "prefetched", "lag_seconds", "pid")


def show(visit: Visit, application: str) -> PageAnswer:
    """Workers by their groups, and receivers of lease groups."""
    reports = _reports(visit, application)
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for one in reports:
        groups.setdefault((one["group"], one["way"]), []).append(one)
    moves = [{"name": one["name"], **move} for one in reports for move in one["moves"]]
    visit.in_shell_of(application, "qdo", "status")
    visit.in_shell_of(application, "qdo", "work", "MODULE:FUNCTION", "--queue", "NAME", "--report")
    values: dict[str, Any] = {
        "application": application,
        "groups": [
            {"group": group, "way": way, "workers": workers} for (group, way), workers in sorted(groups.items())
        ],
        "moves": sorted(moves, key=lambda move: -move["time"]),
        "failures": [{"name": one["name"], **one["failure"]} for one in reports if one["failure"]],
        "receivers": _receivers(visit, application),
        "most_queues": MOST_QUEUES,
    }
    return PageAnswer("workers.html", values)


def _reports(visit: Visit, application: str) -> Sequence[Mapping[str, Any]]:
    """What workers reported within the last minute, by name. What is no report of a worker is left out."""
    try:
        found = visit.ask(application, REPORTS, limit=MOST_REPORTS).content["messages"]
    except QueueNotFound:  # it is made with the first report
        return []
    reports = [report for entry in found if (report := _report_in(entry)) is not None]
    return sorted(reports, key=lambda one: str(one["name"]))


def failure_of(visit: Visit, application: str, entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What a worker reports of its last failure, if that was with this message. None if no worker does."""
    try:
        reports = _reports(visit, application)
    except Forbidden:
        return None
    for one in reports:
        failure = one["failure"]
        if failure and (failure["message_id"], failure["partition"]) == (entry["message_id"], str(entry["partition"])):
            return {"name": one["name"], **failure}
    return None


def _report_in(entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """A report with members of the types that the page draws; None for anything else."""
    try:
        found = orjson.loads(entry.get("body", ""))
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    texts = {name: found.get(name) for name in _TEXTS}
    numbers = {name: found.get(name) for name in _NUMBERS}
    if not (all(isinstance(one, str) for one in texts.values()) and all(map(_is_number, numbers.values()))):
        return None
    queues = [one for one in _list(found.get("queues")) if isinstance(one, str)]
    moves = [
        dict(zip(("time", "before", "after"), one, strict=True))
        for one in _list(found.get("moves"))
        if isinstance(one, list) and len(one) == 3 and all(map(_is_number, one))
    ]
    return {**texts, **numbers, "queues": queues, "moves": moves, "failure": _failure_in(found.get("last_failure"))}


def _failure_in(found: Any) -> Mapping[str, Any] | None:
    if not isinstance(found, dict) or not _is_number(found.get("time")):
        return None
    texts = {name: str(found.get(name, "")) for name in ("queue", "partition", "message_id", "traceback")}
    return {**texts, "time": found["time"]}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _receivers(visit: Visit, application: str) -> Sequence[Mapping[str, Any]]:
    """The receivers that hold messages of the lease groups of queues in use, most first in each group."""
    found = visit.may(application, stats="true", sort="rate", limit=MOST_QUEUES)
    rows: list[Mapping[str, Any]] = []
    for queue in [] if found is None else [one["queue_name"] for one in found.content["queues"]]:
        with suppress(QueueNotFound):  # somebody has deleted it, at another server maybe
            rows += _receivers_of(visit, application, queue)
    return rows


def _receivers_of(visit: Visit, application: str, queue: str) -> Sequence[Mapping[str, Any]]:
    """The receivers of one queue."""
    rows: list[Mapping[str, Any]] = []
    listed = visit.may(application, queue, "leases", limit=MOST_GROUPS)
    for group in [] if listed is None else [one["group"] for one in listed.content["groups"]]:
        held = visit.may(application, queue, "leases", group, leased="true", limit=MOST_HELD)
        leased = [] if held is None else [one for one in held.content["leases"] if one["state"] == "leased"]
        rows += _by_receiver(queue, group, leased)
    return rows


def _by_receiver(queue: str, group: str, leased: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    holds: dict[str, list[Mapping[str, Any]]] = {}
    for one in leased:
        holds.setdefault(one["receiver"] or "", []).append(one)
    rows = [
        {
            "queue": queue,
            "group": group,
            "receiver": receiver,
            "leased": len(some),
            "failures": sum(one["failures"] for one in some),
            "until": max(one["visible_at"] for one in some),
        }
        for receiver, some in holds.items()
    ]
    return sorted(rows, key=lambda row: -row["leased"])


PAGES = (ConsolePage("/console/workers/{application}", show),)
