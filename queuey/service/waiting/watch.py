"""What one waiting reader hears of, and the table of partitions that are watched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Protocol, Self
from uuid import UUID

from queuey.clock import Clock
from queuey.future import Future
from queuey.model import Consistency, PartitionId, Queue

FAILED_LOOK_SECONDS = 1.0
"""After this time the store is asked again that could not be asked."""


class Registry(Protocol):
    """What a watch asks of the registry that made it.

    It is :class:`~queuey.service.waiting.registry.Waiters`.
    """

    clock: Clock

    def leave(self, watch: Watch) -> None:
        """See :meth:`Watch.close`."""

    def take_events(self, watch: Watch) -> tuple[set[PartitionId], bool]:
        """See :meth:`Watch.take_events`."""

    async def look_ahead(self, watch: Watch) -> bool:
        """Ask the store for what is there and not readable yet."""

    def wait(self, watch: Watch, until: float) -> Future[None]:
        """A future: done when there is something to look at, or at ``until``.

        ``until`` is an elapsed time.
        """


class Watch:
    """One reader's view of the table. A context manager that leaves it.

    The registry's lock guards its fields.
    """

    __slots__ = (
        "_registry",
        "closed",
        "future",
        "in_thread",
        "invalidated",
        "partitions",
        "readable",
        "readers",
        "timed",
        "unscanned",
        "until",
    )

    def __init__(self, registry: Registry, readers: Sequence[str] | None, *, in_thread: bool) -> None:
        """:param readers: None if it counts as no reader."""
        self._registry = registry
        self.readers = readers
        self.in_thread = in_thread
        self.partitions: dict[PartitionId, WatchedPartition] = {}
        self.readable: set[PartitionId] = set()
        """Where something may have become readable since the last :meth:`take_events`."""
        self.invalidated = False
        """Something else has happened: to a queue, or to the server."""
        self.unscanned: set[PartitionId] = set()
        """Where the store is to be asked for what is not readable yet."""
        self.future: Future[None] | None = None
        """Of the wait that is under way."""
        self.until = inf
        """The elapsed time at which that wait ends by itself."""
        self.timed = inf
        """When the thread looks at it."""
        self.closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hear of nothing more. May be repeated."""
        self._registry.leave(self)

    def take_events(self) -> tuple[set[PartitionId], bool]:
        """The events since the last call.

        They are the partitions with something to read, and whether something else happened.

        Call it before reading: what comes later makes the next wait short.
        """
        return self._registry.take_events(self)

    async def wait(self, until: float) -> None:
        """Return when something happened since :meth:`take_events`, or at ``until``.

        ``until`` is an elapsed time.
        """
        if not await self._registry.look_ahead(self):
            until = min(until, self._registry.clock.elapsed() + FAILED_LOOK_SECONDS)
        await self._registry.wait(self, until)

    def end_wait(self) -> Iterator[Future[None]]:
        """With the lock held: the future of the wait under way, if there is one.

        The caller finishes it without the lock.
        """
        future, self.future = self.future, None
        if future is not None:
            yield future


class WatchedPartition:
    """A partition that somebody watches."""

    __slots__ = ("consistency", "fired", "known", "next_ticks", "passed_ticks", "watches")

    def __init__(self, consistency: Consistency, readable_ticks: int) -> None:
        """:param readable_ticks: up to which messages may be read by now."""
        self.consistency = consistency
        self.passed_ticks = readable_ticks
        """Whoever watches it reads messages up to here without being woken once more: it looks first, or was woken."""
        self.watches: set[Watch] = set()
        self.next_ticks: float = inf
        """The earliest message that is there and not readable yet, as far as this server heard of it."""
        self.known = False
        """Whether the store was asked for the first message that is not passed. Later ones are noted as they come."""
        self.fired = 0
        """How often a message of it fell due."""

    def wake(self, partition: PartitionId) -> Iterator[Future[None]]:
        """With the lock held: something became readable. The waits that end."""
        for watch in self.watches:
            watch.readable.add(partition)
            yield from watch.end_wait()

    def fall_due(self, partition: PartitionId, readable_ticks: int) -> Iterator[Future[None]]:
        """With the lock held: messages up to here became readable.

        There may be more behind them. Gives the waits that end.
        """
        self.passed_ticks = max(readable_ticks, self.passed_ticks)
        self.next_ticks, self.known = inf, False
        self.fired += 1
        for watch in self.watches:
            watch.unscanned.add(partition)
        return self.wake(partition)


class WatchTable:
    """All partitions that somebody watches.

    The caller holds the registry's lock to change it.
    """

    def __init__(self) -> None:
        self.partitions: dict[PartitionId, WatchedPartition] = {}

    def enter(self, watch: Watch, queue: Queue, number: int, readable_ticks: int) -> None:
        """Let a watch hear of a partition.

        :param readable_ticks: up to which messages may be read by now.
        """
        partition = queue.partition(number)
        watched = self.partitions.get(partition)
        if watched is None:
            watched = self.partitions[partition] = WatchedPartition(queue.consistency, readable_ticks)
        watched.watches.add(watch)
        watch.partitions[partition] = watched
        watch.unscanned.add(partition)

    def leave(self, watch: Watch, partitions: Iterable[PartitionId]) -> None:
        """Let a watch hear of some of its partitions no more."""
        for partition in list(partitions):
            watched = watch.partitions.pop(partition)
            watch.unscanned.discard(partition)
            watched.watches.discard(watch)
            if not watched.watches:
                self.partitions.pop(partition, None)

    def watches(self, queue: UUID | None = None) -> set[Watch]:
        """Those of one queue, or of all."""
        found = [one for partition, one in self.partitions.items() if queue is None or partition.queue == queue]
        return {watch for watched in found for watch in watched.watches}
