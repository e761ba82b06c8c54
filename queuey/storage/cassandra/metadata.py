"""Queues and application keys in Cassandra.

A queue's row is changed by lightweight transactions alone. The lists of names beside it are plain
rows; they may name a queue that is not there or not as told, never miss one, and who lists looks
each queue up. What is told of a name is dated by the change that told it, so that the end of one
incarnation never hides the next.

All of it is read and written by a quorum of all copies, also with several data centres: a server that
missed a removal decided elsewhere would go on appending to the queue (G9).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any
from uuid import UUID, uuid4
from zlib import crc32

from queuey import future
from queuey.clock import Clock
from queuey.errors import OutcomeUnknown, StorageUnavailable
from queuey.future import Future
from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND
from queuey.model import ApplicationKey, Consistency, Queue, QueueKind
from queuey.storage import MetadataStore
from queuey.storage.cassandra.session import ALL_CENTRES, CassandraSession, Rows, Underway

_EVERYBODY = ""
"""Whose list has all queues of an application."""
_SHARDS = 16
"""Of the list of all: a million names are 16 Cassandra partitions of some megabytes."""
_REMOVAL_SHARDS = 16
_CLOSE_SECONDS = 10.0
_AT_ONCE = 128
"""Queues looked up together for a page."""
_LEAST_ASKED = 8
_ABANDONED_SECONDS = 60.0
"""How much longer than it should take a removal may take before another server finishes it."""
_BEING_REMOVED_SECONDS = 0.1
"""Between two looks at a queue that is being removed, by who wants to make it anew."""


@dataclass(frozen=True)
class _Stored:
    """A queue's row."""

    queue: Queue
    changed: int
    """When the last change was, in microseconds; rises with each."""
    version: UUID
    """Of the last change: drawn anew by each, so that one is never taken for another."""
    removing: int | None
    """Since when it is being removed."""


