"""The lists of queues' names in Cassandra.

One has all queues of an application, the others those that name a principal.

They are plain rows. They may name a queue that is not there or not as told, never miss one, and who lists looks each queue
up. What is told of a name is dated by the change that told it, so that the end of one incarnation never hides the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from queuey.model import Queue
from queuey.storage.cassandra.session import ALL_CENTRES, CassandraSession

__all__ = ["EVERYBODY", "NameLists", "list_place"]

EVERYBODY = ""
"""Whose list has all queues of an application."""
_SHARDS = 16
"""Of the list of all: a million names are 16 Cassandra partitions of some megabytes."""
_LEAST_ASKED = 8


class NameLists:
    """The lists of one keyspace."""

    def __init__(self, session: CassandraSession) -> None:
        self._session = session

    async def page(self, application: str, who: str, start: str, limit: int) -> tuple[list[str], bool]:
        """Names from ``start`` on, at least one if there is any; True if these are all.

        A shard that gave as many as asked may have more, so names count up to the least of such ends.
        """
        shards = _SHARDS if who == EVERYBODY else 1
        step = max(_LEAST_ASKED, 2 * limit // shards)
        asked = [
            self._session.ask("name_list", (application, who, shard, start, step), ALL_CENTRES)
            for shard in range(shards)
        ]
        names: list[str] = []
        ends = []
        for listed in asked:
            rows = await listed
            names += [name for (name,) in rows]
            if len(rows) == step:
                ends.append(rows[-1][0])
        if not ends:
            return sorted(names), True
        end = min(ends)
        return sorted(name for name in names if name <= end), False

    async def add(self, queue: Queue, whom: Sequence[str], time: int) -> None:
        for who in dict.fromkeys(whom):
            await self._session.tell("name_insert", (*list_place(queue, who), time), ALL_CENTRES)

    async def remove(self, queue: Queue, whom: Sequence[str], time: int) -> None:
        for who in dict.fromkeys(whom):
            await self._session.tell("name_delete", (time, *list_place(queue, who)), ALL_CENTRES)


def list_place(queue: Queue, who: str) -> tuple[str, str, int, str]:
    shard = 0 if who else crc32(queue.name.encode()) % _SHARDS
    return queue.application, who, shard, queue.name
