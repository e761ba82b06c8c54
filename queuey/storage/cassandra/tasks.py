"""Tasks in Cassandra, of any number of servers in one keyspace.

The tasks of a queue are one Cassandra partition, and each change is one lightweight transaction there. A list of all
open tasks is plain rows: one is added before its task is stored, and removed once it has ended. The list may name a task
that has ended or never began, but never misses one, so its readers look each up.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from queuey import future
from queuey.errors import QueueNotFound
from queuey.future import Future
from queuey.ids import TICKS_PER_SECOND
from queuey.model.tasks import StoredTask
from queuey.storage import TaskStore
from queuey.storage.cassandra.server import CassandraServer
from queuey.storage.cassandra.session import ALL_CENTRES, Rows

__all__ = ["CassandraTasks"]

_SHARD = 0
_NEVER_BEGAN_SECONDS = 300.0
"""After this time a task that is listed and not stored never will be."""


class CassandraTasks(TaskStore):
    """The tasks of one keyspace."""

    def __init__(self, server: CassandraServer) -> None:
        self._server, self._session = server, server.session

    def find_task(self, queue: UUID, name: str) -> Future[StoredTask | None]:
        if queue in self._server.dropped:
            return Future.of(None)
        return self._server.underway.start(self._find(queue, name))

    async def _find(self, queue: UUID, name: str) -> StoredTask | None:
        return _task(await self._session.ask_serially("tasks_find", (queue, name)))

    def change_task(self, before: StoredTask | None, after: StoredTask) -> Future[bool]:
        if after.queue in self._server.dropped:
            return Future.failed(QueueNotFound())
        return self._server.underway.start(self._change(before, after))

    async def _change(self, before: StoredTask | None, after: StoredTask) -> bool:
        if after.is_open and (before is None or not before.is_open):
            listed = (_SHARD, after.queue, after.name, after.id, self._server.clock.now_ticks())
            await self._session.tell("tasks_open_keep", listed, ALL_CENTRES)

        def ours(rows: Rows) -> bool:
            return bool(rows) and rows[0][0] == after.version

        values = (after.version, after.to_text(), after.queue, after.name, None if before is None else before.version)
        return await self._session.decide("task_change", values, "tasks_find", (after.queue, after.name), ours)

    def list_tasks(self, queue: UUID, *, start: str = "", limit: int = 1000) -> Future[Sequence[StoredTask]]:
        if queue in self._server.dropped:
            return Future.of([])
        return self._server.underway.start(self._list(queue, start, limit))

    async def _list(self, queue: UUID, start: str, limit: int) -> Sequence[StoredTask]:
        rows = await self._session.ask("tasks_list", (queue, start, limit), ALL_CENTRES)
        return [StoredTask.from_text(document) for (document,) in rows if document is not None]

    def open_tasks(self, limit: int = 1000) -> Future[Sequence[StoredTask]]:
        return self._server.underway.start(self._open(limit))

    async def _open(self, limit: int) -> Sequence[StoredTask]:
        rows = await self._session.ask("tasks_open_list", (_SHARD, limit), ALL_CENTRES)
        looked = [future.start(self._find(queue, name)) for queue, name, *_ in rows]
        found = []
        for (queue, name, id_, since, date), look in zip(rows, looked, strict=True):
            task = await look
            if task is not None and task.id == id_ and task.is_open:
                if queue not in self._server.dropped:
                    found.append(task)
            elif self._server.clock.now_ticks() - since > _NEVER_BEGAN_SECONDS * TICKS_PER_SECOND:
                # A row that was added since, for a task that was opened again, is dated later, and stays.
                await self._session.tell("tasks_open_forget", (date, _SHARD, queue, name, id_), ALL_CENTRES)
        return found


def _task(rows: Rows) -> StoredTask | None:
    return StoredTask.from_text(rows[0][1]) if rows and rows[0][1] is not None else None
