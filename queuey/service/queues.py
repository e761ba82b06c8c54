"""Queues: make, find, change and remove them."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import inf
from typing import Any

from queuey.clock import Clock
from queuey.errors import (
    OutcomeUnknown,
    PartitionsCannotShrink,
    QueueExists,
    QueueNotFound,
    QueueyError,
    SettingsChanged,
)
from queuey.future import Future
from queuey.model import MAX_PARTITIONS, Consistency, PartitionId, PartitionState, Queue, QueueKind, Retention
from queuey.monitor.metrics import QUEUE_CACHE, Monitor
from queuey.service.queue_cache import QueueCache
from queuey.service.waiting.registry import Waiters
from queuey.storage import Stores

log = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,80}")
_REMOVALS = 100
"""Removed queues that are looked for at once."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Settings that a creation or an update names; None is not named."""

    partitions: int | None = None
    kind: QueueKind | None = None
    consistency: Consistency | None = None
    principals: tuple[str, ...] | None = None
    retention: Retention | None = None
    attributes: str | None = None
    leases: Mapping[str, Any] | None = None
    """What its lease groups begin with: those that are named, see
    :meth:`~queuey.model.lease_groups.LeaseDefaults.changed`."""

    def changed(self, queue: Queue) -> Queue:
        """``queue`` with the named settings replaced."""
        named = {key: value for key in self.__slots__ if (value := getattr(self, key)) is not None}
        if self.leases is not None:
            named["leases"] = queue.leases.changed(self.leases)
        return queue._replace(**named)


def is_queue_name(text: str) -> bool:
    """1 to 80 letters, digits, ``_``, ``-`` and ``.``; not only one or two dots.

    v1 makes queues with names of up to 50 characters; the SQS door makes longer ones.
    """
    return _NAME.fullmatch(text) is not None and text not in (".", "..")


async def _nothing(_: uuid.UUID) -> None:
    """Nobody hears of removals."""


