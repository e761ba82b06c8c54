"""Messages of noisy keys in a fair group, out of the way of others."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from queuey.ids import MessageId

__all__ = ["HeldBack"]


class HeldBack:
    """Holes that fell due while their key was noisy, by key. They are not stored, and some have changed since.

    >>> held = HeldBack(lambda since, message_id: since != 2)
    >>> for since in (3, 2, 1):
    ...     held.add("key", since, MessageId(since, 0))
    >>> held.first("key"), held.take("key") == (1, MessageId(1, 0)), held.first("key"), len(held)
    (1, True, 3, 1)
    """

    def __init__(self, is_due: Callable[[int, MessageId], bool]) -> None:
        """:param is_due: whether a hole falls due at this moment still."""
        self._is_due = is_due
        self._heaps: dict[str, list[tuple[int, MessageId]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._heaps.values()))

    @property
    def keys(self) -> list[str]:
        return [*self._heaps]

    def add(self, key: str, since: int, message_id: MessageId) -> None:
        """Hold back a hole that falls due at a moment, in ticks."""
        heapq.heappush(self._heaps.setdefault(key, []), (since, message_id))

    def first(self, key: str) -> int | None:
        """When the first hole of a key falls due; None if the key has none."""
        heap = self._heaps.get(key, [])
        while heap and not self._is_due(*heap[0]):
            heapq.heappop(heap)
        if not heap:
            self._heaps.pop(key, None)
        return heap[0][0] if heap else None

    def take(self, key: str) -> tuple[int, MessageId] | None:
        """Take out the hole of a key that falls due first. The caller puts it back."""
        return None if self.first(key) is None else heapq.heappop(self._heaps[key])

    def since(self) -> int | None:
        """When the first hole of all keys falls due; None if there is none."""
        return min([since for key in self.keys if (since := self.first(key)) is not None], default=None)
