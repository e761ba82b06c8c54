"""The first step of an append: ids are drawn, buckets chosen, rows made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from queuey.clock import Clock
from queuey.ids import TICKS_PER_SECOND, IdGenerator, MessageId
from queuey.model import Draft, Location, PartitionId, Queue
from queuey.storage.cassandra.allocation import BucketAllocator, BucketUse
from queuey.storage.cassandra.buckets import Mark, tail_for
from queuey.storage.cassandra.clock import ClockGuard, WriteTimes
from queuey.storage.cassandra.rows import encoded


class BucketWrite:
    """What an append puts into one bucket."""

    __slots__ = ("fill", "largest", "partition", "rows", "size", "ttl_seconds")

    def __init__(self, partition: PartitionId, fill: BucketUse) -> None:
        self.partition = partition
        self.fill = fill
        self.rows: list[bytes] = []
        self.size = self.largest = self.ttl_seconds = 0

    def add(self, row: bytes, body_size: int, ttl_seconds: int) -> None:
        self.rows.append(row)
        self.size += len(row)
        self.largest = max(self.largest, body_size)
        self.ttl_seconds = max(self.ttl_seconds, ttl_seconds)

    @property
    def mark(self) -> Mark:
        """What speaks for all of its messages."""
        return Mark.of(self.fill.bucket.level, self.ttl_seconds, self.largest)


class StampedAppend(NamedTuple):
    """An append that has its ids."""

    placed: Sequence[Location]
    lots: Sequence[BucketWrite]
    first_ticks: int
    """The earliest id."""
    at: float
    """Elapsed seconds at the stamp."""


class Stamper:
    """Draws ids of one process. Thread-safe."""

    def __init__(
        self, clock: Clock, ids: IdGenerator, times: WriteTimes, guard: ClockGuard | None, fills: BucketAllocator
    ) -> None:
        self._clock = clock
        self._ids = ids
        self._times = times
        self._guard = guard
        self._fills = fills

    def stamp(self, queue: Queue, drafts: Sequence[Draft]) -> StampedAppend:
        """Draw ids for drafts, in their order.

        :raises ClockUnsafe: this server's clock may be too far off.
        """
        if self._guard is not None:
            self._guard.check()
        at, tick, write_time = self._clock.elapsed(), self._ids.stamp(len(drafts) or 1), self._times.append()
        first, tail = tick, self._ids.tail
        lots: dict[BucketUse, BucketWrite] = {}
        due_now: dict[int, BucketWrite] = {}
        placed = []
        for number, body, ttl, content_type, key, due, _ in drafts:
            if due is None or due <= tick:
                lot = due_now.get(number)
                if lot is None or tick > lot.fill.end:
                    lot = due_now[number] = self._lot(queue, number, tick, lots)
                message_id = MessageId(tick, tail_for(lot.fill.bucket.level, tail))
                tick += 1
            else:
                lot = self._lot(queue, number, due, lots)
                message_id = MessageId(due, tail_for(lot.fill.bucket.level, self._ids.scheduled_tail()))
            expires = message_id.ticks + ttl * TICKS_PER_SECOND
            row = encoded(lot.fill.place, message_id, expires, content_type, key, body, first, write_time)
            lot.add(row, len(body), ttl)
            placed.append(Location(number, message_id))
        for lot in lots.values():
            lot.fill.add(len(lot.rows), lot.size)
        return StampedAppend(placed, list(lots.values()), first, at)

    def _lot(self, queue: Queue, number: int, ticks: int, lots: dict[BucketUse, BucketWrite]) -> BucketWrite:
        partition = queue.partition(number)
        fill = self._fills.choose(partition, ticks)
        lot = lots.get(fill)
        if lot is None:
            lot = lots[fill] = BucketWrite(partition, fill)
        return lot
