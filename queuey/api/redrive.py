"""Redrive: dead letters of a lease group go back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from queuey.api.batches import json_object
from queuey.api.fields import check_nothing, check_query
from queuey.api.groups import group_of
from queuey.api.json_fields import JsonFields
from queuey.api.params import MAX_FILTER_TEXT, Problems, moment, queue_name
from queuey.api.tasks import task_answer
from queuey.errors import Conflict, LeaseGroupNotFound, QueueNotFound
from queuey.http.access import allowed
from queuey.http.exchange import Answer, Call, Target, json_answer
from queuey.ids import MessageId
from queuey.model import MAX_HEADERS, Queue
from queuey.security.permissions import Permission
from queuey.service import Service
from queuey.service.dead_letters import dead_letter_queue
from queuey.service.tasks import LetterFilter, redrive_name

__all__ = ["FILTER_MEMBERS", "MAX_RATE", "MIN_RATE", "REDRIVE_MEMBERS", "cancel", "redrive", "show"]

REDRIVE_MEMBERS = ("queue", "group_only", "rate", "filter", "preview")
FILTER_MEMBERS = ("reason", "key", "headers", "since", "until")
MIN_RATE, MAX_RATE = 0.01, 100_000
"""Letters a second."""


async def redrive(service: Service, call: Call, target: Target) -> Answer:
    """Begin to move dead letters back, and answer with the task that does it; or count what would be moved."""
    queue, group = target.queue, group_of(call)
    fields = JsonFields(json_object(call.body), REDRIVE_MEMBERS, Problems())
    check_query(call, REDRIVE_MEMBERS, fields.problems, "member of the body")
    asked = _asked(fields)
    preview = fields.flag("preview", default=False)
    fields.problems.check()
    found = await service.leases.find(queue, group)
    if found is None:
        raise LeaseGroupNotFound
    asked["from"] = found.settings.dead_letter_queue or dead_letter_queue(queue.name)
    dead = await _checked(service, call, queue, asked)
    if not preview:
        return task_answer(await service.tasks.redrive(queue, group, asked), 202)
    matching, looked, more = 0, 0, False
    if dead is not None:
        wanted = LetterFilter(queue.name, group, **asked["match"])
        matching, looked, more = await service.tasks.redrives.preview(dead, wanted)
    return json_answer({"status": "ok", "preview": True, "matching": matching, "looked": looked, "more": more})


def _asked(fields: JsonFields) -> dict[str, Any]:
    """What a redrive is to do, as its task keeps it."""
    asked: dict[str, Any] = {
        "group_only": fields.flag("group_only", default=False),
        "rate": fields.seconds("rate", 0.0, MIN_RATE, MAX_RATE) or 0.0,
    }
    if fields.raw("queue") is not None:
        name = fields.text("queue", "", most=80)
        asked["queue"] = fields.problems.take("queue", queue_name, name, "") if name else ""
        if asked["group_only"]:
            fields.wrong("group_only", "is for the queue of the group: leave out queue, or this")
    given = fields.raw("filter")
    asked["match"] = {} if given is None else _match(JsonFields(given, FILTER_MEMBERS, fields.problems, "filter."))
    asked["filter"] = given or {}
    return asked


def _match(fields: JsonFields) -> dict[str, Any]:
    """The fields of a filter by their names in :class:`LetterFilter`."""
    match: dict[str, Any] = {"headers": _headers(fields)}
    if "reason" in fields:
        match["reason"] = fields.text("reason", "", most=MAX_FILTER_TEXT)
    if "key" in fields:
        match["key"] = fields.text("key", "", most=MAX_FILTER_TEXT)
    for name in ("since", "until"):
        if name in fields:
            match[name] = _ticks(fields, name)
    return match


def _ticks(fields: JsonFields, name: str) -> int:
    text = fields.raw(name)
    if not isinstance(text, str):
        fields.wrong(name, "must be a text: decimal seconds since 1970, or the id of a dead letter")
        return 0
    nothing: MessageId | int = 0
    found = fields.problems.take(f"filter.{name}", moment, text, nothing)
    return found.ticks if isinstance(found, MessageId) else found


def _headers(fields: JsonFields) -> Mapping[str, str]:
    given = fields.raw("headers")
    if given is None:
        return {}
    names = [*given] if isinstance(given, dict) else []
    if not names or len(names) > MAX_HEADERS:
        fields.wrong("headers", f"must be an object of 1 to {MAX_HEADERS} names of headers and their values")
        return {}
    one = JsonFields(given, names, fields.problems, "filter.headers.")
    return {name.lower(): one.text(name, "", most=MAX_FILTER_TEXT, least=0) for name in names}


async def _checked(service: Service, call: Call, queue: Queue, asked: Mapping[str, Any]) -> Queue | None:
    """The dead-letter queue, None if there is none.

    :raises Forbidden: the caller may not receive from it, or not append where the letters go.
    :raises QueueNotFound: they are to go to a queue that does not exist.
    :raises Conflict: they are to go to where they are.
    """
    name = asked.get("queue", queue.name)
    await allowed(service, call.identity, Permission.APPEND, queue.application, name)
    if name == asked["from"]:
        raise Conflict(f"queue: {name} is the dead-letter queue itself")
    try:
        return await allowed(service, call.identity, Permission.RECEIVE, queue.application, asked["from"])
    except QueueNotFound:
        return None


async def show(service: Service, call: Call, target: Target) -> Answer:
    """The last redrive of a group."""
    return task_answer(await service.tasks.find(target.queue, redrive_name(group_of(call))))


async def cancel(service: Service, call: Call, target: Target) -> Answer:
    """Let the redrive of a group stop where it is."""
    check_nothing(call, "this cancels the redrive; what it has moved stays moved")
    return task_answer(await service.tasks.cancel(target.queue, redrive_name(group_of(call))))
