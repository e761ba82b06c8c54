"""Messages of noisy keys in a fair group, out of the way of others."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from queuey.ids import MessageId

__all__ = ["HeldBack"]


class HeldBack:
    """Holes that fell due while their key was noisy, by key. They are not stored, and some have changed since.

    Those are let go when they come first: a renewal of their receiver moves the moment at which they fall due, and so does
    the end of that renewal.

    >>> later = []
    >>> held = HeldBack(lambda one: 9 if one.ticks == 2 else one.ticks, lambda one, due: later.append((one.ticks, due)))
    >>> for since in (3, 2, 1):
    ...     held.add("key", since, MessageId(since, 0))
    >>> held.first("key"), held.take("key") == (1, MessageId(1, 0)), held.first("key"), len(held), later
    (1, True, 3, 1, [(2, 9)])
    """

    def __init__(
        self, visible_at: Callable[[MessageId], int | None], enter: Callable[[MessageId, int], object]
    ) -> None:
        """:param visible_at: when a hole falls due, in ticks; None if it is settled.
        :param enter: takes a hole that is let go, and when it falls due.
        """
        self._visible_at, self._enter = visible_at, enter
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
        while heap and not self._stays(*heap[0]):
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

    def _stays(self, since: int, message_id: MessageId) -> bool:
        """Whether a hole falls due at this moment still. One that falls due at another is let go."""
        visible_at = self._visible_at(message_id)
        if visible_at is not None and visible_at != since:
            self._enter(message_id, visible_at)
        return visible_at == since
