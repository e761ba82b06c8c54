"""The first step of an append: draw ids, choose buckets, build rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from queuey.clock import Clock
from queuey.ids import TICKS_PER_SECOND, IdGenerator, MessageId
from queuey.model import Draft, Location, PartitionId, Queue
from queuey.storage.cassandra.allocation import BucketAllocator, BucketUse
from queuey.storage.cassandra.buckets import Mark, tail_for
from queuey.storage.cassandra.clock import ClockGuard, WriteTimes
from queuey.storage.cassandra.rows import RowEncoder
from queuey.storage.checksums import beside


class BucketWrite:
    """What an append puts into one bucket."""

    __slots__ = ("largest", "partition", "rows", "size", "ttl_seconds", "use")

    def __init__(self, partition: PartitionId, use: BucketUse) -> None:
        self.partition = partition
        self.use = use
        self.rows: list[bytes] = []
        self.size = self.largest = self.ttl_seconds = 0

    def add(self, row: bytes, body_size: int, ttl_seconds: int) -> None:
        self.rows.append(row)
        self.size += len(row)
        self.largest = max(self.largest, body_size)
        self.ttl_seconds = max(self.ttl_seconds, ttl_seconds)

    @property
    def mark(self) -> Mark:
        """The mark that covers all of its messages."""
        return Mark.of(self.use.bucket.level, self.ttl_seconds, self.largest)


class StampedAppend(NamedTuple):
    """An append that has its ids."""

    placed: Sequence[Location]
    writes: Sequence[BucketWrite]
    first_ticks: int
    """The earliest id."""
    at: float
    """Elapsed seconds when the ids were drawn."""


class Stamper:
    """Draws ids of one process. Thread-safe."""

    def __init__(
        self, clock: Clock, ids: IdGenerator, times: WriteTimes, guard: ClockGuard | None, allocator: BucketAllocator
    ) -> None:
        self._clock = clock
        self._ids = ids
        self._times = times
        self._guard = guard
        self._allocator = allocator

    def stamp(self, queue: Queue, drafts: Sequence[Draft]) -> StampedAppend:
        """Draw ids for drafts, in their order.

        :raises ClockUnsafe: this server's clock may be too far off.
        """
        if self._guard is not None:
            self._guard.check()
        at, tick, write_time = self._clock.elapsed(), self._ids.stamp(len(drafts) or 1), self._times.append()
        first, tail = tick, self._ids.tail
        encode = RowEncoder(first, write_time).row
        writes: dict[BucketUse, BucketWrite] = {}
        due_now: dict[int, BucketWrite] = {}
        placed = []
        for number, body, ttl, content_type, key, due, _, headers in drafts:
            if due is None or due <= tick:
                write = due_now.get(number)
                if write is None or tick > write.use.end:
                    write = due_now[number] = self._write(queue, number, tick, writes)
                message_id = MessageId(tick, tail_for(write.use.bucket.level, tail))
                tick += 1
            else:
                write = self._write(queue, number, due, writes)
                message_id = MessageId(due, tail_for(write.use.bucket.level, self._ids.scheduled_tail()))
            expires = message_id.ticks + ttl * TICKS_PER_SECOND
            row = encode(write.use.partition_key, message_id, expires, body, beside(content_type, key, headers))
            write.add(row, len(body) + (len(headers) if headers else 0), ttl)
            placed.append(Location(number, message_id))
        for write in writes.values():
            write.use.add(len(write.rows), write.size)
        return StampedAppend(placed, list(writes.values()), first, at)

    def _write(self, queue: Queue, number: int, ticks: int, writes: dict[BucketUse, BucketWrite]) -> BucketWrite:
        partition = queue.partition(number)
        use = self._allocator.choose(partition, ticks)
        write = writes.get(use)
        if write is None:
            write = writes[use] = BucketWrite(partition, use)
        return write
