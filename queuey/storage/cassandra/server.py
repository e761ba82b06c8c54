"""What the stores of one server share if they lie in one keyspace."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from uuid import UUID

from queuey.clock import Clock
from queuey.ids import TICKS_PER_SECOND, IdGenerator
from queuey.storage.cassandra.bucket_counts import BucketCounts
from queuey.storage.cassandra.clock import ClockGuard, WriteTimes
from queuey.storage.cassandra.recent_changes import RecentChanges, RecentDeletions
from queuey.storage.cassandra.rows import partition_key_of
from queuey.storage.cassandra.session import CassandraSession
from queuey.storage.cassandra.underway import Underway
from queuey.storage.observing import Observer, Unobserved

__all__ = ["CassandraServer", "Dropped", "Timing"]

_DROPPED = 10_000
"""Incarnations whose drop is remembered, to refuse calls under way. After that their names lead nowhere."""


_REMEMBERED_SECONDS = 5.0
"""How long partitions are remembered in which this server deletes or overwrites: longer than anybody hands out what was
read ahead."""


@dataclass(frozen=True)
class Timing:
    """Time limits of writes that make the read delay long enough (G3)."""

    write_budget_seconds: float = 1.5
    """W, the write budget in seconds; 0 switches the check off, and with it the guarantee."""
    clock_error_seconds: float = 0.25
    """E, the bound of the clock error."""
    read_delay_seconds: float = 2.0
    """D, the read delay: at least W + 2 E."""
    request_seconds: float = 10.0
    """How long an append is retried before its outcome counts as unknown."""


class Dropped:
    """The incarnations that this server dropped most recently."""

    def __init__(self) -> None:
        self._queues: dict[UUID, None] = {}

    def __contains__(self, queue: UUID) -> bool:
        return queue in self._queues

    def add(self, queue: UUID) -> None:
        self._queues[queue] = None
        while len(self._queues) > _DROPPED:
            self._queues.pop(next(iter(self._queues)))


class CassandraServer:
    """A session, the clock, and the calls under way."""

    def __init__(
        self,
        session: CassandraSession,
        clock: Clock,
        ids: IdGenerator,
        timing: Timing,
        guard: ClockGuard | None = None,
        observer: Observer | None = None,
    ) -> None:
        """:param guard: None trusts the clock: for tests with a manual clock."""
        self.session = session
        self.clock = clock
        self.ids = ids
        self.timing = timing
        self.guard = guard
        self.observer = observer or Unobserved()
        self.times = WriteTimes(clock, timing.clock_error_seconds)
        self.underway = Underway(session.options.most_calls)
        self.dropped = Dropped()
        self.counts = BucketCounts()
        self.changed = RecentChanges(_REMEMBERED_SECONDS)
        self.deletions = RecentDeletions(round(_REMEMBERED_SECONDS * 1_000_000))
        self.partition_key_of = partial(partition_key_of, session.query_id("message_insert"))
        self._read_delay_ticks = round(timing.read_delay_seconds * TICKS_PER_SECOND)

    def watermark(self) -> int:
        """See :meth:`queuey.storage.MessageStore.watermark`.

        :raises ClockUnsafe: this server's clock may be too far off.
        """
        self.check_clock()
        watermark = self.ids.watermark() - self._read_delay_ticks
        self.check_clock()  # the clock may have been stepped in between
        return watermark

    def check_clock(self) -> None:
        """What was drawn from the clock just now is right.

        :raises ClockUnsafe: this server's clock may be too far off.
        """
        if self.guard is not None:
            self.guard.check()
