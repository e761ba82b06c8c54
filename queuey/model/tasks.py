"""Tasks: work on a queue that takes longer than a request, and survives the death of its server.

The states of a task::

    running ──────────────► done
       │ │ an error that stays
       │ └────────────────► failed
       │ cancelled
       └──► cancelling ───► cancelled

A task is a row that is changed by compare-and-set only. So any number of servers may try to run it, and each step counts
once.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any
from uuid import UUID

__all__ = ["StoredTask", "TaskState"]


class TaskState(StrEnum):
    """How far a task is."""

    RUNNING = "running"
    CANCELLING = "cancelling"
    """It does nothing new; a server ends what is under way."""
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


_OPEN = (TaskState.RUNNING, TaskState.CANCELLING)


@dataclass(frozen=True, slots=True)
class StoredTask:
    """A task of one incarnation of a queue. Moments are ticks."""

    queue: UUID
    name: str
    """What it does, and to what: ``purge``, ``move``, or ``redrive:GROUP``. A queue has one task of each name, the newest."""
    application: str
    queue_name: str
    id: UUID
    started: int
    asked: Mapping[str, Any] = field(default_factory=dict)
    """What the caller asked for, as JSON."""
    state: TaskState = TaskState.RUNNING
    reason: str = ""
    """Why it failed, or the last error of a message."""
    finished: int = 0
    """0 while it runs."""
    total: int = 0
    """Messages that it had to look at when it began."""
    looked: int = 0
    """Messages that it has looked at."""
    done: int = 0
    """Messages that it has removed or moved."""
    failed: int = 0
    """Messages that could not be moved."""
    place: Mapping[str, Any] = field(default_factory=dict)
    """Where it is, as JSON; only its own kind reads it."""
    runner: str = ""
    """The server that runs it; empty if none has begun."""
    runner_until: int = 0
    """After this moment another server may go on with it."""
    version: int = field(default_factory=lambda: secrets.randbits(63))
    """Another with each change."""

    @property
    def is_open(self) -> bool:
        """Whether some server has to work on it."""
        return self.state in _OPEN

    @property
    def kind(self) -> str:
        """The first part of its name."""
        return self.name.partition(":")[0]

    @property
    def left(self) -> int:
        """Messages that it has not looked at, as far as is known."""
        return 0 if self.state is TaskState.DONE else max(self.total - self.looked, 0)

    def changed(self, **named: Any) -> StoredTask:
        """The task with these fields replaced, and another version."""
        return replace(self, version=secrets.randbits(63), **named)

    def to_text(self) -> str:
        """The task as JSON, for a store's row.

        >>> task = StoredTask(UUID(int=1), "purge", "app", "jobs", UUID(int=2), 5)
        >>> StoredTask.from_text(task.to_text()) == task
        True
        """
        return json.dumps(asdict(self) | {"queue": self.queue.hex, "id": self.id.hex})

    @classmethod
    def from_text(cls, text: str) -> StoredTask:
        """The inverse of :meth:`to_text`."""
        known = json.loads(text)
        return cls(
            **known | {"queue": UUID(known["queue"]), "id": UUID(known["id"]), "state": TaskState(known["state"])}
        )