class CassandraMetadata(MetadataStore):
    """Metadata of any number of servers in one keyspace."""

    def __init__(
        self,
        session: CassandraSession,
        clock: Clock,
        *,
        trusted_seconds: float,
        settle_seconds: float,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        """
        :param trusted_seconds: how long servers use what they read of a queue.
        :param settle_seconds: between a removal being decided and being done: no server then has an append
            under way that it took by settings from before (G9).
        """
        self.session = session
        self.trusted_seconds = trusted_seconds
        self._settle = settle_seconds
        self._clock = clock
        self._underway = Underway(session.options.most_calls)
        self._on_close = on_close
        self._last = 0

    # Queues

    def create_queue(self, queue: Queue) -> Future[tuple[Queue, bool]]:
        return self._underway.start(self._create(queue))

    async def _create(self, queue: Queue) -> tuple[Queue, bool]:
        waited = 0.0
        while True:
            stored = await self._stored(queue.application, queue.name)
            if stored is None:
                time, version = self._now(), uuid4()
                await self._list(queue, [_EVERYBODY, *queue.principals], time)
                told = (queue.uuid, queue.created_ticks, time, version, settings_text(queue))
                if await self._applied("queue_insert", (queue.application, queue.name, *told), queue, version):
                    return queue, True
                continue
            if stored.removing is None:
                return stored.queue, stored.queue.uuid == queue.uuid
            if waited > 2 * self._settle + 1:
                await self._finish_removal(stored.queue)  # whoever began it is gone
            if waited > 4 * self._settle + 5:
                raise StorageUnavailable(f"the queue {queue.name} is being removed: try again")
            await self.session.pause(_BEING_REMOVED_SECONDS)
            waited += _BEING_REMOVED_SECONDS

    async def _applied(self, name: str, values: Sequence[Any], queue: Queue, version: UUID) -> bool:
        """Whether a change was carried out; if its outcome is unknown, by what is stored now."""
        where = (queue.application, queue.name)

        def ours(rows: Rows) -> bool:
            stored = _read(*where, rows)
            return stored is not None and stored.version == version

        return await self.session.decide(name, values, "queue_find", where, ours)

    def find_queue(self, application: str, name: str) -> Future[Queue | None]:
        return self._underway.start(self._find(application, name))

    async def _find(self, application: str, name: str) -> Queue | None:
        stored = await self._stored(application, name)
        return stored.queue if stored is not None and stored.removing is None else None

    async def _stored(self, application: str, name: str) -> _Stored | None:
        return _read(application, name, await self.session.ask("queue_find", (application, name), ALL_CENTRES))

    def replace_queue(self, old: Queue, new: Queue) -> Future[bool]:
        return self._underway.start(self._replace(old, new))

    async def _replace(self, old: Queue, new: Queue) -> bool:
        stored = await self._stored(old.application, old.name)
        if stored is None or stored.removing is not None or stored.queue != old:
            return False
        time, version = max(self._now(), stored.changed + 1), uuid4()
        await self._list(new, [who for who in new.principals if who not in old.principals], time)
        values = (time, version, settings_text(new), old.application, old.name, old.uuid, stored.version)
        if not await self._applied("queue_update", values, new, version):
            return False
        try:
            await self._unlist(old, [who for who in old.principals if who not in new.principals], time)
        except StorageUnavailable as error:
            raise OutcomeUnknown from error  # it is changed; a name that is listed for too many is looked up in vain
        return True

    def remove_queue(self, queue: Queue) -> Future[bool]:
        return self._underway.start(self._remove(queue))

    async def _remove(self, queue: Queue) -> bool:
        stored = await self._stored(queue.application, queue.name)
        if stored is None or stored.queue.uuid != queue.uuid or stored.removing is not None:
            return False
        time = max(self._now(), stored.changed + 1)
        await self._tell_removal(queue)
        if not await self._marked(stored.queue, time):
            return False
        # The driver's timers go by the wall clock, which may be stepped: they are not taken at their word.
        until = self._clock.elapsed() + self._settle
        while (left := until - self._clock.elapsed()) > 0:
            await self.session.pause(left)
        try:
            await self._finish_removal(stored.queue)
        except StorageUnavailable as error:
            raise OutcomeUnknown from error  # it is decided, and somebody will finish it
        return True

    async def _tell_removal(self, queue: Queue) -> None:
        values = (_removal_shard(queue.uuid), queue.uuid, queue.application, queue.name, self._clock.now_ticks())
        await self.session.tell("removal_keep", values, ALL_CENTRES)

    async def _marked(self, queue: Queue, time: int) -> bool:
        """Decide that this incarnation goes; True to one of those who ask."""
        where = (queue.application, queue.name)

        def ours(rows: Rows) -> bool:
            stored = _read(*where, rows)
            return stored is not None and stored.queue.uuid == queue.uuid and stored.removing == time

        return await self.session.decide("queue_mark", (time, *where, queue.uuid), "queue_find", where, ours)

    async def _finish_removal(self, queue: Queue) -> None:
        """From being removed to gone; may be repeated, also by another server."""
        stored = await self._stored(queue.application, queue.name)
        if stored is None or stored.queue.uuid != queue.uuid or stored.removing is None:
            return
        await self._unlist(stored.queue, [_EVERYBODY, *stored.queue.principals], stored.removing)
        await self.session.compare_and_set("queue_delete", (queue.application, queue.name, queue.uuid))

    def removed(self, limit: int = 100) -> Future[Sequence[UUID]]:
        return self._underway.start(self._removed(limit))

    async def _removed(self, limit: int) -> Sequence[UUID]:
        found: list[UUID] = []
        for shard in range(_REMOVAL_SHARDS):
            for uuid, application, name, since in await self.session.ask("removal_list", (shard,), ALL_CENTRES):
                if await self._is_gone(uuid, application, name, since):
                    found.append(uuid)
        return found[:limit]

    async def _is_gone(self, uuid: UUID, application: str, name: str, since: int) -> bool:
        """Whether a removal that was told of was done; one that a server left half-way is finished, or forgotten."""
        stored = await self._stored(application, name)
        if stored is None or stored.queue.uuid != uuid:
            return True
        if (self._clock.now_ticks() - since) / TICKS_PER_SECOND < self._settle + _ABANDONED_SECONDS:
            return False  # whoever began it is at it
        if stored.removing is None:
            await self._forget_removed(uuid)
            return False
        await self._finish_removal(stored.queue)
        return True

    def forget_removed(self, queue: UUID) -> Future[None]:
        return self._underway.start(self._forget_removed(queue))

    async def _forget_removed(self, queue: UUID) -> None:
        await self.session.tell("removal_forget", (_removal_shard(queue), queue), ALL_CENTRES)

    # Lists

    def list_queues(self, application: str, *, start: str = "", limit: int = 1000) -> Future[Sequence[Queue]]:
        return self._underway.start(self._page(application, _EVERYBODY, _SHARDS, start, limit))

    def list_named(
        self, application: str, principal: str, *, start: str = "", limit: int = 1000
    ) -> Future[Sequence[Queue]]:
        if not principal:
            return Future.of([])
        return self._underway.start(self._page(application, principal, 1, start, limit))

    async def _page(self, application: str, who: str, shards: int, start: str, limit: int) -> Sequence[Queue]:
        """Names of all shards in one order, each looked up, until the page is full."""
        found: list[Queue] = []
        while len(found) < limit:
            names, whole = await self._names(application, who, shards, start, limit - len(found))
            left = iter(names)
            while some := list(islice(left, min(_AT_ONCE, limit - len(found)))):
                for promise in [future.start(self._find(application, name)) for name in some]:
                    queue = await promise
                    if queue is not None and (not who or who in queue.principals):
                        found.append(queue)
            if whole:
                break
            start = names[-1] + "\0"
        return found

    async def _names(self, application: str, who: str, shards: int, start: str, limit: int) -> tuple[list[str], bool]:
        """Names from ``start`` on, at least one if there is any; True if these are all.

        A shard that gave as many as asked may have more, so names count up to the least of such ends.
        """
        step = max(_LEAST_ASKED, 2 * limit // shards)
        asked = [
            self.session.ask("name_list", (application, who, shard, start, step), ALL_CENTRES)
            for shard in range(shards)
        ]
        names: list[str] = []
        ends = []
        for promise in asked:
            rows = await promise
            names += [name for (name,) in rows]
            if len(rows) == step:
                ends.append(rows[-1][0])
        if not ends:
            return sorted(names), True
        end = min(ends)
        return sorted(name for name in names if name <= end), False

    async def _list(self, queue: Queue, whom: Sequence[str], time: int) -> None:
        for who in dict.fromkeys(whom):
            await self.session.tell("name_insert", (*list_place(queue, who), time), ALL_CENTRES)

    async def _unlist(self, queue: Queue, whom: Sequence[str], time: int) -> None:
        for who in dict.fromkeys(whom):
            await self.session.tell("name_delete", (time, *list_place(queue, who)), ALL_CENTRES)

    def _now(self) -> int:
        """Microseconds that rise with each call."""
        self._last = max((self._clock.now_ticks() - EPOCH_TICKS) // 10, self._last + 1)
        return self._last

    # Keys

    def add_key(self, key: ApplicationKey) -> Future[None]:
        return self._underway.start(self._add_key(key))

    async def _add_key(self, key: ApplicationKey) -> None:
        await self.session.compare_and_set("key_insert", (key.digest, key.principal, key.label, key.created_ticks))

    def keys(self) -> Future[Sequence[ApplicationKey]]:
        return self._underway.start(self._keys())

    async def _keys(self) -> Sequence[ApplicationKey]:
        found = [ApplicationKey(*row) for row in await self.session.ask("key_list", (), ALL_CENTRES)]
        return sorted(found, key=lambda key: (key.created_ticks, key.digest))

    def remove_key(self, principal: str, label: str) -> Future[int]:
        return self._underway.start(self._remove_key(principal, label))

    async def _remove_key(self, principal: str, label: str) -> int:
        found = [key for key in await self._keys() if (key.principal, key.label) == (principal, label)]
        gone = 0
        for key in found:
            gone += bool((await self.session.compare_and_set("key_delete", (key.digest,)))[0][0])
        return gone

    # The store

    def problems(self) -> Sequence[str]:
        return self.session.problems()

    def close(self) -> None:
        self._underway.finish(_CLOSE_SECONDS)
        self._on_close()


def settings_text(queue: Queue) -> str:
    """What of a queue can change, as one text: a compare-and-set compares all of it."""
    return json.dumps([queue.partitions, queue.kind, queue.consistency, queue.principals], ensure_ascii=False)


def _read(application: str, name: str, rows: Sequence[tuple[Any, ...]]) -> _Stored | None:
    if not rows or rows[0][0] is None:
        return None
    uuid, created, changed, version, removing, settings = rows[0]
    partitions, kind, consistency, principals = json.loads(settings)
    queue = Queue(
        application, name, uuid, created, partitions, QueueKind(kind), Consistency(consistency), tuple(principals)
    )
    return _Stored(queue, changed, version, removing)


def list_place(queue: Queue, who: str) -> tuple[str, str, int, str]:
    shard = 0 if who else crc32(queue.name.encode()) % _SHARDS
    return queue.application, who, shard, queue.name


def _removal_shard(queue: UUID) -> int:
    return queue.int % _REMOVAL_SHARDS
