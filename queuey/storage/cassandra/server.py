"""What the stores of one server share when they lie in one keyspace."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from uuid import UUID

from queuey.clock import Clock
from queuey.ids import TICKS_PER_SECOND, IdGenerator
from queuey.storage import Observer, Unobserved
from queuey.storage.cassandra.clock import ClockGuard, WriteTimes
from queuey.storage.cassandra.rows import partition_key_of
from queuey.storage.cassandra.session import CassandraSession
from queuey.storage.cassandra.underway import Underway

__all__ = ["CassandraServer", "Dropped", "Timing"]

_DROPPED = 10_000
"""Incarnations whose end is remembered, to refuse what was under way; their names lead nowhere any more."""


@dataclass(frozen=True)
class Timing:
    """How long a write may take, so that the read delay is enough (G3)."""

    write_budget_seconds: float = 1.5
    """W; 0 switches the check off, and with it the promise."""
    clock_error_seconds: float = 0.25
    """E."""
    read_delay_seconds: float = 2.0
    """D, at least W + 2 E."""
    request_seconds: float = 10.0
    """How long an append tries again before its outcome is told as unknown."""


class Dropped:
    """The incarnations that this server dropped last."""

    def __init__(self) -> None:
        self._queues: dict[UUID, None] = {}

    def __contains__(self, queue: UUID) -> bool:
        return queue in self._queues

    def add(self, queue: UUID) -> None:
        self._queues[queue] = None
        while len(self._queues) > _DROPPED:
            self._queues.pop(next(iter(self._queues)))


class CassandraServer:
    """A session, the time, and what is under way."""

    def __init__(
        self,
        session: CassandraSession,
        clock: Clock,
        ids: IdGenerator,
        timing: Timing,
        guard: ClockGuard | None = None,
        observer: Observer | None = None,
    ) -> None:
        """:param guard: None trusts the clock: for tests, where time is told."""
        self.session = session
        self.clock = clock
        self.ids = ids
        self.timing = timing
        self.guard = guard
        self.observer = observer or Unobserved()
        self.times = WriteTimes(clock, timing.clock_error_seconds)
        self.underway = Underway(session.options.most_calls)
        self.dropped = Dropped()
        self.partition_key_of = partial(partition_key_of, session.query_id("message_insert"))
        self._read_delay_ticks = round(timing.read_delay_seconds * TICKS_PER_SECOND)

    def watermark(self) -> int:
        """See :meth:`queuey.storage.MessageStore.watermark`.

        :raises ClockUnsafe: this server's clock may be too far off to say.
        """
        if self.guard is None:
            return self.ids.watermark() - self._read_delay_ticks
        self.guard.check()
        watermark = self.ids.watermark() - self._read_delay_ticks
        self.guard.check()  # the clock may have been stepped just then
        return watermark
