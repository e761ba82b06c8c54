"""Keys by their labels, what a principal may do, and the settings of the server."""

from __future__ import annotations

from queuey.console.pages.page import ConsolePage, PageAnswer
from queuey.console.visits import Visit

__all__ = ["PAGES"]


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
    """The settings of the server, for its operators."""
    listed = visit.ask(settings="true").content["settings"]
    visit.in_shell("queuey", "config", "show")
    server = visit.ask(stats="true", limit=1).content["server"]
    return PageAnswer("server.html", {"settings": listed, "server": server})


PAGES = (
    ConsolePage("/console/access/{application}", show),
    ConsolePage("/console/server", settings),
)
