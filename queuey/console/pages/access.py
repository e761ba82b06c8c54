"""Keys by their labels, what a principal may do, and the settings of the server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from queuey.console.pages.page import ConsolePage, PageAnswer
from queuey.console.visits import Visit

__all__ = ["PAGES"]

MOST_PRINCIPALS = 20
"""Principals whose rights are shown together: each is a call."""
REQUESTS = 50
"""Refused requests, and slow ones, on a page."""


def show(visit: Visit, application: str) -> PageAnswer:
    """The keys of an application, and what principals may do with one of its queues.

    An operator also sees whose tokens the server accepts.
    """
    keys = visit.ask(application, keys="true").content["keys"]
    queue, principal = visit.query.get("queue", "").strip(), visit.query.get("principal", "").strip()
    asked = [principal] if principal else _concerned(visit, application, queue) if queue else []
    rights = {one: visit.ask(application, queue, rights=one).content["rights"] for one in asked if queue}
    settings = visit.ask(settings="true").content["settings"] if visit.is_operator else []
    visit.in_shell("queuey", "key", "ls", application)
    visit.in_shell("queuey", "key", "new", application)
    visit.in_shell("queuey", "token", "mint", "bid:ann@example.org", "--application", application)
    values: dict[str, Any] = {"application": application, "keys": keys, "queue": queue, "principal": principal}
    values |= {"rights": rights, "trusted": [one for one in settings if one["section"].startswith(_TRUSTED)]}
    return PageAnswer("access.html", values)


_TRUSTED = ("issuer:", "tokens")
"""Sections of the settings that say whose tokens are accepted."""


def _concerned(visit: Visit, application: str, queue: str) -> Sequence[str]:
    """Those whose rights on a queue differ: the application, the principals that the queue names, and strangers."""
    named = visit.ask(application, queue, info="true").content["principles"]
    return [f"app:{application}", *named[: MOST_PRINCIPALS - 2], "anyone"]


def settings(visit: Visit) -> PageAnswer:
    """The settings of the server, and the requests that did not go well, for its operators."""
    listed = visit.ask(settings="true").content["settings"]
    visit.in_shell("queuey", "config", "show")
    figures = visit.ask(stats="true", limit=1).content
    requests = visit.ask(requests="true", limit=REQUESTS).content
    values = {"settings": listed, "server": figures["server"], "servers": figures["servers"], "requests": requests}
    return PageAnswer("server.html", values)


PAGES = (
    ConsolePage("/console/access/{application}", show),
    ConsolePage("/console/server", settings),
)
