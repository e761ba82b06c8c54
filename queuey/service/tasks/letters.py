"""The letters of a dead-letter queue are moved by redrives or by a move task, and never by both at once.

A redrive notes letters in its row, then looks whether a move task of their queue is open, and only then moves them. A move
task is stored as open, and then looks whether redrives have noted letters. So at least one of them sees the other: the
redrive gives its letters back until the move task has ended, and the move task waits until it has done so.
"""

from __future__ import annotations

from queuey.model import Queue
from queuey.model.tasks import StoredTask
from queuey.service.tasks.kinds import MOST_OPEN
from queuey.storage import TaskStore

__all__ = ["MOVE", "NOTED", "REDRIVE", "are_noted", "moves_all"]

MOVE = "move"
"""The name of a move task: a dead-letter queue has one at a time."""
REDRIVE = "redrive"
"""Redrives have names that begin so."""
NOTED = "batch"
"""Where a redrive notes its next letters, in its place."""


async def moves_all(tasks: TaskStore, dead: Queue) -> bool:
    """Whether a move task of a dead-letter queue is open."""
    found = await tasks.find_task(dead.uuid, MOVE)
    return found is not None and found.is_open


async def are_noted(tasks: TaskStore, dead: Queue) -> bool:
    """Whether a redrive has noted letters of a queue: it may move them at any moment."""

    def has_noted(task: StoredTask) -> bool:
        is_from = task.kind == REDRIVE and (task.application, task.asked["from"]) == (dead.application, dead.name)
        return is_from and bool(task.place.get(NOTED))

    return any(map(has_noted, await tasks.open_tasks(MOST_OPEN)))
