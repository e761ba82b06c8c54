"""The queues of an application: a page of them at a time, by the beginning of their names."""

from __future__ import annotations

from typing import Any

from queuey.console.pages.page import ConsolePage, PageAnswer, goes_to
from queuey.console.pages.told import told
from queuey.console.visits import FORM, Visit

__all__ = ["PAGES", "QUEUE_FIELDS"]

ROWS = 25
"""Queues on a page, each with its numbers."""
QUEUE_FIELDS = ("partitions", "type", "consistency", "retention", "principles")
"""Fields of the forms that make and change a queue."""


def show(visit: Visit, application: str) -> PageAnswer:
    """A page of queues with their numbers; of a visitor that is only named by queues, the names alone."""
    prefix, start = visit.query.get("prefix", "").strip(), visit.query.get("offset")
    found = visit.may(application, stats="true", prefix=prefix or None, offset=start, limit=ROWS)
    owns = found is not None
    if found is None:
        found = visit.ask(application, mine="true", details="true", offset=start or prefix or None, limit=ROWS)
    queues = [entry for entry in found.content["queues"] if entry["queue_name"].startswith(prefix)]
    visit.in_shell("queuey", "queue", "ls", prefix)
    values: dict[str, Any] = {"application": application, "prefix": prefix, "start": start, "owns": owns}
    values["queues"] = queues
    values |= {"stats": found.content, "following": found.following, "told": told(visit)}
    return PageAnswer("queues.html", values)


def form(visit: Visit, application: str) -> PageAnswer:
    """The form for a new queue."""
    visit.in_shell("queuey", "queue", "add", "NAME", "--partitions", "4")
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
