"""The lists of queue names in Cassandra.

One list has all queues of an application, the others the queues that name a principal. They are plain rows. A list may
name a queue that does not exist or does not fit, but never misses one, so its readers look each queue up. A name is
dated by the change that wrote it, so that the end of one incarnation never hides the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from queuey.model import Queue
from queuey.storage.cassandra.session import ALL_CENTRES, CassandraSession

__all__ = ["EVERYBODY", "NameLists", "list_place"]

EVERYBODY = ""
"""The owner of the list with all queues of an application."""
_SHARDS = 16
"""Shards of the list of all queues: a million names are 16 Cassandra partitions of some megabytes."""
_LEAST_ASKED = 8


class NameLists:
    """The lists of one keyspace."""

    def __init__(self, session: CassandraSession) -> None:
        self._session = session

    async def page(self, application: str, who: str, start: str, limit: int) -> tuple[list[str], bool]:
        """Names from ``start`` on, at least one if any exist; True if these are all.

        A shard that gave as many as asked may have more, so names count only up to the lowest end of such shards.
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
