"""Group commit: requests for one partition are stored together.

A group is stamped, sent and checked as one, with one write of one Cassandra partition and one entry in its log. Thus
many clients cost little more than one. A group begins when the event loop has handled everything that had arrived: it
has company without waiting for any, and a lone request is sent at once. While some groups of a partition are under way,
requests for it gather until one of them is done.

The requests of a group share its write, and so its outcome. A request for several partitions, or for later, has writes
of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import NamedTuple

from queuey.clock import Clock
from queuey.errors import StorageUnavailable
from queuey.future import Future, at_turns_end, settled_together, start
from queuey.locks import new_lock
from queuey.model import Consistency, Draft, Location, Queue, bytes_of
from queuey.storage.observing import Observer

UNDER_WAY = 4
"""Groups of one partition that are stored at the same time, at most."""
GROUP_ROWS = 1000
GROUP_BYTES = 512 << 10
"""Limits of a group. It ends with the request that passes one of them, since Cassandra takes no write of more than
about 8 MiB."""

Store = Callable[[Queue, Sequence[Draft]], Awaitable[Sequence[Location]]]
"""Stores messages, and returns their locations."""
_Partition = tuple[int, int, Consistency]


class _Waiting(NamedTuple):
    """One request."""

    queue: Queue
    drafts: Sequence[Draft]
    since: float
    until: float
    """Elapsed seconds after which its time is up."""
    placed: Future[Sequence[Location]]


class PartitionLine:
    """The requests that wait for one partition."""

    __slots__ = ("starting", "under_way", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[_Waiting] = deque()
        self.under_way = 0
        self.starting = False
        """Count one more group, which is about to begin."""


def may_share(drafts: Sequence[Draft]) -> bool:
    """Whether a request can join others: it is for now, and for one partition."""
    partition = drafts[0].partition if drafts else 0
    for draft in drafts:
        if draft.partition != partition or draft.due_ticks is not None:
            return False
    return bool(drafts)


class GroupCommit:
    """The requests that are grouped by partition. Thread-safe.

    It remembers only partitions with a group under way.
    """

    def __init__(self, store: Store, clock: Clock, observer: Observer, patience_seconds: float) -> None:
        """:param patience_seconds: how long a request waits for those before it."""
        self._store = store
        self._clock = clock
        self._observer = observer
        self._patience = patience_seconds
        self._lock = new_lock()
        self._lines: dict[_Partition, PartitionLine] = {}
        self._starting: list[_Partition] = []

    def append(self, queue: Queue, drafts: Sequence[Draft]) -> Future[Sequence[Location]]:
        """Store drafts that :func:`may_share`.

        :raises StorageUnavailable: nothing is stored.
        :raises OutcomeUnknown: some of it may be stored now or later.
        """
        until = self._clock.elapsed() + self._patience
        one = _Waiting(queue, drafts, perf_counter(), until, Future())
        partition = (queue.uuid.int, drafts[0].partition, queue.consistency)
        with self._lock:
            line = self._lines.get(partition)
            if line is None:
                line = self._lines[partition] = PartitionLine()
            line.waiting.append(one)
            if line.starting or line.under_way == UNDER_WAY:
                return one.placed
            line.starting = True
            self._starting.append(partition)
            called = len(self._starting) > 1
        if not called:
            at_turns_end(self._start)
        return one.placed

    def _start(self) -> None:
        with self._lock:
            starting, self._starting = self._starting, []
            for partition in starting:
                line = self._lines[partition]
                line.starting = False
                line.under_way += 1
        for partition in starting:
            start(self._carry(partition))

    async def _carry(self, partition: _Partition) -> None:
        """Store one group after the other, until no request waits."""
        while group := self._next(partition):
            try:
                await self._store_together(group)
            except Exception as error:  # noqa: BLE001 - the error is the waiting requests'; more requests come
                for one in group:
                    if not one.placed.done:
                        one.placed.set_error(error)

    async def _store_together(self, group: Sequence[_Waiting]) -> None:
        drafts = group[0].drafts if len(group) == 1 else [draft for one in group for draft in one.drafts]
        began = perf_counter()
        placed = await self._store(group[-1].queue, drafts)
        now, first = perf_counter(), 0
        self._observer.committed(len(drafts), now - began)
        with settled_together():
            for one in group:
                last = first + len(one.drafts)
                self._observer.took("append", now - one.since)
                one.placed.set_result(placed[first:last])
                first = last

    def _next(self, partition: _Partition) -> list[_Waiting]:
        """The requests of the next group; empty if none wait, and then the turn ends."""
        now, group, late = self._clock.elapsed(), list[_Waiting](), list[_Waiting]()
        rows = size = 0
        with self._lock:
            line = self._lines[partition]
            while line.waiting and rows < GROUP_ROWS and size < GROUP_BYTES:
                one = line.waiting.popleft()
                if one.until < now:
                    late.append(one)
                    continue
                group.append(one)
                rows += len(one.drafts)
                size += bytes_of(one.drafts)
            if not group:
                line.under_way -= 1
                if not line.under_way and not line.starting:
                    del self._lines[partition]
        for one in late:
            one.placed.set_error(
                StorageUnavailable("Cassandra did not take earlier messages in time: nothing was stored")
            )
        return group
