"""Groups of a queue: offsets with their lag, and lease groups with what they hold; resets with a preview."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from queuey.console.pages.page import ConsolePage, PageAnswer, goes_to
from queuey.console.pages.told import told
from queuey.console.visits import Visit
from queuey.security.claims import unix_now

__all__ = ["PAGES", "lag_of", "oldest_of", "pause_of"]

MOST_COUNTED = 10_000
"""Messages of a partition that a lag counts; more are shown as 10,000+."""
LAG_PARTITIONS = 20
"""Partitions whose lag a page counts."""
HELD_ROWS = 100
"""Held messages on a page."""


def offsets(visit: Visit, application: str, queue: str, group: str) -> PageAnswer:
    """Where a group is in each partition, and how far that is from the end."""
    found = visit.ask(application, queue, "offsets", group).content["offsets"]
    rows = [
        {**entry, "lag": _lag(visit, application, queue, entry) if number < LAG_PARTITIONS else None}
        for number, entry in enumerate(found)
    ]
    visit.in_shell_of(application, "qdo", "offsets", "show", "--queue", queue, "--group", group, "--offsets", "queuey")
    visit.in_shell_of(application, "queuey", "group", "rm", queue, group)
    values = {"application": application, "queue": queue, "group": group, "rows": rows, "most": MOST_COUNTED}
    return PageAnswer("offsets.html", {**values, "told": told(visit)})


def _lag(visit: Visit, application: str, queue: str, entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
    survey = visit.may(application, queue, survey="true", cursor=entry["cursor"], count=MOST_COUNTED)
    if survey is None:
        return None
    visit.asked.pop()
    spans = survey.content["spans"]
    return spans[0] if spans else None


def lag_of(visit: Visit, application: str, queue: str, group: str) -> Mapping[str, Any] | None:
    """How far a group is behind in all partitions together; None if these are too many to count."""
    found = visit.ask(application, queue, "offsets", group).content["offsets"]
    if len(found) > LAG_PARTITIONS:
        return None
    lags = [_lag(visit, application, queue, entry) for entry in found]
    known = [one for one in lags if one is not None]
    if len(known) < len(lags):
        return None
    return {"messages": sum(one["messages"] for one in known), "more": any(one["more"] for one in known)}


def pause_of(visit: Visit, settings: Mapping[str, Any]) -> float | None:
    """Until when a lease group is paused; None if it is not, or no longer."""
    until = settings["paused_until"]
    return until if until and until > unix_now(visit.service.clock) else None


def _other_state(paused: float | None) -> tuple[str, ...]:
    """The options that end a pause, or begin one."""
    return ("--resume",) if paused else ("--pause-until", "2100-01-01T00:00:00Z")


def leases(visit: Visit, application: str, queue: str, group: str) -> PageAnswer:
    """Settings of a lease group, its partitions, and the messages that it holds."""
    found = visit.ask(application, queue, "leases", group).content
    held = visit.may(application, queue, "leases", group, leased="true", limit=HELD_ROWS)
    paused = pause_of(visit, found["settings"])
    visit.in_shell_of(application, "queuey", "lease", "info", queue, group)
    visit.in_shell_of(application, "queuey", "lease", "set", queue, group, *_other_state(paused))
    visit.in_shell_of(application, "queuey", "lease", "rm", queue, group)
    values: dict[str, Any] = {
        "application": application,
        "queue": queue,
        "group": group,
        "settings": found["settings"],
        "paused": paused,
        "ends": paused is not None and paused < FAR,
        "partitions": found["partitions"],
        "oldest": oldest_of(found["partitions"]),
        "held": [] if held is None else held.content["leases"],
        "more_held": held is not None and held.following is not None,
    }
    return PageAnswer("leases.html", {**values, "told": told(visit)})


def oldest_of(partitions: Sequence[Mapping[str, Any]]) -> str | None:
    """When the oldest message is from that a lease group has not settled; None if it has settled all."""
    return min((one["oldest_timestamp"] for one in partitions if one["oldest_timestamp"]), key=float, default=None)


def preview_offsets(visit: Visit, application: str, queue: str, group: str) -> PageAnswer:
    """What a reset of offsets would change; nothing is changed."""
    to = _wanted(visit)
    found = visit.preview("PUT", [application, queue, "offsets", group], {"reset": True, "to": to})
    visit.in_shell_of(application, "qdo", "offsets", "set", queue, "--group", group, "--offsets", "queuey", "--to", to)
    return _shown(
        visit, "offsets", {"application": application, "queue": queue, "group": group, "to": to}, found.content
    )


def reset_offsets(visit: Visit, application: str, queue: str, group: str) -> PageAnswer:
    """Set the offsets of all partitions."""
    visit.change("PUT", [application, queue, "offsets", group], document={"reset": True, "to": _wanted(visit)})
    return goes_to("a", application, queue, "g", group, told="reset")


def preview_leases(visit: Visit, application: str, queue: str, group: str) -> PageAnswer:
    """What a reset of a lease group would let go; nothing is changed."""
    to = _wanted(visit)
    found = visit.preview("POST", [application, queue, "leases", group, "reset"], {"to": to})
    visit.in_shell_of(application, "queuey", "lease", "reset", queue, group, "--to", to)
    return _shown(
        visit, "leases", {"application": application, "queue": queue, "group": group, "to": to}, found.content
    )


def reset_leases(visit: Visit, application: str, queue: str, group: str) -> PageAnswer:
    """Let the group begin anew at another place."""
    visit.change("POST", [application, queue, "leases", group, "reset"], document={"to": _wanted(visit)})
    return goes_to("a", application, queue, "l", group, told="reset")


def _wanted(visit: Visit) -> str:
    """Where the form wants the group: one of two words, or the time or the id beside them."""
    to = visit.form.get("to", "")
    return visit.moment(visit.form.get("at")) or "" if to in ("", "at") else to


def _shown(visit: Visit, kind: str, values: Mapping[str, Any], preview: Mapping[str, Any]) -> PageAnswer:
    return PageAnswer("group_reset.html", {**values, "kind": kind, "preview": preview})


def forget_offsets(visit: Visit, application: str, queue: str, group: str) -> PageAnswer:
    """Remove the group's offsets."""
    visit.change("DELETE", [application, queue, "offsets", group])
    return goes_to("a", application, queue, told="forgotten")


