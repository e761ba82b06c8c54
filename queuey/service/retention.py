"""Gives back messages that all lease groups of a queue have settled, if the queue says so.

Each step of a lease group notes its queue. A thread then looks how far all groups of the queue are, and removes what lies
before that. So nothing is removed that a group may still hand out, and a queue at rest costs nothing.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from uuid import UUID

from queuey.clock import Clock
from queuey.errors import QueueyError
from queuey.ids import ZERO_ID, MessageId
from queuey.locks import new_lock
from queuey.model import PartitionId, Queue, Span
from queuey.monitor.metrics import MESSAGES_SETTLED_REMOVED, Monitor
from queuey.service.background import BackgroundWork
from queuey.service.leases import Leases
from queuey.service.log import Log

__all__ = ["Retained"]

log = logging.getLogger(__name__)

REST_SECONDS, SHARED_REST_SECONDS = 1.0, 10.0
"""Between two looks at a queue: in a store of one server, and in one of several, where each look leaves a tombstone."""
_MOST_TOGETHER = 2000
"""Messages that are removed together: a few milliseconds of an embedded store's writer."""
_MOST_QUEUES = 10_000
"""Queues that wait for a look; the one that waits longest is forgotten first, and is noted again by its next step."""


class Retained(BackgroundWork):
    """The queues of one server whose messages go once they are settled."""

    def __init__(self, log: Log, leases: Leases, clock: Clock, monitor: Monitor) -> None:
        super().__init__("retention", SHARED_REST_SECONDS if log.reads_elsewhere else REST_SECONDS)
        self._log, self._leases, self._clock, self._monitor = log, leases, clock, monitor
        self._noted: OrderedDict[UUID, Queue] = OrderedDict()
        self._gone: OrderedDict[PartitionId, MessageId] = OrderedDict()
        """Up to where partitions are empty, as far as it is known."""
        self._lock = new_lock()

    def note(self, queue: Queue) -> None:
        """A lease group of this queue has done a step."""
        with self._lock:
            self._noted[queue.uuid] = queue
            if len(self._noted) > _MOST_QUEUES:
                self._noted.popitem(last=False)
        self.wake()

    async def turn(self) -> None:
        """Look at each queue that was noted."""
        with self._lock:
            noted, self._noted = self._noted, OrderedDict()
        for queue in noted.values():
            try:
                await self._look_at(queue)
            except QueueyError as error:
                log.info("settled messages of %s/%s stay for now: %s", queue.application, queue.name, error)

    async def _look_at(self, queue: Queue) -> None:
        for number, upto in (await self._leases.settled_by_all(queue)).items():
            place = queue.partition(number)
            after = self._gone.pop(place, ZERO_ID)
            removed = 0
            while after < upto and not self.stopping:
                found = await self._log.delete_span(queue, number, Span(after, upto), most=_MOST_TOGETHER, whole=True)
                removed += found.messages
                if found.upto <= after:
                    break
                after = found.upto
            self._gone[place] = after
            if len(self._gone) > _MOST_QUEUES:
                self._gone.popitem(last=False)
            self._monitor.count(MESSAGES_SETTLED_REMOVED, removed, queue.application)
