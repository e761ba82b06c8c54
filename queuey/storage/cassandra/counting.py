"""Counts what lies in a partition in Cassandra; the nodes do the counting."""

from __future__ import annotations

from queuey.ids import MessageId
from queuey.model import Consistency, PartitionId, PartitionState
from queuey.storage.cassandra.buckets import FINEST, Bucket, Mark
from queuey.storage.cassandra.session import CassandraSession

__all__ = ["buckets_of", "inspect_one"]


async def inspect_one(session: CassandraSession, partition: PartitionId, now_ticks: int) -> PartitionState:
    """See :meth:`queuey.storage.MessageStore.inspect`."""
    level = session.to_read(Consistency.STRONG)
    depth = scheduled = size = 0
    ends: list[MessageId] = []
    for bucket in await buckets_of(session, partition):
        asked = (*partition, bucket.number)
        after = MessageId.first_of(bucket.start).before()
        ((count, oldest, newest, bodies),) = await session.ask("count", (*asked, after.uuid, now_ticks), level)
        depth += count
        size += int(bodies)
        if count:
            ends += [MessageId.from_bytes(oldest), MessageId.from_bytes(newest)]
        if bucket.end > now_ticks and count:
            rest = (*asked, MessageId.last_of(now_ticks).uuid, now_ticks)
            scheduled += (await session.ask("count", rest, level))[0][0]
    return PartitionState(depth, scheduled, min(ends, default=None), max(ends, default=None), size)


async def buckets_of(session: CassandraSession, partition: PartitionId) -> list[Bucket]:
    """All buckets of a partition that have messages of their own."""
    level, found = session.to_read(Consistency.STRONG), []
    for depth in range(FINEST + 1):
        low, high = Bucket(depth, 0).number, Bucket(depth + 1, 0).number - 1
        last, step = None, 5000
        while True:
            rows = await session.ask("buckets_ascending", (*partition, low, high, step), level)
            for number, mark, _ in rows:
                bucket = Bucket.from_number(number)
                if Mark.from_number(mark).level == depth and bucket != last:
                    found.append(bucket)
                    last = bucket
            if len(rows) < step:
                break
            low = rows[-1][0]
        if depth == 0 and not rows:
            break
    return list(dict.fromkeys(found))
