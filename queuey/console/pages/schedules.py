"""What is sent later: messages that are not due yet, and schedules with their next times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import orjson

from queuey.console.pages.messages import fetch, one_place, rows_of, with_bodies
from queuey.console.pages.page import ConsolePage, PageAnswer, address, goes_to
from queuey.console.pages.sending import new_once, once_of, send_again
from queuey.console.pages.told import told
from queuey.console.visits import Visit
from queuey.errors import KeyReused, NotFound, QueueNotFound, QueueyError
from queuey.http.exchange import BATCH_JSON, JSON
from queuey.model.schedules import (
    ALARMS,
    OCCURRENCE_HEADER,
    REMOVED,
    SCHEDULE_HEADER,
    SCHEDULE_LIFE_SECONDS,
    SCHEDULES,
    TASK_HEADER,
    copy_place,
    kept_schedules,
    pause_place,
)
from queuey.security.claims import unix_now

__all__ = ["PAGES"]

ROWS = 50
"""Messages on a page."""
MOST_SCHEDULES = 100
"""Schedules on a page, and alarms that are looked at for their next times."""
MOST_QUEUES = 100
"""Queues in use that are looked at for scheduled messages."""
_MESSAGE = ("body", "encoding", "content_type", "key", "headers")
"""What of a message stays when it is sent again."""


# Messages of one queue that are not due yet


def due(visit: Visit, application: str, queue: str) -> PageAnswer:
    """Messages that no reader sees yet, by the moment at which they are due."""
    at = visit.moment(visit.query.get("at"))
    listed = visit.ask(application, queue, scheduled="true", offset=at or visit.query.get("offset"), limit=ROWS)
    rows = rows_of(with_bodies(visit, application, queue, listed.content["messages"]))
    visit.in_shell_of(application, "queuey", "put", queue, "hello", "--delay", "10m")
    visit.in_shell_of(application, "queuey", "rm", queue, "PARTITION:ID")
    values = {"application": application, "queue": queue, "rows": rows, "at": at, "following": listed.following}
    return PageAnswer("scheduled.html", {**values, "told": told(visit)})


def cancel(visit: Visit, application: str, queue: str) -> PageAnswer:
    """Delete a message that is not due yet."""
    visit.change("DELETE", [application, queue, _place(visit)])
    return goes_to("a", application, queue, "scheduled", told="deleted")


def run_now(visit: Visit, application: str, queue: str) -> PageAnswer:
    """Store a message that is due now in the place of one that is not due yet."""
    place = _place(visit)
    message = fetch(visit, application, queue, place)
    begins = f"{message['partition']}:{message['message_id']}"
    listed = visit.ask(application, queue, scheduled="true", offset=begins, limit=1).content["messages"]
    if not listed or f"{listed[0]['partition']}:{listed[0]['message_id']}" != begins:
        raise NotFound("This message is due already: readers and receivers get it.")
    entry = {name: message[name] for name in _MESSAGE if name in message}
    entry["ttl"] = max(round(float(listed[0]["expires"]) - float(message["timestamp"])), 1)
    if "key" not in entry:
        entry["partition"] = message["partition"]
    return send_again(visit, application, queue, entry, f"now {begins}", (queue, begins))


def _place(visit: Visit) -> str:
    """The message of the form, by partition and id."""
    return one_place(visit.form.get("place", ""))


# Schedules of an application


def show(visit: Visit, application: str) -> PageAnswer:
    """Schedules with their next times, and queues that have messages for later."""
    found = _schedules(visit, application)
    moments, are_all = _moments(visit, application) if found else ({}, True)
    rows = [
        {**one, "place": place, "next": moments.get((str(one.get("name")), str(one.get("revision"))))}
        for place, one in found.items()
    ]
    in_use = visit.may(application, stats="true", sort="depth", limit=MOST_QUEUES)
    queues = [] if in_use is None else [one for one in in_use.content["queues"] if one["scheduled"]]
    visit.in_shell_of(application, "queuey", "schedule", "ls")
    for action in ("pause", "resume", "rm"):
        visit.in_shell_of(application, "queuey", "schedule", action, "NAME")
    values: dict[str, Any] = {"application": application, "rows": sorted(rows, key=lambda row: str(row.get("name")))}
    values |= {"queues": queues, "most": MOST_SCHEDULES, "told": told(visit), "once": new_once()}
    values["all_alarms"] = are_all
    return PageAnswer("schedules.html", values)


def _schedules(visit: Visit, application: str) -> Mapping[str, Mapping[str, Any]]:
    """Schedules by their places, each with ``paused``."""
    try:
        found = visit.ask(application, SCHEDULES, limit=MOST_SCHEDULES, partitions="all").content["messages"]
    except QueueNotFound:  # it is made with the first one
        return {}
    return _kept(found)


def _kept(found: Sequence[Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
    kept = kept_schedules({f"{one['partition']}:{one['message_id']}": _object_in(one) for one in found})
    return {place: {**one, "paused": _is_on(one["pause"])} for place, one in kept.items()}


def _is_on(pause: object) -> bool:
    """Whether a pause has not ended."""
    return isinstance(pause, Mapping) and pause.get("until", 0) is None


def _moments(visit: Visit, application: str) -> tuple[Mapping[tuple[str, str], float], bool]:
    """When the next alarm of each schedule is, by its name and revision, and whether all alarms were looked at."""
    try:
        answer = visit.ask(application, ALARMS, scheduled="true", limit=MOST_SCHEDULES)
    except QueueNotFound:
        return {}, True
    listed = answer.content["messages"]
    found: dict[tuple[str, str], float] = {}
    for entry in with_bodies(visit, application, ALARMS, listed):
        alarm = _object_in(entry)
        schedule, moment = alarm.get("schedule"), alarm.get("moment")
        if isinstance(schedule, dict) and isinstance(moment, int):
            key = str(schedule.get("name")), str(schedule.get("revision"))
            found[key] = min(found.get(key, moment), moment)
    return found, answer.following is None


def pause(visit: Visit, application: str) -> PageAnswer:
    """Pause a schedule, or let it go on."""
    place = _place(visit)
    _schedule_at(visit, application, place)
    now = int(unix_now(visit.service.clock))
    changed = orjson.dumps({"until": None if visit.form.get("pause") == "true" else now, "written": now})
    given = {"content-type": JSON, "x-ttl": str(SCHEDULE_LIFE_SECONDS)}
    visit.change("PUT", [application, SCHEDULES, pause_place(place)], body=changed, headers=given)
    return _back(application, "changed")


def send_now(visit: Visit, application: str) -> PageAnswer:
    """Send an occurrence now, besides those that are due."""
    schedule = _schedule_at(visit, application, _place(visit))
    headers = {SCHEDULE_HEADER: schedule["name"], OCCURRENCE_HEADER: str(int(unix_now(visit.service.clock)))}
    entry: dict[str, Any] = {"body": schedule["body"], "headers": headers}
    if schedule.get("task") is not None:
        headers[TASK_HEADER] = schedule["task"]
        entry["content_type"] = JSON
    document = {"messages": [{**entry, **once_of(visit, schedule["name"])}]}
    path = [application, str(schedule["queue"])]
    with suppress(KeyReused):  # a second click, in another second: the first one has sent it
        visit.change("POST", path, document=document, headers={"content-type": BATCH_JSON})
    return _back(application, "sent")


def remove(visit: Visit, application: str) -> PageAnswer:
    """Remove a schedule."""
    place = _place(visit)
    _schedule_at(visit, application, place)
    given = {"content-type": JSON, "x-ttl": str(SCHEDULE_LIFE_SECONDS)}
    visit.change("PUT", [application, SCHEDULES, place], body=REMOVED, headers=given)
    said = "deleted"
    try:
        visit.change("DELETE", [application, SCHEDULES, f"{pause_place(place)},{copy_place(place)}"])
    except QueueyError:
        said = "deleted-beside"
    return _back(application, said)


def _schedule_at(visit: Visit, application: str, place: str) -> Mapping[str, Any]:
    """:raises NotFound: there is no schedule."""
    found = visit.ask(application, SCHEDULES, f"{place},{copy_place(place)}").content["messages"]
    schedule = _kept(found).get(place, {})
    if not all(isinstance(schedule.get(name), str) for name in ("name", "queue", "body")):
        raise NotFound("This is no schedule.")
    return schedule


def _object_in(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """The JSON object in a message; an empty one for anything else."""
    try:
        found = orjson.loads(entry.get("body", ""))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _back(application: str, said: str) -> PageAnswer:
    return PageAnswer(status=303, location=address("schedules", application, told=said))


_QUEUE, _SCHEDULES = "/console/a/{application}/{queue}/scheduled", "/console/schedules/{application}"
PAGES: Sequence[ConsolePage] = (
    ConsolePage(_QUEUE, due),
    ConsolePage(f"{_QUEUE}/cancel", cancel, "POST"),
    ConsolePage(f"{_QUEUE}/now", run_now, "POST"),
    ConsolePage(_SCHEDULES, show),
    ConsolePage(f"{_SCHEDULES}/pause", pause, "POST"),
    ConsolePage(f"{_SCHEDULES}/now", send_now, "POST"),
    ConsolePage(f"{_SCHEDULES}/remove", remove, "POST"),
)
