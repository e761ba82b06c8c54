"""Gives back messages that all lease groups of a queue have settled, if the queue says so.

Each step of a lease group that may settle messages notes its queue, and so does a group that is forgotten or begins
anew, and a change of the queue. A thread then looks how far all groups of the queue are, and removes what lies before
that. So nothing is removed that a group may still hand out, and a queue at rest costs nothing.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar
from uuid import UUID

from queuey import future
from queuey.background import BackgroundWork
from queuey.clock import Clock
from queuey.errors import QueueyError
from queuey.future import Future
from queuey.ids import ZERO_ID, MessageId
from queuey.locks import new_lock
from queuey.model import PartitionId, Queue, Retention, Span, SpanRemoval
from queuey.monitor.metrics import MESSAGES_SETTLED_REMOVED, Monitor
from queuey.service.leases import Leases
from queuey.service.log import Log
from queuey.service.queues import Queues

__all__ = ["Retained"]

log = logging.getLogger(__name__)

T = TypeVar("T")

REST_SECONDS, SHARED_REST_SECONDS = 1.0, 10.0
"""Between two looks at a queue: in a store of one server, and in one of several, where each look leaves a tombstone."""
_MOST_TOGETHER = 2000
"""Messages that are removed together: a few milliseconds of an embedded store's writer."""
_PLACES_TOGETHER = 32
"""Queues that are looked at together, and partitions from which is removed together: they share commits."""
_MOST_QUEUES = 10_000
"""Queues that wait for a look; the one that waits longest is forgotten first, and is noted again by its next step."""


class _Settled(NamedTuple):
    """A partition, and up to where all groups have settled its messages."""

    queue: Queue
    number: int
    upto: MessageId

    @property
    def place(self) -> PartitionId:
        return self.queue.partition(self.number)


class Retained(BackgroundWork):
    """The queues of one server whose messages go once they are settled."""

    def __init__(self, log: Log, queues: Queues, leases: Leases, clock: Clock, monitor: Monitor) -> None:
        super().__init__("retention", SHARED_REST_SECONDS if log.reads_elsewhere else REST_SECONDS)
        self._log, self._queues, self._leases = log, queues, leases
        self._clock, self._monitor = clock, monitor
        self._noted: OrderedDict[UUID, Queue] = OrderedDict()
        self._gone: OrderedDict[PartitionId, MessageId] = OrderedDict()
        """Up to where partitions are empty, as far as it is known."""
        self._failing, self._failed = set[UUID](), set[UUID]()
        """Queues of which something could not be removed in this turn, and in the one before."""
        self._lock = new_lock()

    def note(self, queue: Queue) -> None:
        """Messages of this queue may be settled by all of its lease groups now."""
        if queue.retention is not Retention.ACKNOWLEDGED:
            return
        with self._lock:
            self._noted[queue.uuid] = queue
            if len(self._noted) > _MOST_QUEUES:
                self._noted.popitem(last=False)
        self.wake()

    async def turn(self) -> None:
        """Look at each queue that was noted."""
        with self._lock:
            noted, self._noted = self._noted, OrderedDict()
        self._failing, self._failed = set(), self._failing
        for queues in _portions([*noted.values()]):
            for settled in _portions(await self._settled(queues)):
                if self.stopping:
                    return
                await self._remove(settled)

    async def _settled(self, queues: Sequence[Queue]) -> list[_Settled]:
        """Partitions of some queues with messages that may go."""
        asked = [(queue, future.start(self._settled_of(queue))) for queue in queues]
        found: list[_Settled] = []
        for queue, settled in asked:
            with self._kept_if_failing(queue):
                found += [_Settled(queue, number, upto) for number, upto in (await settled).items()]
        return [one for one in found if self._gone.get(one.place, ZERO_ID) < one.upto]

    async def _remove(self, several: Sequence[_Settled]) -> None:
        """Remove what may go: a share of each partition in one commit, then the rest of one after the other."""
        share = _MOST_TOGETHER // len(several)
        for one, removal in [(one, self._removal(one, share)) for one in several]:
            with self._kept_if_failing(one.queue):
                before, gone = self._gone.get(one.place, ZERO_ID), self._note(one, await removal)
                while before < gone < (upto := await self._upto(one)) and not self.stopping:
                    removal = self._removal(one._replace(upto=upto), _MOST_TOGETHER)  # noqa: PLW2901
                    before, gone = gone, self._note(one, await removal)

    @contextmanager
    def _kept_if_failing(self, queue: Queue) -> Iterator[None]:
        """What cannot be removed now stays for the next look, and the log says so once."""
        try:
            yield
        except QueueyError as error:
            if queue.uuid not in self._failing | self._failed:
                log.info("settled messages of %s/%s stay for now: %s", queue.application, queue.name, error)
            self._failing.add(queue.uuid)
            with self._lock:
                self._noted.setdefault(queue.uuid, queue)  # what was noted meanwhile is newer
            self.wake()

    async def _upto(self, one: _Settled) -> MessageId:
        """Up to where its messages may go still: a group may have begun, or was reset, while others of them went."""
        settled = await self._settled_of(one.queue)
        return min(one.upto, settled.get(one.number, ZERO_ID))

    async def _settled_of(self, queue: Queue) -> Mapping[int, MessageId]:
        """See :meth:`Leases.settled_by_all`; empty if the queue gives nothing away any more."""
        found = await self._queues.find(queue.application, queue.name)
        if found is None or (found.uuid, found.retention) != (queue.uuid, Retention.ACKNOWLEDGED):
            return {}
        return await self._leases.settled_by_all(queue)

    def _removal(self, one: _Settled, most: int) -> Future[SpanRemoval]:
        """Remove the first messages that may go."""
        span = Span(self._gone.get(one.place, ZERO_ID), one.upto)
        return future.start(self._log.delete_span(one.queue, one.number, span, most=most, whole=True))

    def _note(self, one: _Settled, removed: SpanRemoval) -> MessageId:
        """Note what is gone; returns up to where."""
        self._gone[one.place] = removed.upto
        self._gone.move_to_end(one.place)
        if len(self._gone) > _MOST_QUEUES:
            self._gone.popitem(last=False)
        self._monitor.count(MESSAGES_SETTLED_REMOVED, removed.messages, one.queue.application)
        return removed.upto


def _portions(values: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), _PLACES_TOGETHER):
        yield values[start : start + _PLACES_TOGETHER]
