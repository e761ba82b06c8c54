"""Time buckets: the Cassandra partition in which a message lies.

They bound the size of every Cassandra partition. A bucket has one of four widths, from ten days down to ten seconds.
Each server fills the widest first. Once it has put 20,000 rows or 20 MiB there, it goes on in the next finer one, and
so on. So a sparse queue has one bucket in ten days, and the busiest queue has one in ten seconds. No server needs to
know what another does.

The level stands in two bits of the id's clock sequence, so an id alone tells where its message lies. It does not tell
which buckets exist. Marks do: rows that are acknowledged before the first message they speak for (G3, rule 6).
docs/decisions/009.
"""

from __future__ import annotations

from typing import NamedTuple

from queuey.ids import TICKS_PER_SECOND, MessageId

WIDTHS = tuple(seconds * TICKS_PER_SECOND for seconds in (864_000, 36_000, 600, 10))
"""Widths of the levels in ticks: ten days, ten hours, ten minutes, ten seconds. Each divides the one before."""
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
    """The number of widths since the beginning of ticks."""

    @classmethod
    def at(cls, level: int, ticks: int) -> Bucket:
        return cls(level, ticks // WIDTHS[level])

    @classmethod
    def of(cls, message_id: MessageId) -> Bucket:
        """The bucket of the message with this id."""
        level = (message_id.tail & _LEVEL_MASK) >> _LEVEL_SHIFT
        return cls(level, message_id.ticks // WIDTHS[level])

    @classmethod
    def from_number(cls, number: int) -> Bucket:
        return cls(number >> _INDEX_BITS, number & ((1 << _INDEX_BITS) - 1))

    @property
    def number(self) -> int:
        """The column ``bucket``: ordered by level, then by time.

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
        """The bucket of level 0 around it, which has its marks."""
        return Bucket(0, self.start // WIDTHS[0])


def tail_for(level: int, tail: int) -> int:
    """An id's tail with a level put in.

    Ids of one tick are ordered by level, then by tail.

    >>> from queuey.ids import MessageId
    >>> [Bucket.of(MessageId(137 * 10**15, tail_for(level, -5))).level for level in range(4)]
    [0, 1, 2, 3]
    """
    return tail & ~_LEVEL_MASK | level << _LEVEL_SHIFT


class Mark(NamedTuple):
    """A statement about a bucket, acknowledged before its messages.

    The bucket has messages of this level, none larger or longer-lived than this.
    """

    level: int
    ttl_class: int
    """The messages' TTL is at most 2 to this power, in seconds."""
    size_class: int
    """The messages' bodies have at most 2 to this power bytes."""

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
        """How long a mark must live.

        It must live until the last possible message of the bucket has expired.
        """
        until_end = max(0, bucket.end - now_ticks) // TICKS_PER_SECOND + 1
        return until_end + (1 << self.ttl_class) + _SPARE_SECONDS
