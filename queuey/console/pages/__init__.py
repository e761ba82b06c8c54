"""The pages of the console, one module for each thing that people look at."""

from __future__ import annotations

from queuey.console.pages import access, dead, groups, home, messages, overview, queue, queues, sending, tail
from queuey.console.pages.page import ConsolePage

__all__ = ["PAGES"]

PAGES: tuple[ConsolePage, ...] = (
    *home.PAGES,
    *overview.PAGES,
    *queues.PAGES,
    *sending.PAGES,
    *messages.PAGES,
    *groups.PAGES,
    *dead.PAGES,
    *tail.PAGES,
    *access.PAGES,
    *queue.PAGES,
)
