"""Keys by their labels, what a principal may do, and the settings of the server."""

from __future__ import annotations

from queuey.console.pages.page import ConsolePage, PageAnswer
from queuey.console.visits import Visit

__all__ = ["PAGES"]

REQUESTS = 50
"""Refused requests, and slow ones, on a page."""


def show(visit: Visit, application: str) -> PageAnswer:
    """The keys of an application, and what a principal may do with one of its queues."""
    keys = visit.ask(application, keys="true").content["keys"]
    queue, principal = visit.query.get("queue", "").strip(), visit.query.get("principal", "").strip()
    rights = visit.ask(application, queue, rights=principal).content["rights"] if queue and principal else None
    visit.in_shell("queuey", "key", "ls", application)
    visit.in_shell("queuey", "key", "new", application)
    values = {"application": application, "keys": keys, "queue": queue, "principal": principal, "rights": rights}
    return PageAnswer("access.html", values)


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
