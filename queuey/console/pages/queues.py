"""The queues of an application: a page of them at a time, by the beginning of their names."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from queuey.console.pages.page import ConsolePage, PageAnswer, goes_to
from queuey.console.pages.told import told
from queuey.console.visits import FORM, Visit

__all__ = ["PAGES", "QUEUE_FIELDS"]

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
    return PageAnswer("queue_new.html", {"application": application})


def create(visit: Visit, application: str) -> PageAnswer:
    """Make a queue; one of this name is left as it is."""
    given = {name: visit.form[name] for name in ("queue_name", *QUEUE_FIELDS) if name in visit.form}
    made = visit.change("POST", [application], form=given, headers={"if-none-match": "*", "content-type": FORM})
    return goes_to("a", application, made.content["queue_name"], told="created")


PAGES = (
    ConsolePage("/console/a/{application}", show),
    ConsolePage("/console/new/{application}", form),
    ConsolePage("/console/new/{application}", create, "POST"),
)
