"""Counts of time buckets that no append reaches any more, remembered in memory (docs/decisions/023).

A server counts such a bucket once. The count stays valid until a message of it expires, or this server deletes or
overwrites one of its messages. What other servers delete or overwrite there is counted at the latest
:data:`COUNTED_AGAIN_SECONDS` later.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from queuey.ids import MessageId
from queuey.locks import new_lock
from queuey.model import PartitionId
from queuey.storage.cassandra.buckets import Bucket

__all__ = ["COUNTED_AGAIN_SECONDS", "MOST_COUNTS", "BucketCount", "BucketCounts", "Place"]

COUNTED_AGAIN_SECONDS = 60.0
"""How long a count is used, by this server's clock. It is the bound of the error that :meth:`MessageStore.inspect`
states for deletions and overwrites by other servers."""
MOST_COUNTS = 25_000
"""Buckets whose count is remembered, about 800 bytes each. The one that was not asked for longest is forgotten first."""

Place = tuple[PartitionId, Bucket]


class BucketCount(NamedTuple):
    """The live messages of one bucket at one moment."""

    messages: int
    size: int
    """Bytes of their bodies."""
    oldest: MessageId | None
    newest: MessageId | None
    expires_ticks: int
    """When the first of them expires."""


class BucketCounts:
    """Counts of one server. Thread-safe."""

    def __init__(self, most: int = MOST_COUNTS) -> None:
        self._most = most
        self._counts: OrderedDict[Place, tuple[BucketCount, float]] = OrderedDict()
        self._asked: dict[Place, object] = {}
        """What is being counted, and the last question about it."""
        self._lock = new_lock()

    def find(self, place: Place, now_ticks: int, elapsed: float) -> BucketCount | None:
        """The count of a bucket, if it is still valid."""
        with self._lock:
            found = self._counts.get(place)
            if found is None:
                return None
            count, since = found
            if count.expires_ticks <= now_ticks or elapsed - since >= COUNTED_AGAIN_SECONDS:
                del self._counts[place]
                return None
            self._counts.move_to_end(place)
            return count

    def ask(self, place: Place) -> object:
        """Note that a bucket is about to be counted.

        :returns: what :meth:`keep` takes.
        """
        question = object()
        with self._lock:
            self._asked[place] = question
        return question

    def keep(self, place: Place, question: object, count: BucketCount | None, elapsed: float) -> None:
        """Remember a count, unless the bucket was changed since it was asked for.

        :param count: None if the bucket could not be counted.
        :param elapsed: the moment at which it was asked for.
        """
        with self._lock:
            if self._asked.get(place) is not question:
                return
            del self._asked[place]
            if count is not None:
                self._counts[place] = count, elapsed
                while len(self._counts) > self._most:
                    self._counts.popitem(last=False)

    def forget(self, place: Place) -> None:
        """Forget a bucket that this server changes. Call it before the change and after it.

        A count that began before the change, or meanwhile, may lack it.
        """
        with self._lock:
            self._asked.pop(place, None)
            self._counts.pop(place, None)
