"""What a kind of task has to offer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from queuey.model import Queue
from queuey.model.tasks import StoredTask

__all__ = ["MOST_OPEN", "Stepped", "TaskKind"]

MOST_OPEN = 10_000
"""Tasks of all applications that run at once."""


class Stepped(NamedTuple):
    """What a step of a task has done."""

    task: StoredTask
    """With its new place, counts and state; it counts once it is stored."""
    rest_seconds: float = 0.0
    """How long the next step waits."""


class TaskKind(ABC):
    """Carries out the steps of one kind of task.

    A server may die in a step, or lose the task to another server. Then the step before is repeated from the stored
    place. So a step does first what its place says, in a way that may be repeated, and then gives the next place.
    """

    @abstractmethod
    async def step(self, task: StoredTask, queue: Queue) -> Stepped:
        """Do some of the work, in about a quarter of a second at most."""

    @abstractmethod
    async def abandon(self, task: StoredTask) -> None:
        """Leave nothing behind outside of the task's queue, which was removed. May be repeated."""

    @abstractmethod
    async def end(self, task: StoredTask, queue: Queue) -> StoredTask:
        """Bring what is under way to an end: the task is cancelled, or failed. May be repeated."""
