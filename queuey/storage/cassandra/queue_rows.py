"""The rows of queues in Cassandra.

Only lightweight transactions change them. A quorum of all copies reads and writes them, also with several data centres:
a server that missed a removal decided elsewhere would go on appending to the queue (G9).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from queuey.clock import Clock
from queuey.errors import OutcomeUnknown, StorageUnavailable
from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND
from queuey.model import Consistency, Queue, QueueKind, Retention
from queuey.model.lease_groups import LeaseDefaults
from queuey.storage.cassandra.names import EVERYBODY, NameLists
from queuey.storage.cassandra.session import ALL_CENTRES, CassandraSession, Rows

__all__ = ["QueueRows", "settings_text"]

_REMOVAL_SHARDS = 16
_ABANDONED_SECONDS = 60.0
"""How much longer than planned a removal may take before another server finishes it."""
_BEING_REMOVED_SECONDS = 0.1
"""Seconds between two looks at a queue that is being removed, for a call that wants to make it again."""


@dataclass(frozen=True)
class _Stored:
    """A queue's row."""

    queue: Queue
    changed: int
    """The time of the last change in microseconds; it rises with each change."""
    version: UUID
    """The version of the last change: each draws a new one, so that no two are confused."""
    removing: int | None
    """The time since which it is being removed."""


