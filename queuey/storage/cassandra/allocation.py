"""Chooses buckets, by what this server has put into them.

It fills a partition's widest bucket first, then finer ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping

from queuey.locks import new_lock
from queuey.model import Consistency, PartitionId
from queuey.storage.cassandra.buckets import WIDTHS, Bucket, Mark
from queuey.storage.cassandra.rows import PartitionKey

FULL_ROWS = 20_000
"""Rows that one server puts into a bucket before it takes a finer one. With five servers that makes 100,000."""
FULL_BYTES = 20 << 20
KNOWN_PARTITIONS = 20_000
"""Partitions whose bucket use is remembered; the least used is forgotten first. They take about 40 MB."""
_KNOWN_BUCKETS = 12
"""Buckets remembered for one partition: those of now, and of some due times."""


class BucketUse:
    """What this server put into one bucket.

    Two threads that add at the same time may lose a count, which costs a little room.
    """

    __slots__ = ("bucket", "end", "marks", "partition_key", "rows", "size", "start")

    def __init__(self, bucket: Bucket, partition_key: PartitionKey) -> None:
        self.bucket = bucket
        self.start, self.end = bucket.start, bucket.end
        self.partition_key = partition_key
        self.rows = 0
        self.size = 0
        self.marks: Mapping[Mark, Consistency] = {}
        """Marks that are acknowledged, and by which copies: those of a weak append say nothing to readers of stronger ones."""

    @property
    def has_room(self) -> bool:
        return self.rows < FULL_ROWS and self.size < FULL_BYTES

    def add(self, rows: int, size: int) -> None:
        """Count rows and bytes that are on their way to the bucket."""
        self.rows += rows
        self.size += size

    def learn(self, mark: Mark, consistency: Consistency) -> None:
        """Note that this mark is acknowledged."""
        self.marks = {**self.marks, mark: consistency}


class _Known:
    """Buckets of one partition."""

    __slots__ = ("latest", "uses")

    def __init__(self) -> None:
        self.uses: OrderedDict[Bucket, BucketUse] = OrderedDict()
        self.latest: BucketUse | None = None
        """The last choice."""


class BucketAllocator:
    """What this server knows of the buckets it writes to. Thread-safe.

    Forgetting it costs extra writes, never a message.
    """

    def __init__(
        self, partition_key_of: Callable[[PartitionId, Bucket], PartitionKey], most: int = KNOWN_PARTITIONS
    ) -> None:
        self._partition_key_of = partition_key_of
        self._most = most
        self._lock = new_lock()
        self._partitions: OrderedDict[tuple[int, int], _Known] = OrderedDict()

    def choose(self, partition: PartitionId, ticks: int) -> BucketUse:
        """The bucket for a message of this moment.

        It is the widest one that this server has not filled.
        """
        key = (partition.queue.int, partition.number)
        with self._lock:
            known = self._partitions.get(key)
            if known is None:
                known = self._partitions[key] = _Known()
                if len(self._partitions) > self._most:
                    self._partitions.popitem(last=False)
            else:
                self._partitions.move_to_end(key)
                latest = known.latest
                # No wider bucket begins inside this one, so the choice holds until its end.
                if latest is not None and latest.start <= ticks <= latest.end and latest.has_room:
                    return latest
            use = known.latest = self._widest(partition, known.uses, ticks)
            return use

    def _widest(self, partition: PartitionId, uses: OrderedDict[Bucket, BucketUse], ticks: int) -> BucketUse:
        for level, width in enumerate(WIDTHS):
            use = self._use(partition, uses, Bucket(level, ticks // width))
            if use.has_room:
                break
        return use

    def _use(self, partition: PartitionId, uses: OrderedDict[Bucket, BucketUse], bucket: Bucket) -> BucketUse:
        use = uses.get(bucket)
        if use is not None:
            uses.move_to_end(bucket)
            return use
        use = uses[bucket] = BucketUse(bucket, self._partition_key_of(partition, bucket))
        if len(uses) > _KNOWN_BUCKETS:
            uses.popitem(last=False)
        return use
