"""What a kind of task has to offer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from queuey.ids import TICKS_PER_SECOND
from queuey.model import Queue
from queuey.model.tasks import StoredTask

__all__ = ["MOST_OPEN", "Stepped", "TaskKind", "seconds_until"]

MOST_OPEN = 10_000
"""Tasks of all applications that run at once."""
_ROUNDED_SECONDS = 0.001


class Stepped(NamedTuple):
    """What a step of a task has done."""

    task: StoredTask
    """With its new place, counts and state; it counts once it is stored."""
    rest_seconds: float = 0.0
    """How long the next step waits."""


def seconds_until(not_before: int, rate: float, now: int) -> float:
    """How long a task waits to keep its rate; 0 or less if it goes on.

    A longer time than its rate asks for is that of a wall clock that was set back: then it goes on.

    :param not_before: when it may go on, in ticks.
    :param rate: messages a second, of which one step has one second's, or one.

    >>> seconds_until(25_000_000, 0.5, 5_000_000), seconds_until(36_000_000_000, 0.5, 5_000_000)
    (2.0, 0.0)
    """
    seconds = (not_before - now) / TICKS_PER_SECOND
    return seconds if not rate or seconds <= max(1 / rate, 1.0) + _ROUNDED_SECONDS else 0.0


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