def forget_leases(visit: Visit, application: str, queue: str, group: str) -> PageAnswer:
    """Remove the lease group."""
    visit.change("DELETE", [application, queue, "leases", group])
    return goes_to("a", application, queue, told="forgotten")


def resume(visit: Visit, application: str, queue: str, group: str) -> PageAnswer:
    """End a pause, or begin one without an end."""
    until = 0 if visit.form.get("pause", "") != "true" else FAR
    document = {"paused_until": until, "paused_reason": "paused in the console" if until else ""}
    visit.change("PUT", [application, queue, "leases", group], document=document)
    return goes_to("a", application, queue, "l", group, told="changed")


FAR = 32_503_680_000
"""The year 3000 in seconds since 1970, as a breaker's pause."""

_QUEUE = "/console/a/{application}/{queue}"
PAGES = (
    ConsolePage(f"{_QUEUE}/g/{{group}}", offsets),
    ConsolePage(f"{_QUEUE}/g/{{group}}/preview", preview_offsets, "POST"),
    ConsolePage(f"{_QUEUE}/g/{{group}}/reset", reset_offsets, "POST"),
    ConsolePage(f"{_QUEUE}/g/{{group}}/forget", forget_offsets, "POST"),
    ConsolePage(f"{_QUEUE}/l/{{group}}", leases),
    ConsolePage(f"{_QUEUE}/l/{{group}}/preview", preview_leases, "POST"),
    ConsolePage(f"{_QUEUE}/l/{{group}}/reset", reset_leases, "POST"),
    ConsolePage(f"{_QUEUE}/l/{{group}}/forget", forget_leases, "POST"),
    ConsolePage(f"{_QUEUE}/l/{{group}}/pause", resume, "POST"),
)
