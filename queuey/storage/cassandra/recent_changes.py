"""Which partitions this server has changed lately."""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter
from uuid import UUID

from queuey.locks import new_lock
from queuey.model import PartitionId

__all__ = ["RecentChanges"]

_MOST = 10_000


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
