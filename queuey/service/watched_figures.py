"""Gauges of what changes by itself: named queues, the disk, the ages of keys.

A scrape must not wait for a store or a file system. So a thread looks every ten seconds.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from queuey.background import BackgroundWork
from queuey.clock import Clock
from queuey.errors import QueueyError
from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND, ZERO_ID, MessageId
from queuey.model import Offset, Queue
from queuey.monitor.declared import Gauge, Labels
from queuey.monitor.metrics import (
    DISK_FREE,
    DISK_RESERVE,
    ISSUER_KEYS_AGE,
    KEY_CREATED,
    QUEUE_BYTES,
    QUEUE_DEPTH,
    QUEUE_GROUP_OLDEST,
    QUEUE_OLDEST,
    QUEUE_SCHEDULED,
    Monitor,
)
from queuey.security.schemes import Trust
from queuey.service.keys import Keys
from queuey.service.log import Log
from queuey.service.queues import Queues
from queuey.settings import Settings
from queuey.storage import Stores

__all__ = ["MOST_GROUPS", "Watched", "WatchedFigures"]

log = logging.getLogger(__name__)

MOST_GROUPS = 20
"""Groups of each kind that a named queue shows: the first by name."""
REST_SECONDS = 10.0
_OF_QUEUES: tuple[Gauge, ...] = (QUEUE_DEPTH, QUEUE_SCHEDULED, QUEUE_BYTES, QUEUE_OLDEST, QUEUE_GROUP_OLDEST)


class Watched(NamedTuple):
    """What is looked at."""

    stores: Stores
    queues: Queues
    log: Log
    keys: Keys
    clock: Clock


class WatchedFigures(BackgroundWork):
    """Looks at named queues, the disk and keys."""

    def __init__(self, watched: Watched, monitor: Monitor, settings: Settings, trust: Trust) -> None:
        super().__init__("watched figures", REST_SECONDS)
        self._stores, self._queues, self._log, self._keys, self._clock = watched
        self._monitor = monitor
        self.settings, self.trust = settings, trust
        """Of the server; a reload sets them anew."""
        self.wake()

    async def turn(self) -> None:
        """Look at everything once."""
        self.wake()
        self._look_at_disk()
        self._look_at_keys()
        await self._look_at_queues()

    def _look_at_disk(self) -> None:
        if self.settings.storage.backend != "sqlite":
            return
        try:
            free = shutil.disk_usage(self.settings.server.data).free
        except OSError as error:
            log.debug("the disk cannot be looked at: %s", error)
            return
        self._monitor.set(DISK_FREE, free)
        self._monitor.set(DISK_RESERVE, self.settings.storage.reserve_mb << 20)

    def _look_at_keys(self) -> None:
        created: dict[Labels, float] = {
            (app,): (ticks - EPOCH_TICKS) / TICKS_PER_SECOND for app, ticks in self._keys.oldest().items()
        }
        ages: dict[Labels, float] = {(name,): age for name, age in self.trust.key_ages().items()}
        self._monitor.replace(KEY_CREATED, created)
        self._monitor.replace(ISSUER_KEYS_AGE, ages)

    async def _look_at_queues(self) -> None:
        found: dict[Gauge, dict[Labels, float]] = {gauge: {} for gauge in _OF_QUEUES}
        for text in self.settings.metrics.queues:
            application, _, name = text.partition("/")
            if self.stopping:
                return
            try:
                queue = await self._queues.find(application, name)
                if queue is None:
                    continue
                for gauge, labels, value in await self._figures(queue):
                    found[gauge][application, name, *labels] = value
            except QueueyError as error:
                log.debug("queue %s cannot be looked at: %s", text, error)
        for gauge, series in found.items():
            self._monitor.replace(gauge, series)

    async def _figures(self, queue: Queue) -> Sequence[tuple[Gauge, Labels, float]]:
        """Gauges of one queue, with the labels behind its name."""
        states = await self._queues.inspect(queue)
        oldest = min([state.oldest for state in states if state.oldest], default=None)
        found: list[tuple[Gauge, Labels, float]] = [
            (QUEUE_DEPTH, (), sum([state.depth for state in states])),
            (QUEUE_SCHEDULED, (), sum([state.scheduled for state in states])),
            (QUEUE_BYTES, (), sum([state.bytes for state in states])),
            (QUEUE_OLDEST, (), self._age(oldest)),
        ]
        leases, offsets = self._stores.leases, self._stores.offsets
        for name in await leases.list_groups(queue.uuid, limit=MOST_GROUPS):
            if ":" not in name:  # a colon: the group of a task
                counts = await leases.count(queue.uuid, name, range(1, queue.partitions + 1))
                places = {number: one.done_up_to for number, one in counts.items()}
                found.append((QUEUE_GROUP_OLDEST, (name, "lease"), await self._oldest_behind(queue, places)))
        for name in await offsets.list_groups(queue.uuid, limit=MOST_GROUPS):
            stored = await offsets.read_offsets(queue.uuid, name)
            places_of_all = {
                number: stored.get(number, Offset()).id or ZERO_ID for number in range(1, queue.partitions + 1)
            }
            found.append((QUEUE_GROUP_OLDEST, (name, "offsets"), await self._oldest_behind(queue, places_of_all)))
        return found

    async def _oldest_behind(self, queue: Queue, places: Mapping[int, MessageId]) -> float:
        """The age of the oldest message that a group has not finished; 0 if there is none.

        :param places: by partition, the id up to which all is finished.
        """
        behind = await self._log.first_behind(queue, places)
        return self._age(min(behind.values(), default=None))

    def _age(self, message_id: MessageId | None) -> float:
        if message_id is None:
            return 0.0
        return max((self._clock.now_ticks() - message_id.ticks) / TICKS_PER_SECOND, 0.0)
