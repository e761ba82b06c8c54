"""What one waiting reader hears of, and one partition that is waited for."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Self

from queuey.future import Future
from queuey.model import Consistency, PartitionId

if TYPE_CHECKING:
    from queuey.service.waiting.registry import Waiters

FAILED_LOOK_SECONDS = 1.0
"""Until the store is asked again that could not be asked."""


class WatchedPartition:
    """A partition that somebody watches."""

    __slots__ = ("consistency", "fired", "known", "next_ticks", "watches")

    def __init__(self, consistency: Consistency) -> None:
        self.consistency = consistency
        self.watches: set[Watch] = set()
        self.next_ticks: float = inf
        """The earliest message that is there and not readable yet, as far as that was heard of."""
        self.known = False
        """The store was asked for it; what came since was heard of."""
        self.fired = 0


class Watch:
    """One reader's view of the table. A context manager that leaves it."""

    __slots__ = (
        "_live",
        "closed",
        "in_thread",
        "invalidated",
        "news",
        "partitions",
        "promise",
        "readers",
        "timed",
        "unscanned",
        "until",
    )

    def __init__(self, live: Waiters, readers: Sequence[str], *, in_thread: bool) -> None:
        self._live = live
        self.readers = readers
        self.in_thread = in_thread
        self.partitions: dict[PartitionId, WatchedPartition] = {}
        self.news: set[PartitionId] = set()
        """Where something may have become readable since it was last heeded."""
        self.invalidated = False
        """Something else has happened: to a queue, or to the server."""
        self.unscanned: set[PartitionId] = set()
        """Where the store is to be asked for what is not readable yet."""
        self.promise: Future[None] | None = None
        self.until = inf
        self.timed = inf
        """When the thread looks at it."""
        self.closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hear of nothing more. May be repeated."""
        self._live.leave(self)

    def take_events(self) -> tuple[set[PartitionId], bool]:
        """What happened since the last call: partitions with news, and whether something else did.

        Call it before reading: what comes later makes the next wait short.
        """
        return self._live.take_events(self)

    async def wait(self, until: float) -> None:
        """Return when something happened since :meth:`take_events`, or when the elapsed time ``until`` has come."""
        if not await self._live.look_ahead(self):
            until = min(until, self._live.clock.elapsed() + FAILED_LOOK_SECONDS)
        await self._live.wait(self, until)
