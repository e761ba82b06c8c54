"""What this server has changed lately."""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter
from uuid import UUID

from queuey.ids import MessageId
from queuey.locks import new_lock
from queuey.model import PartitionId

__all__ = ["RecentChanges", "RecentDeletions"]

_MOST = 10_000
_MOST_DELETIONS = 100_000


class RecentChanges:
    """Partitions whose messages this server has deleted or overwritten in the last seconds. Thread-safe."""

    def __init__(self, seconds: float) -> None:
        """:param seconds: older changes may be forgotten."""
        self._seconds = seconds
        self._at: dict[PartitionId, float] = {}
        self._last = -1.0
        self._lock = new_lock()

    def note(self, partitions: Iterable[PartitionId]) -> None:
        """These were changed just now."""
        now = self._last = perf_counter()
        with self._lock:
            for place in partitions:
                self._at.pop(place, None)
                self._at[place] = now
            while len(self._at) > _MOST and next(iter(self._at.values())) < now - self._seconds:
                del self._at[next(iter(self._at))]

    def among(self, queue: UUID, numbers: Iterable[int], moment: float) -> list[int]:
        """Those of some partitions of a queue that were changed since a moment."""
        if self._last < moment:
            return []
        return [number for number in numbers if self.since(PartitionId(queue, number), moment)]

    def since(self, place: PartitionId, moment: float) -> bool:
        """Whether a partition was changed since a moment of :func:`time.perf_counter`."""
        return self._at.get(place, -1.0) >= moment


class RecentDeletions:
    """The dates of this server's last deletions. Thread-safe.

    A deletion is dated ahead of the time (:class:`~queuey.storage.cassandra.clock.WriteTimes`), so it would hide an
    overwrite of the same message that follows at once.
    """

    def __init__(self, microseconds: int) -> None:
        """:param microseconds: older ones than the last by more may be forgotten."""
        self._kept = microseconds
        self._dates: dict[tuple[PartitionId, MessageId | None], int] = {}
        self._least = 0
        """The last date of those that there was no room for."""
        self._lock = new_lock()

    def note(self, partition: PartitionId, ids: Iterable[MessageId | None], date: int) -> None:
        """:param ids: None stands for any of the partition."""
        dates = self._dates
        with self._lock:
            for id_ in ids:
                former = dates.pop((partition, id_), 0)
                dates[partition, id_] = max(date, former)  # the clock may have been set back in between
            while (first := next(iter(dates), None)) and (
                dates[first] < date - self._kept or len(dates) > _MOST_DELETIONS
            ):
                gone = dates.pop(first)
                self._least = max(self._least, gone)

    def date(self, partition: PartitionId, id_: MessageId) -> int:
        """The date of the last deletion that may have hit a message, or an earlier one; 0 if there was none."""
        dates = self._dates
        return max(self._least, dates.get((partition, id_), 0), dates.get((partition, None), 0))
