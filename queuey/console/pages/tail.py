"""New messages of a queue as they come."""

from __future__ import annotations

from queuey.console.pages.page import ConsolePage, PageAnswer
from queuey.console.visits import Visit

__all__ = ["PAGES"]


def show(visit: Visit, application: str, queue: str) -> PageAnswer:
    """The page that follows a queue; its script reads the stream of v1."""
    visit.ask(application, queue, limit=1, partitions="1")  # is it there, and readable
    visit.asked[:] = [f"/v1/{application}/{queue} (Accept: text/event-stream)"]
    visit.in_shell_of(application, "queuey", "get", queue, "--follow")
    stream = f"/console/v1/{application}/{queue}"
    return PageAnswer("tail.html", {"application": application, "queue": queue, "stream": stream})


PAGES = (ConsolePage("/console/a/{application}/{queue}/tail", show),)
