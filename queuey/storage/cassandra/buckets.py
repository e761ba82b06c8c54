"""Time buckets: which Cassandra partition a message lies in.

So that no partition grows without bound.

A bucket is one of four widths, from ten days down to ten seconds. Each server fills the widest
first; once it has put 20,000 rows or 20 MiB there, it goes on in the
next finer one, and so on. A sparse queue so has one bucket in ten days, and the most a queue can
take has one in ten seconds; no server needs to know what another does.

The level stands in two bits of the id's clock sequence, so an id alone says where its message
lies. What an id cannot say is which buckets there are: that is what marks are for, rows that are
acknowledged before the first message they speak for (G3, rule 6). docs/decisions/009.
"""

from __future__ import annotations

from typing import NamedTuple

from queuey.ids import TICKS_PER_SECOND, MessageId

WIDTHS = tuple(seconds * TICKS_PER_SECOND for seconds in (864_000, 36_000, 600, 10))
"""Of the levels, in ticks: ten days, ten hours, ten minutes, ten seconds. Each divides the one before."""
FINEST = len(WIDTHS) - 1
_SPARE_SECONDS = 86_400
"""How much longer than its messages a mark lives."""
_LEVEL_SHIFT = 48
_LEVEL_MASK = 3 << _LEVEL_SHIFT
_INDEX_BITS = 40


class Bucket(NamedTuple):
    """One stretch of time of one partition."""

    level: int
    ordinal: int
    """How many widths after the beginning of ticks."""

    @classmethod
    def at(cls, level: int, ticks: int) -> Bucket:
        return cls(level, ticks // WIDTHS[level])

    @classmethod
    def of(cls, message_id: MessageId) -> Bucket:
        """Where the message of this id lies."""
        level = (message_id.tail & _LEVEL_MASK) >> _LEVEL_SHIFT
        return cls(level, message_id.ticks // WIDTHS[level])

    @classmethod
    def from_number(cls, number: int) -> Bucket:
        return cls(number >> _INDEX_BITS, number & ((1 << _INDEX_BITS) - 1))

    @property
    def number(self) -> int:
        """The column ``bucket``: level by level, in order of time.

        >>> Bucket.from_number(Bucket(3, 7).number)
        Bucket(level=3, ordinal=7)
        """
        return self.level << _INDEX_BITS | self.ordinal

    @property
    def start(self) -> int:
        """The first tick."""
        return self.ordinal * WIDTHS[self.level]

    @property
    def end(self) -> int:
        """The last tick."""
        return (self.ordinal + 1) * WIDTHS[self.level] - 1

    @property
    def widest(self) -> Bucket:
        """The bucket of level 0 around it, whose marks tell of it."""
        return Bucket(0, self.start // WIDTHS[0])


def tail_for(level: int, tail: int) -> int:
    """An id's tail with a level in it.

    Ids of one tick are ordered by level, then by tail.

    >>> from queuey.ids import MessageId
    >>> [Bucket.of(MessageId(137 * 10**15, tail_for(level, -5))).level for level in range(4)]
    [0, 1, 2, 3]
    """
    return tail & ~_LEVEL_MASK | level << _LEVEL_SHIFT


class Mark(NamedTuple):
    """A statement about a bucket, acknowledged before its messages.

    It has messages of this level, no larger and no longer-lived than this.
    """

    level: int
    ttl_class: int
    """A TTL of up to 2 to this power, in seconds."""
    size_class: int
    """A body of up to 2 to this power, in bytes."""

    @classmethod
    def of(cls, level: int, ttl_seconds: int, size: int) -> Mark:
        """
        >>> Mark.of(2, 259_200, 300)
        Mark(level=2, ttl_class=18, size_class=10)
        """
        return cls(level, max(10, (ttl_seconds - 1).bit_length()), max(10, (size - 1).bit_length() if size else 0))

    @classmethod
    def from_number(cls, number: int) -> Mark:
        return cls(number >> 16, number >> 8 & 0xFF, number & 0xFF)

    @property
    def number(self) -> int:
        """The column ``mark``."""
        return self.level << 16 | self.ttl_class << 8 | self.size_class

    def lives_seconds(self, bucket: Bucket, now_ticks: int) -> int:
        """How long a mark must last.

        Until the last message that can be in the bucket has expired.
        """
        until_end = max(0, bucket.end - now_ticks) // TICKS_PER_SECOND + 1
        return until_end + (1 << self.ttl_class) + _SPARE_SECONDS
