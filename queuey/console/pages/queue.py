"""One queue: its numbers, its groups and tasks; changing, emptying and deleting it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from queuey.console.pages.groups import lag_of, oldest_of, pause_of
from queuey.console.pages.page import ConsolePage, PageAnswer, goes_to
from queuey.console.pages.queues import QUEUE_FIELDS, fields_of
from queuey.console.pages.told import end_of, told
from queuey.console.visits import V1Answer, Visit
from queuey.errors import InvalidParameter, SettingsChanged

__all__ = ["PAGES"]

_GROUPS = 100
"""Groups of each kind on a page."""
_NUMBERS = ("held", "leased", "waiting", "dead")
"""Of a lease group, in all partitions together."""
_COUNTED_GROUPS = 20
"""Lease groups whose numbers a page shows: each is a call."""
_COUNTED_LAGS = 5
"""Groups with offsets whose lag a page counts: each is a call for each partition."""


def show(visit: Visit, application: str, queue: str) -> PageAnswer:
    """Partitions, settings, groups and tasks."""
    information = visit.may(application, queue, info="true")
    leases = visit.may(application, queue, "leases", limit=_GROUPS, offset=visit.query.get("leases"))
    offsets = visit.may(application, queue, "offsets", limit=_GROUPS, offset=visit.query.get("offsets"))
    if information is None and leases is None:
        visit.ask(application, queue, "leases")  # is refused, and says why
    tasks = visit.may(application, queue, "tasks", limit=_GROUPS)
    visit.in_shell_of(application, "queuey", "queue", "info", queue)
    visit.in_shell_of(application, "queuey", "lease", "ls", queue)
    running = [] if tasks is None else [task["name"] for task in tasks.content["tasks"] if task["state"] == "running"]
    for name in running:
        kind, _, group = name.partition(":")
        visit.in_shell_of(application, "queuey", kind, queue, group, "--cancel")
    values: dict[str, Any] = {
        "application": application,
        "queue": queue,
        "info": None if information is None else information.content,
        "lease_groups": None if leases is None else _held(visit, application, queue, leases.content["groups"]),
        "offset_groups": None if offsets is None else _behind(visit, application, queue, offsets.content["groups"]),
        "tasks": [] if tasks is None else tasks.content["tasks"],
    }
    values |= {"more_leases": _next_group(leases), "more_offsets": _next_group(offsets)}
    return PageAnswer("queue.html", {**values, "told": told(visit)})


def _next_group(listed: V1Answer | None) -> str | None:
    """The group with which the next page of a list begins; None if there is none."""
    return None if listed is None or listed.following is None else dict(parse_qsl(listed.following)).get("offset")


def _held(
    visit: Visit, application: str, queue: str, groups: Sequence[Mapping[str, Any]]
) -> Sequence[Mapping[str, Any]]:
    """Lease groups; the first ones with what they hold in all partitions."""
    rows: list[Mapping[str, Any]] = []
    for number, entry in enumerate(groups):
        found = visit.may(application, queue, "leases", entry["group"]) if number < _COUNTED_GROUPS else None
        if found is None:
            rows.append({"group": entry["group"], **dict.fromkeys(_NUMBERS), "oldest": None, "paused": None})
            continue
        partitions = found.content["partitions"]
        sums = {name: sum(one[name] for one in partitions) for name in ("held", "leased", "dead")}
        sums["waiting"] = sums["held"] - sums["leased"]
        paused = pause_of(visit, found.content["settings"])
        rows.append({"group": entry["group"], **sums, "oldest": oldest_of(partitions), "paused": paused})
    return rows


def _behind(
    visit: Visit, application: str, queue: str, groups: Sequence[Mapping[str, Any]]
) -> Sequence[Mapping[str, Any]]:
    """Groups with offsets; the first ones with their lag."""
    names = [entry["group"] for entry in groups]
    return [
        {"group": name, "lag": lag_of(visit, application, queue, name) if number < _COUNTED_LAGS else None}
        for number, name in enumerate(names)
    ]


def edit(visit: Visit, application: str, queue: str) -> PageAnswer:
    """The form of its settings."""
    return _form(visit, application, queue)


def change(visit: Visit, application: str, queue: str) -> PageAnswer:
    """Change what the form has; an empty list of principals removes them.

    If somebody has changed the settings since the form was shown, it is shown again, with what was typed and what is stored.
    """
    given = {"principles": "", **{name: visit.form[name] for name in QUEUE_FIELDS if name in visit.form}}
    headers = {"if-match": visit.form["tag"]} if "tag" in visit.form else {}
    try:
        visit.change("PUT", [application, queue], form=given, headers=headers)
    except SettingsChanged:
        return _form(visit, application, queue, given)
    return goes_to("a", application, queue, told="changed")


def _form(visit: Visit, application: str, queue: str, typed: Mapping[str, str] | None = None) -> PageAnswer:
    """The form of what is stored.

    :param typed: what was typed before the settings had changed; None shows the form for the first time.
    """
    answer = visit.ask(application, queue, info="true")
    visit.in_shell_of(application, "queuey", "queue", "edit", queue, "--partitions", "4")
    stored = fields_of(answer.content)
    least = stored["partitions"]
    given = {**stored, **(typed or {})}
    given["partitions"] = max(given["partitions"], least, key=int)  # a queue cannot have fewer than it has
    values: dict[str, Any] = {"application": application, "queue": queue, "tag": answer.headers["etag"]}
    values |= {"stored": stored, "given": given, "least": least, "is_late": typed is not None}
    return PageAnswer("queue_edit.html", values, status=200 if typed is None else 412)


def confirm(visit: Visit, application: str, queue: str, action: str) -> PageAnswer:
    """What a purge or a deletion would take away."""
    information = visit.ask(application, queue, info="true").content
    visit.in_shell_of(application, *(("queuey", "purge") if action == "purge" else ("queuey", "queue", "rm")), queue)
    values = {"application": application, "queue": queue, "info": information, "action": action}
    return PageAnswer("queue_confirm.html", values)


def purge(visit: Visit, application: str, queue: str) -> PageAnswer:
    """Remove all messages."""
    _check_name(visit, queue)
    visit.change("DELETE", [application, queue, "messages"])
    return goes_to("a", application, queue, told="purging")


def delete(visit: Visit, application: str, queue: str) -> PageAnswer:
    """Delete the queue."""
    _check_name(visit, queue)
    visit.change("DELETE", [application, queue])
    return goes_to("a", application, told="deleted")


def cancel(visit: Visit, application: str, queue: str) -> PageAnswer:
    """Let a task stop."""
    left = visit.change("DELETE", [application, queue, "tasks", visit.form.get("task", "-")])
    return goes_to("a", application, queue, told=end_of(left.content["task"]))


def _check_name(visit: Visit, queue: str) -> None:
    """:raises InvalidParameter: the form does not repeat the queue's name."""
    if visit.form.get("name", "").strip() != queue:
        raise InvalidParameter(problems={"name": f"must be {queue}, to confirm; nothing was changed"})


_QUEUE = "/console/a/{application}/{queue}"
PAGES = (
    ConsolePage(_QUEUE, show),
    ConsolePage(f"{_QUEUE}/edit", edit),
    ConsolePage(f"{_QUEUE}/edit", change, "POST"),
    ConsolePage(f"{_QUEUE}/confirm/{{action:purge|delete}}", confirm),
    ConsolePage(f"{_QUEUE}/confirm/purge", purge, "POST"),
    ConsolePage(f"{_QUEUE}/confirm/delete", delete, "POST"),
    ConsolePage(f"{_QUEUE}/cancel", cancel, "POST"),
)
