"""Calls about tasks of queues: part of each client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qdo.client.endpoint import Endpoint
from qdo.client.steps import FORBIDDEN, Items, Listing, Pause, Reply, Steps, call, listing
from qdo.client.wire import queue_path

__all__ = ["QueueTask", "TaskCalls"]

_LOOK_SECONDS = (0.05, 2.0)
"""Pauses between two looks at a task, at first and at most."""


@dataclass(frozen=True, slots=True)
class QueueTask:
    """A task of a queue: the server works on it, also after a restart."""

    name: str
    """``purge``, or ``redrive:GROUP``."""
    id: str
    """32 hexadecimal digits: another for each task of this name."""
    state: str
    """``running``, ``cancelling``, ``done``, ``failed`` or ``cancelled``."""
    reason: str | None
    """Why it failed, or why it could not move some message."""
    started: str
    """Decimal seconds since 1970."""
    finished: str | None
    left: int
    """Messages that it has not looked at, approximately."""
    done: int
    """Messages that it has removed or moved."""
    failed: int
    """Messages that could not be moved."""
    asked: Mapping[str, Any] = field(hash=False)
    """What it was asked for."""

    @property
    def is_open(self) -> bool:
        """Whether the server still works on it."""
        return self.state in ("running", "cancelling")

    @classmethod
    def from_wire(cls, entry: Mapping[str, Any]) -> QueueTask:
        known = {name: entry[name] for name in ("name", "id", "state", "reason", "started", "finished", "left")}
        done = entry["removed"] if "removed" in entry else entry["moved"]
        asked = {name: value for name, value in entry.items() if name not in {*known, "removed", "moved", "failed"}}
        return cls(**known, done=done, failed=entry.get("failed", 0), asked=asked)


class TaskCalls:
    """Starts, watches and cancels tasks of queues."""

    application: str
    _endpoint: Endpoint

    @call
    def purge(self, queue: str) -> Steps[QueueTask]:
        """Begin to remove all messages that the queue has now, scheduled and leased ones too.

        A lost answer is not repeated: :meth:`task` shows what became of it.

        :raises TaskRunning: a purge of the queue runs already. Nothing was started.
        """
        path = (*queue_path(self.application, queue), "messages")
        return _task((yield from self._endpoint.ask("DELETE", *path, repeats=FORBIDDEN)))

    @call
    def task(self, queue: str, name: str) -> Steps[QueueTask]:
        """The newest task of a name, as it is now.

        :param name: as in :class:`QueueTask`.
        :raises TaskNotFound: there was none.
        """
        return _task((yield from self._endpoint.ask("GET", *self._task_path(queue, name))))

    @call
    def cancel_task(self, queue: str, name: str) -> Steps[QueueTask]:
        """Let a task stop. What it has done stays done, and a task that has ended stays as it is.

        :raises TaskNotFound: there was none.
        """
        return _task((yield from self._endpoint.ask("DELETE", *self._task_path(queue, name))))

    @listing
    def tasks(self, queue: str, *, page_size: int = 1000) -> Listing[QueueTask]:
        """The tasks of a queue by name, the newest of each name.

        Each page is requested when the iteration reaches it.
        """
        path, params = queue_path(self.application, queue), {"limit": page_size, "offset": ""}
        return self._endpoint.listed(
            *path, "tasks", params=params, read=lambda page: map(QueueTask.from_wire, page["tasks"])
        )

    @listing
    def watch_task(self, queue: str, name: str) -> Listing[QueueTask]:
        """A task as it is now, again and again until it has ended, which is the last one.

        :param name: as in :class:`QueueTask`.
        :raises TaskNotFound: there was no such task.
        """
        pause, most = _LOOK_SECONDS
        while True:
            task = _task((yield from self._endpoint.ask("GET", *self._task_path(queue, name))))
            yield Items([task])
            if not task.is_open:
                return
            yield Pause(pause)
            pause = min(2 * pause, most)

    def _task_path(self, queue: str, name: str) -> tuple[str, ...]:
        return (*queue_path(self.application, queue), "tasks", name)


def _task(answer: Reply) -> QueueTask:
    return QueueTask.from_wire(answer.json()["task"])
