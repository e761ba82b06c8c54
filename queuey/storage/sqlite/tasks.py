"""Tasks in an embedded store's file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from queuey.errors import QueueNotFound
from queuey.future import Future
from queuey.model.tasks import StoredTask
from queuey.storage import TaskStore
from queuey.storage.checksums import making_sense
from queuey.storage.sqlite.checked_rows import with_checksum, without_checksum
from queuey.storage.sqlite.file import File
from queuey.storage.sqlite.purging import Purge
from queuey.storage.sqlite.statements import SQL
from queuey.storage.sqlite.transaction import Row, Transaction

__all__ = ["SqliteTasks"]


class SqliteTasks(TaskStore):
    """The tasks of one file."""

    def __init__(self, file: File) -> None:
        self._file = file
        file.purger.add(Purge(dropped=("purge_dropped_tasks",)))

    def find_task(self, queue: UUID, name: str) -> Future[StoredTask | None]:
        if queue.bytes in self._file.dropped:
            return Future.of(None)
        return self._file.query(SQL["task_find"], (queue.bytes, name), lambda rows: next(iter(_tasks(rows)), None))

    def change_task(self, before: StoredTask | None, after: StoredTask) -> Future[bool]:
        place = (after.queue.bytes, after.name)

        def job(transaction: Transaction) -> bool:
            if place[0] in self._file.dropped:
                raise QueueNotFound
            with making_sense():
                stored = next(iter(_tasks(transaction.look(SQL["task_find"], place))), None)
            if stored != before:
                return False
            transaction.look(SQL["task_keep"], with_checksum((*place, int(after.is_open), after.to_text())))
            return True

        # One small row: a disk that is full up to the reserve takes it, for a purge that makes room.
        return self._file.committer.submit(job, grows=False)

    def list_tasks(self, queue: UUID, *, start: str = "", limit: int = 1000) -> Future[Sequence[StoredTask]]:
        if queue.bytes in self._file.dropped:
            return Future.of([])
        return self._file.query(SQL["task_list"], (queue.bytes, start, limit), _tasks)

    def open_tasks(self, limit: int = 1000) -> Future[Sequence[StoredTask]]:
        dropped = self._file.dropped
        return self._file.query(
            SQL["task_open"], (limit,), lambda rows: [task for task in _tasks(rows) if task.queue.bytes not in dropped]
        )


def _tasks(rows: Iterable[Row]) -> list[StoredTask]:
    return [StoredTask.from_text(document) for _, _, _, document in map(without_checksum, rows)]
