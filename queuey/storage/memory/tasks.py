"""Tasks, in memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from uuid import UUID

from queuey.errors import QueueNotFound
from queuey.future import Future
from queuey.model.tasks import StoredTask
from queuey.storage import TaskStore
from queuey.storage.memory.process import Process

__all__ = ["MemoryTasks"]


class MemoryTasks(TaskStore):
    """The tasks of one process. They end with it."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._lock = process.lock
        self._tasks: dict[UUID, dict[str, StoredTask]] = {}

    def find_task(self, queue: UUID, name: str) -> Future[StoredTask | None]:
        with self._lock:
            return Future.of(self._of(queue).get(name))

    def _of(self, queue: UUID) -> dict[str, StoredTask]:
        return {} if queue in self._process.dropped else self._tasks.get(queue, {})

    def change_task(self, before: StoredTask | None, after: StoredTask) -> Future[bool]:
        with self._lock:
            if after.queue in self._process.dropped:
                return Future.failed(QueueNotFound())
            if self._of(after.queue).get(after.name) != before:
                return Future.of(False)
            self._tasks.setdefault(after.queue, {})[after.name] = after
            return Future.of(True)

    def list_tasks(self, queue: UUID, *, start: str = "", limit: int = 1000) -> Future[Sequence[StoredTask]]:
        with self._lock:
            found = dict(sorted(self._of(queue).items()))
        first = bisect_left([*found], start)
        return Future.of([*found.values()][first : first + limit])

    def open_tasks(self, limit: int = 1000) -> Future[Sequence[StoredTask]]:
        with self._lock:
            for queue in self._process.dropped & self._tasks.keys():
                del self._tasks[queue]
            found = [task for tasks in self._tasks.values() for task in tasks.values() if task.is_open]
        return Future.of(found[:limit])