class Queues:
    """The queues of all applications, with a bounded cache of their settings.

    In an embedded store every change passes through here, so the cache is never stale. Where other servers also change
    queues, a cached queue is used only for as long as the store allows.
    """

    def __init__(self, stores: Stores, clock: Clock, monitor: Monitor, waiters: Waiters) -> None:
        self._stores = stores
        self._waiters = waiters
        self._metadata = stores.metadata
        self._clock = clock
        self._trusted: float = stores.metadata.trusted_seconds
        self._cache = QueueCache(self._trusted, clock.elapsed)
        self._monitor = monitor
        self.before_drop: Callable[[uuid.UUID], Coroutine[Future[Any], None, None]] = _nothing
        """Hears of each queue that was removed, while what is stored beside it is still there. May hear of it again."""
        self.is_left: Callable[[], None] = lambda: None
        """Hears that something is left of a removed queue, for :meth:`finish_removals`."""
        self.note_change: Callable[[Queue], None] = lambda queue: None
        """Hears of each queue whose settings have changed."""
        self._left: set[uuid.UUID] = set()
        """Removed queues of which something was left at the last look."""

    @property
    def hears_of_changes(self) -> bool:
        """Whether this process makes every change of a queue.

        Then it also wakes the readers that wait.
        """
        return self._trusted == inf

    def cached(self, application: str, name: str) -> Queue | None:
        """The queue, if its settings are cached."""
        return self._cache.queue(application, name)

    def in_use(self, application: str | None, most: int) -> Sequence[Queue]:
        """Queues of an application, or of all, that somebody used since the server began: the last ones looked up."""
        return self._cache.used(application, most)

    async def find(self, application: str, name: str) -> Queue | None:
        """The queue, or None."""
        queue = self.cached(application, name)
        return queue if queue is not None else await self.look_anew(application, name)

    async def look_anew(self, application: str, name: str) -> Queue | None:
        """The queue as the store has it, or None; from now on it is cached.

        The store is not asked for a name that no queue can have, since that may be longer than a key may be there.
        """
        if not is_queue_name(name):
            return None
        known = self._cache.get(application, name)
        if known is not None:
            known.asked = True
        self._monitor.count(QUEUE_CACHE, 1, "miss")
        return await self._look_up(application, name)

    async def with_partitions(self, queue: Queue, named: int) -> Queue:
        """The queue; looked up again if it has fewer partitions than a call names.

        Another server may have added them.

        :param named: the highest partition, from 1. More than :data:`~queuey.model.MAX_PARTITIONS` cannot exist.
        """
        if self.hears_of_changes or not queue.partitions < named <= MAX_PARTITIONS:
            return queue
        found = await self.look_anew(queue.application, queue.name)
        return found if found is not None and found.uuid == queue.uuid else queue

    async def _look_up(self, application: str, name: str) -> Queue | None:
        changes, since = self._cache.changes, self._clock.elapsed()
        queue = await self._metadata.find_queue(application, name)
        if queue is not None:
            self._cache.learn(queue, since, changes)
        elif (gone := self._cache.get(application, name)) is not None:  # another server has removed it
            self._cache.forget(gone.queue)
        return queue

    async def is_there(self, queue: Queue, settled_seconds: float) -> bool:
        """Whether no answer can have reported yet that this incarnation is removed (G9).

        A removal is answered no sooner than the trusted time and ``settled_seconds`` after it was decided. So a look-up
        that began within that time and found the queue is proof. Without such a look-up the store is asked.

        :param settled_seconds: 0 if appends are not timed: then the store's answer counts, however late it comes.
        :raises OutcomeUnknown: the store's answer took longer than that.
        """
        known = self._cache.get(queue.application, queue.name)
        if known is not None and known.queue.uuid == queue.uuid and self._is_recent(known.since, settled_seconds):
            return True
        since = self._clock.elapsed()
        found = await self._look_up(queue.application, queue.name)
        if found is None or found.uuid != queue.uuid:
            return False
        if settled_seconds and not self._is_recent(since, settled_seconds):
            raise OutcomeUnknown
        return True

    def _is_recent(self, since: float, settled_seconds: float) -> bool:
        return self._clock.elapsed() - since < self._trusted + settled_seconds

    async def create(
        self, application: str, name: str | None, settings: QueueSettings, *, only_new: bool = False
    ) -> Queue:
        """Make a queue, or find that it exists.

        Repeating a creation changes only the settings that it names, except that partitions never become fewer
        (queuey-api-v1 W7).

        :param name: 1 to 50 characters; None draws a random name.
        :returns: the queue as it is stored now.
        :raises QueueExists: with ``only_new``, the queue exists already; nothing changed.
        :raises ClockUnsafe: a store with several servers dates names, and a wrong date would hide this one, or a later one;
            nothing changed.
        """
        _check_clock(self._stores)
        chosen = name or uuid.uuid4().hex
        fresh = settings.changed(Queue(application, chosen, uuid.uuid4(), self._clock.now_ticks()))
        changes = self._cache.changes
        queue, created = await self._metadata.create_queue(fresh)
        if created:
            self._cache.made(queue, changes)
            return queue
        if only_new:
            raise QueueExists(f"a queue named {chosen} exists already")
        wanted = replace(settings, partitions=max(settings.partitions or 0, queue.partitions))
        return await self._replace(queue, wanted)

    async def update(
        self, queue: Queue, settings: QueueSettings, is_expected: Callable[[Queue], bool] | None = None
    ) -> Queue:
        """Change the settings that are named, and keep the rest.

        :param is_expected: whether the stored queue is one that the caller wants to change; None: any is.
        :returns: the queue as it is stored now.
        :raises PartitionsCannotShrink: fewer partitions than now; nothing changed.
        :raises QueueNotFound: the queue was removed in the meantime.
        :raises SettingsChanged: it is not the expected one; nothing changed.
        """
        if is_expected is None:
            return await self._replace(queue, settings)
        found = await self.look_anew(queue.application, queue.name)  # another server may have changed it
        if found is None:
            raise QueueNotFound
        return await self._replace(found, settings, is_expected)

    async def _replace(
        self, queue: Queue, settings: QueueSettings, is_expected: Callable[[Queue], bool] = lambda _: True
    ) -> Queue:
        def changed(found: Queue) -> Queue:
            if not is_expected(found):
                raise SettingsChanged
            if settings.partitions is not None and settings.partitions < found.partitions:
                raise PartitionsCannotShrink(
                    f"the queue has {found.partitions} partitions and cannot go down to {settings.partitions}"
                )
            return settings.changed(found)

        return await self.change(queue, changed)

    async def change(self, queue: Queue, changed: Callable[[Queue], Queue]) -> Queue:
        """Repeat a compare-and-set until it succeeds.

        So changes of different settings by two servers both stay.

        :param changed: the queue as it is to be, by the queue as it is stored.
        :returns: the queue as it is stored now.
        :raises QueueNotFound: the queue was removed in the meantime.
        """
        while True:
            wanted = changed(queue)
            if wanted == queue:
                return queue
            with self._cache.changing(queue):
                done = await self._metadata.replace_queue(queue, wanted)
            if done:
                self._waiters.changed(queue.uuid)
                self.note_change(wanted)
                return wanted
            found = await self._metadata.find_queue(queue.application, queue.name)
            if found is None:
                raise QueueNotFound
            queue = found

    async def delete(self, queue: Queue) -> None:
        """Remove a queue and all its messages (G9).

        :raises QueueNotFound: there is no such queue any more.
        :raises ClockUnsafe: see :meth:`create`; nothing changed.
        """
        _check_clock(self._stores)
        try:
            with self._cache.changing(queue):
                gone = await self._metadata.remove_queue(queue)
        except OutcomeUnknown:
            self.is_left()
            raise
        if not gone:
            raise QueueNotFound
        self._waiters.changed(queue.uuid)
        try:
            await self._drop(queue.uuid)
        except QueueyError as error:
            self.is_left()
            raise OutcomeUnknown from error  # the queue is gone; its unreadable messages go later
        self._waiters.changed(queue.uuid)  # again: a receiver that looked before found a queue without messages

    async def _drop(self, incarnation: uuid.UUID) -> None:
        await self.before_drop(incarnation)
        await self._stores.messages.drop(incarnation)
        await self._metadata.forget_removed(incarnation)

    async def finish_removals(self) -> bool:
        """Drop the messages of queues whose removal was interrupted.

        :returns: whether some are left, for another call.
        """
        tried, left_before = set[uuid.UUID](), self._left
        self._left = set()
        # Those that stay must not hold up the others, which come behind them.
        while left := {*await self._metadata.removed(_REMOVALS + 2 * len(self._left))} - tried:
            for incarnation in left:
                try:
                    await self._drop(incarnation)
                except QueueyError as error:
                    self._left.add(incarnation)
                    if incarnation not in left_before:  # log a repeated failure only once
                        log.warning("what is left of the removed queue %s stays for now: %s", incarnation, error)
            tried |= left
        return bool(self._left)

    async def page(self, application: str, *, start: str, limit: int) -> Sequence[Queue]:
        """Queues by name, starting with ``start``."""
        return await self._metadata.list_queues(application, start=start, limit=limit)

    async def naming(self, application: str, principals: Iterable[str], *, start: str, limit: int) -> Sequence[Queue]:
        """Queues that name one of these principals, each once, by name from ``start`` on."""
        pages = [
            self._metadata.list_named(application, principal, start=start, limit=limit) for principal in principals
        ]
        found = {queue.name: queue for page in pages for queue in await page}
        return [found[name] for name in sorted(found)[:limit]]

    async def inspect(self, queue: Queue) -> Sequence[PartitionState]:
        """Depth, bytes and ends of each partition, in order."""
        return await self._stores.messages.inspect(_partitions_of(queue), now_ticks=self._clock.now_ticks())

    async def inspect_several(
        self, queues: Sequence[Queue], seconds: float
    ) -> Sequence[Sequence[PartitionState] | None]:
        """The same of each queue, with one call of the store; None of queues for which there was no time.

        :param seconds: as of :meth:`queuey.storage.MessageStore.inspect`.
        """
        partitions = [partition for queue in queues for partition in _partitions_of(queue)]
        now_ticks = self._clock.now_ticks()
        states = await self._stores.messages.inspect(partitions, now_ticks=now_ticks, seconds=seconds)
        ends = accumulate(queue.partitions for queue in queues)
        parts = [(end - queue.partitions, end) for queue, end in zip(queues, ends, strict=True)]
        return [states[first:end] if end <= len(states) else None for first, end in parts]


def _check_clock(stores: Stores) -> None:
    """:raises ClockUnsafe: this server's clock may be too far off."""
    stores.messages.watermark(Consistency.STRONG)


def _partitions_of(queue: Queue) -> Sequence[PartitionId]:
    return [queue.partition(number) for number in range(1, queue.partitions + 1)]
