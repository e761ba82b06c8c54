"""Counts what lies in a partition in Cassandra, bucket by bucket; the nodes do the counting.

Only the buckets that may have changed are counted. The others are remembered
(:mod:`queuey.storage.cassandra.bucket_counts`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from queuey.future import Future, start
from queuey.ids import TICKS_PER_SECOND, ZERO_ID, MessageId
from queuey.model import EMPTY_PARTITION, Consistency, PartitionId, PartitionState, Span
from queuey.storage.cassandra.bucket_counts import BucketCount, Place
from queuey.storage.cassandra.buckets import FINEST, Bucket, Mark
from queuey.storage.cassandra.driver_errors import TooManyTombstones
from queuey.storage.cassandra.server import CassandraServer
from queuey.storage.cassandra.session import CassandraSession, Rows
from queuey.storage.cassandra.tombstones import parts_of, parts_of_numbers, read_in_parts

__all__ = ["CassandraInspector", "buckets_of"]

_AT_ONCE = 32
"""Buckets of one partition that are counted at once."""
_NEVER = 1 << 62
"""When the first message of an empty bucket expires."""
_NOTHING = BucketCount(0, 0, None, None, _NEVER)


class CassandraInspector:
    """Inspects partitions."""

    def __init__(self, server: CassandraServer, slow: Callable[[PartitionId], object] = lambda _: None) -> None:
        """:param slow: called with a partition whose tombstones have a bucket counted in parts."""
        self._slow = slow
        self._server = server
        self._session = server.session
        timing = server.timing
        seconds = timing.write_budget_seconds + timing.clock_error_seconds + timing.read_delay_seconds
        self._open_ticks = round(seconds * TICKS_PER_SECOND)
        """How long after its end a bucket may still get messages: the slowest append of the server whose clock is
        furthest behind."""

    async def inspect_until(
        self, partitions: Sequence[PartitionId], now_ticks: int, seconds: float
    ) -> Sequence[PartitionState]:
        """One after the other, until the time is up."""
        server, found = self._server, list[PartitionState]()
        end = server.clock.elapsed() + seconds
        for partition in partitions:
            if server.clock.elapsed() >= end:
                break
            is_dropped = partition.queue in server.dropped
            found.append(EMPTY_PARTITION if is_dropped else await self.inspect(partition, now_ticks))
        return found

    async def inspect(self, partition: PartitionId, now_ticks: int) -> PartitionState:
        """See :meth:`queuey.storage.MessageStore.inspect`.

        Appends and expired messages are counted exactly, and so is what this server deletes or overwrites. What other
        servers delete or overwrite is counted at the latest
        :data:`~queuey.storage.cassandra.bucket_counts.COUNTED_AGAIN_SECONDS` later. So is an append to a weak queue, or
        one without a write budget.
        """
        buckets, head = await buckets_of(self._session, partition)
        counts: list[BucketCount] = []
        scheduled = 0
        for first in range(0, len(buckets), _AT_ONCE):
            asked = [start(self._count(partition, one, head, now_ticks)) for one in buckets[first : first + _AT_ONCE]]
            for bucket, future in zip(buckets[first:], asked, strict=False):
                count = await future
                counts.append(count)
                if bucket.end > now_ticks and count.messages:
                    later = await self._ask(partition, bucket, MessageId.last_of(now_ticks), now_ticks)
                    scheduled += later.messages
        return PartitionState(
            sum([count.messages for count in counts]),
            scheduled,
            min([count.oldest for count in counts if count.oldest is not None], default=None),
            max([count.newest for count in counts if count.newest is not None], default=None),
            sum([count.size for count in counts]),
        )

    async def _count(self, partition: PartitionId, bucket: Bucket, head: MessageId, now_ticks: int) -> BucketCount:
        """The live messages of a bucket, as remembered or counted."""
        if bucket.end < head.ticks:
            return _NOTHING
        start_of_bucket = max(MessageId.first_of(bucket.start), head).before()
        if bucket.end + self._open_ticks >= now_ticks:
            return await self._ask(partition, bucket, start_of_bucket, now_ticks)
        place, elapsed, counts = (partition, bucket), self._server.clock.elapsed(), self._server.counts
        known = counts.find(place, now_ticks, elapsed)
        if known is not None:
            return known
        question, count = counts.ask(place), None
        try:
            count = await self._ask(partition, bucket, start_of_bucket, now_ticks)
            return count
        finally:
            counts.keep(place, question, count, elapsed)

    async def _ask(self, partition: PartitionId, bucket: Bucket, after: MessageId, now_ticks: int) -> BucketCount:
        """Let the nodes count the live messages of a bucket behind an id."""
        span = Span(after, MessageId.last_of(bucket.end))
        return await self._ask_span((partition, bucket), span, now_ticks)

    async def _ask_span(self, place: Place, span: Span, now_ticks: int) -> BucketCount:
        (partition, bucket), level = place, self._session.to_read(Consistency.STRONG)
        try:
            rows = await self._session.ask(
                "count", (*partition, bucket.number, span.after.uuid, span.upto.uuid, now_ticks), level
            )
        except TooManyTombstones:
            parts = parts_of(span)
            if not parts:
                raise
            self._slow(partition)
            return _sum([await self._ask_span(place, part, now_ticks) for part in parts])
        ((messages, oldest, newest, size, expires),) = rows
        if not messages:
            return _NOTHING
        return BucketCount(messages, int(size), MessageId.from_bytes(oldest), MessageId.from_bytes(newest), expires)


def _sum(parts: Sequence[BucketCount]) -> BucketCount:
    """The count of spans that follow each other."""
    there = [part for part in parts if part.messages]
    if not there:
        return _NOTHING
    messages, sizes = sum([part.messages for part in there]), sum([part.size for part in there])
    return BucketCount(messages, sizes, there[0].oldest, there[-1].newest, min([part.expires_ticks for part in there]))


async def buckets_of(session: CassandraSession, partition: PartitionId) -> tuple[Sequence[Bucket], MessageId]:
    """All buckets of a partition that have messages of their own, and below which id none lives."""
    head, level, found = ZERO_ID, session.to_read(Consistency.STRONG), list[Bucket]()

    def ask(numbers: range, limit: int) -> Future[Rows]:
        return session.ask("buckets_ascending", (*partition, numbers[0], numbers[-1], limit), level)

    for depth in range(FINEST + 1):
        low, high = Bucket(depth, 0).number, Bucket(depth + 1, 0).number - 1
        last, step = None, 5000
        while True:
            rows = await read_in_parts(ask, range(low, high + 1), step, parts_of=parts_of_numbers)
            for number, mark, noted in rows:
                head = ZERO_ID if noted is None else MessageId.from_bytes(noted)
                bucket = Bucket.from_number(number)
                if Mark.from_number(mark).level == depth and bucket != last:
                    found.append(bucket)
                    last = bucket
            if len(rows) < step:
                break
            low = rows[-1][0]
        if depth == 0 and not rows:
            break
    return list(dict.fromkeys(found)), head
