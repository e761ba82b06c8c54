"""Offsets of groups, in memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from uuid import UUID

from queuey.errors import BadRequest, Conflict, QueueNotFound
from queuey.future import Future
from queuey.model import Offset, OffsetChange, OffsetMove
from queuey.storage import OffsetStore
from queuey.storage.memory.process import Process

__all__ = ["MemoryOffsets"]


class MemoryOffsets(OffsetStore):
    """The offsets of groups, by queue and name."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._lock = process.lock
        self._offsets: dict[UUID, dict[str, dict[int, Offset]]] = {}

    def read_offsets(self, queue: UUID, group: str) -> Future[Mapping[int, Offset]]:
        with self._lock:
            return Future.of(dict(self._offsets.get(queue, {}).get(group, {})))

    def change_offsets(self, queue: UUID, group: str, change: OffsetChange) -> Future[Mapping[int, OffsetMove]]:
        with self._lock:
            if queue in self._process.dropped:
                return Future.failed(QueueNotFound())
            stored = self._offsets.get(queue, {}).get(group, {})
            try:
                moves = change.moves(stored, self._process.clock.now_ticks())
            except (Conflict, BadRequest) as refused:
                return Future.failed(refused)
            changed = stored | {number: move.after for number, move in moves.items()}
            self._offsets.setdefault(queue, {})[group] = changed
        return Future.of(moves)

    def list_groups(self, queue: UUID, *, start: str = "", limit: int = 1000) -> Future[Sequence[str]]:
        with self._lock:
            names = sorted(self._offsets.get(queue, {}))
        first = bisect_left(names, start)
        return Future.of(names[first : first + limit])

    def forget_group(self, queue: UUID, group: str) -> Future[None]:
        with self._lock:
            self._offsets.get(queue, {}).pop(group, None)
        return Future.of(None)

    def forget_queue(self, queue: UUID) -> None:
        """Forget all groups of a queue. The caller has the lock."""
        self._offsets.pop(queue, None)