class QueueRows:
    """The queues of one keyspace, by exact name."""

    def __init__(self, session: CassandraSession, clock: Clock, names: NameLists, settle_seconds: float) -> None:
        """:param settle_seconds: see :class:`~queuey.storage.cassandra.metadata.CassandraMetadata`."""
        self._session = session
        self._clock = clock
        self._names = names
        self._settle = settle_seconds
        self._last = 0

    async def create(self, queue: Queue) -> tuple[Queue, bool]:
        waited = 0.0
        while True:
            stored = await self._stored(queue.application, queue.name)
            if stored is None:
                time, version = self._now(), uuid4()
                await self._names.add(queue, [EVERYBODY, *queue.principals], time)
                told = (queue.uuid, queue.created_ticks, time, version, settings_text(queue))
                if await self._applied("queue_insert", (queue.application, queue.name, *told), queue, version):
                    return queue, True
                continue
            if stored.removing is None:
                return stored.queue, stored.queue.uuid == queue.uuid
            if waited > 2 * self._settle + 1:
                await self._finish_removal(stored.queue)  # the server that began the removal is gone
            if waited > 4 * self._settle + 5:
                raise StorageUnavailable(f"the queue {queue.name} is being removed: try again")
            await self._session.pause(_BEING_REMOVED_SECONDS)
            waited += _BEING_REMOVED_SECONDS

    async def _applied(self, name: str, values: Sequence[Any], queue: Queue, version: UUID) -> bool:
        """Whether a change was carried out.

        If its outcome is unknown, the stored row decides.
        """
        where = (queue.application, queue.name)

        def ours(rows: Rows) -> bool:
            stored = _read(*where, rows)
            return stored is not None and stored.version == version

        return await self._session.decide(name, values, "queue_find", where, ours)

    async def find(self, application: str, name: str) -> Queue | None:
        stored = await self._stored(application, name)
        return stored.queue if stored is not None and stored.removing is None else None

    async def _stored(self, application: str, name: str) -> _Stored | None:
        return _read(application, name, await self._session.ask("queue_find", (application, name), ALL_CENTRES))

    async def replace(self, old: Queue, new: Queue) -> bool:
        stored = await self._stored(old.application, old.name)
        if stored is None or stored.removing is not None or stored.queue != old:
            return False
        time, version = max(self._now(), stored.changed + 1), uuid4()
        await self._names.add(new, [who for who in new.principals if who not in old.principals], time)
        values = (time, version, settings_text(new), old.application, old.name, old.uuid, stored.version)
        if not await self._applied("queue_update", values, new, version):
            return False
        try:
            await self._names.remove(old, [who for who in old.principals if who not in new.principals], time)
        except StorageUnavailable as error:
            raise OutcomeUnknown from error  # it is changed; a stale name in a list leads nowhere
        return True

    async def remove(self, queue: Queue) -> bool:
        stored = await self._stored(queue.application, queue.name)
        if stored is None or stored.queue.uuid != queue.uuid or stored.removing is not None:
            return False
        time = max(self._now(), stored.changed + 1)
        await self._announce_removal(queue)
        if not await self._marked(stored.queue, time):
            return False
        # The driver's timers follow the wall clock, which may be stepped: so the elapsed time is checked as well.
        until = self._clock.elapsed() + self._settle
        while (left := until - self._clock.elapsed()) > 0:
            await self._session.pause(left)
        try:
            await self._finish_removal(stored.queue)
        except StorageUnavailable as error:
            raise OutcomeUnknown from error  # the removal is decided, and some server will finish it
        return True

    async def _announce_removal(self, queue: Queue) -> None:
        values = (_removal_shard(queue.uuid), queue.uuid, queue.application, queue.name, self._clock.now_ticks())
        await self._session.tell("removal_keep", values, ALL_CENTRES)

    async def _marked(self, queue: Queue, time: int) -> bool:
        """Decide that this incarnation goes; True for exactly one of the calls that ask."""
        where = (queue.application, queue.name)

        def ours(rows: Rows) -> bool:
            stored = _read(*where, rows)
            return stored is not None and stored.queue.uuid == queue.uuid and stored.removing == time

        return await self._session.decide("queue_mark", (time, *where, queue.uuid), "queue_find", where, ours)

    async def _finish_removal(self, queue: Queue) -> None:
        """Take a queue from being removed to gone.

        May be repeated, also by another server.
        """
        stored = await self._stored(queue.application, queue.name)
        if stored is None or stored.queue.uuid != queue.uuid or stored.removing is None:
            return
        await self._names.remove(stored.queue, [EVERYBODY, *stored.queue.principals], stored.removing)
        await self._session.compare_and_set("queue_delete", (queue.application, queue.name, queue.uuid))

    async def removed(self, limit: int) -> Sequence[UUID]:
        found: list[UUID] = []
        for shard in range(_REMOVAL_SHARDS):
            for uuid, *announced in await self._session.ask("removal_list", (shard,), ALL_CENTRES):
                if len(found) == limit:
                    return found  # those that are left are listed once these are forgotten
                if await self._is_gone(uuid, *announced):
                    found.append(uuid)
        return found

    async def _is_gone(self, uuid: UUID, application: str, name: str, since: int, date: int) -> bool:
        """Whether an announced removal is complete.

        A removal that a server left unfinished is finished here, or forgotten if it was never decided.
        """
        stored = await self._stored(application, name)
        if stored is None or stored.queue.uuid != uuid:
            return True
        if (self._clock.now_ticks() - since) / TICKS_PER_SECOND < self._settle + _ABANDONED_SECONDS:
            return False  # the server that began it is still working on it
        if stored.removing is None:
            # One that was announced anew meanwhile is dated later, and stays.
            await self._session.tell("removal_withdraw", (date, _removal_shard(uuid), uuid), ALL_CENTRES)
            return False
        await self._finish_removal(stored.queue)
        return True

    async def forget_removed(self, queue: UUID) -> None:
        await self._session.tell("removal_forget", (_removal_shard(queue), queue), ALL_CENTRES)

    def _now(self) -> int:
        """Microseconds that rise with each call."""
        self._last = max((self._clock.now_ticks() - EPOCH_TICKS) // 10, self._last + 1)
        return self._last


def settings_text(queue: Queue) -> str:
    """The changeable settings of a queue as one text.

    A compare-and-set compares all of it.
    """
    settings = [queue.partitions, queue.kind, queue.consistency, queue.principals]
    settings += [queue.leases.text, queue.retention, queue.attributes]
    return json.dumps(settings, ensure_ascii=False)


def _read(application: str, name: str, rows: Sequence[tuple[Any, ...]]) -> _Stored | None:
    if not rows or rows[0][0] is None:
        return None
    uuid, created, changed, version, removing, settings = rows[0]
    partitions, kind, consistency, principals, leases, retention, attributes = json.loads(settings)
    queue = Queue(
        application,
        name,
        uuid,
        created,
        partitions,
        QueueKind(kind),
        Consistency(consistency),
        tuple(principals),
        LeaseDefaults(leases),
        Retention(retention),
        attributes,
    )
    return _Stored(queue, changed, version, removing)


def _removal_shard(queue: UUID) -> int:
    return queue.int % _REMOVAL_SHARDS
