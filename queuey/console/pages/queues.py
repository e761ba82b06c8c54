"""The queues of an application: a page of them at a time, by the beginning of their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from queuey.console.pages.page import ConsolePage, PageAnswer, goes_to
from queuey.console.pages.sending import digest_of, new_once
from queuey.console.pages.told import told
from queuey.console.visits import FORM, Visit
from queuey.errors import QueueExists
from queuey.security.claims import unix_now

__all__ = ["PAGES", "QUEUE_FIELDS", "fields_of"]

ROWS = 25
"""Queues on a page, each with its numbers."""
ORDERS = (
    ("name", "name"),
    ("depth", "most messages first"),
    ("age", "oldest message first"),
    ("rate", "most appends first"),
)
"""Orders of the list, and what the page calls them. Only by name there are all queues."""
QUEUE_FIELDS = ("partitions", "type", "consistency", "retention", "principles")
"""Fields of the forms that make and change a queue."""
_DEFAULTS = {"partitions": "1", "type": "user", "consistency": "strong", "retention": "ttl", "principles": ""}
_DRAWN_CHARACTERS = 32
"""Of a name that the form draws."""


def show(visit: Visit, application: str) -> PageAnswer:
    """A page of queues with their numbers.

    Of a visitor that queues name, these queues; of one that may list nothing, a form for a queue's name.
    """
    prefix, start = visit.query.get("prefix", "").strip(), visit.query.get("offset")
    named = visit.query.get("queue", "").strip()
    if named:
        return goes_to("a", application, named)
    order = visit.query.get("sort", "name")
    found = visit.may(
        application,
        stats="true",
        prefix=prefix or None,
        offset=start,
        sort=order if order != "name" else None,
        limit=ROWS,
    )
    owns = found is not None
    if found is None:
        found = visit.may(application, mine="true", details="true", offset=start or prefix or None, limit=ROWS)
    listed = [] if found is None else found.content["queues"]
    queues = [entry for entry in listed if entry["queue_name"].startswith(prefix)]
    visit.in_shell_of(application, "queuey", "queue", "ls", prefix)
    values: dict[str, Any] = {"application": application, "prefix": prefix, "start": start, "owns": owns}
    values |= {"queues": queues, "order": order, "orders": ORDERS}
    values |= {"lists": found is not None, "complete": not owns or found is None or found.content["complete"]}
    following = None if found is None else found.following
    if following and prefix and not owns:  # that list knows no prefix
        following = f"{urlencode({'prefix': prefix})}&{following}" if len(queues) == len(listed) else None
    values |= {"following": following, "told": told(visit)}
    return PageAnswer("queues.html", values)


def form(visit: Visit, application: str) -> PageAnswer:
    """The form for a new queue."""
    visit.in_shell_of(application, "queuey", "queue", "add", "NAME", "--partitions", "4")
    values: dict[str, Any] = {"application": application, "once": new_once(), "given": _DEFAULTS, "stored": _DEFAULTS}
    return PageAnswer("queue_new.html", {**values, "least": 1, "shown": f"{unix_now(visit.service.clock):.3f}"})


def create(visit: Visit, application: str) -> PageAnswer:
    """Make a queue; one of this name is left as it is.

    A second click finds the queue that the first one has made. One without a name has its name from the form.
    """
    given = {name: visit.form[name] for name in ("queue_name", *QUEUE_FIELDS) if name in visit.form}
    digest = digest_of(visit, given)
    if digest is not None:
        given = {"queue_name": digest[:_DRAWN_CHARACTERS], **given}
    try:
        made = visit.change("POST", [application], form=given, headers={"if-none-match": "*", "content-type": FORM})
    except QueueExists:
        if not _has_made(visit, application, given):
            raise
        return goes_to("a", application, given["queue_name"], told="created")
    return goes_to("a", application, made.content["queue_name"], told="created")


def _has_made(visit: Visit, application: str, given: Mapping[str, str]) -> bool:
    """Whether a queue is what the form asks for, and was made since the form was shown."""
    if "shown" not in visit.form:
        return False
    shown = visit.number("shown", "the moment at which the form was shown")
    found = visit.may(application, given["queue_name"], info="true")
    if found is None or found.content["created"] < shown:
        return False
    stored = fields_of(found.content)
    return all(_alike(stored[name], text) for name, text in given.items() if name != "queue_name")


def _alike(*texts: str) -> bool:
    """Whether they are the same value: v1 keeps hosts of principals in small letters, and no blanks between them."""
    return len({tuple(part.strip().lower() for part in text.split(",")) for text in texts}) == 1


def fields_of(information: Mapping[str, Any]) -> Mapping[str, str]:
    """The settings of a queue, as the fields of a form have them."""
    found = {name: information[name] for name in QUEUE_FIELDS}
    return {name: ", ".join(one) if isinstance(one, list) else str(one) for name, one in found.items()}


PAGES = (
    ConsolePage("/console/a/{application}", show),
    ConsolePage("/console/new/{application}", form),
    ConsolePage("/console/new/{application}", create, "POST"),
)
