"""The pages of the console, one module for each thing that people look at."""

from __future__ import annotations

from queuey.console.pages import (
    access,
    dead,
    groups,
    home,
    mending,
    messages,
    overview,
    queue,
    queues,
    releases,
    schedules,
    sending,
    signing_in,
    tail,
    workers,
)
from queuey.console.pages.page import ConsolePage

__all__ = ["PAGES"]

PAGES: tuple[ConsolePage, ...] = (
    *home.PAGES,
    *signing_in.PAGES,
    *overview.PAGES,
    *queues.PAGES,
    *sending.PAGES,
    *messages.PAGES,
    *groups.PAGES,
    *releases.PAGES,
    *dead.PAGES,
    *mending.PAGES,
    *tail.PAGES,
    *schedules.PAGES,
    *workers.PAGES,
    *access.PAGES,
    *queue.PAGES,
)
