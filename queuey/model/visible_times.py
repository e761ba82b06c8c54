"""When messages that are not settled fall due."""

from __future__ import annotations

import heapq
from array import array
from itertools import chain

from queuey.ids import MessageId

__all__ = ["VisibleTimes"]

_SLOT_BITS = 22
"""Holes that fall due within 0.4 s share a slot."""
_MOST_TAKEN = 4096
"""Holes that are taken out together: a step must not wait for a million of them."""


class VisibleTimes:
    """When holes fall due: 16 bytes a hole.

    A hole that changes is entered again, and its earlier entry stays until its time. So what falls due is looked up in
    the table.
    """

    def __init__(self) -> None:
        self._slots: dict[int, array[int]] = {}
        self._order: list[int] = []
        """A heap of the slots' numbers."""
        self._taken = -1
        """The number of the slot of which something was taken out last."""

    def add(self, visible_at: int, message_id: MessageId) -> bool:
        """Enter a hole; False if its slot was taken out already, and then nothing is entered."""
        number = visible_at >> _SLOT_BITS
        if number <= self._taken:
            return False
        self._slot(number).extend(message_id)
        return True

    def add_each(self, visible: array[int], ticks: array[int], tails: array[int]) -> None:
        """Enter holes with a time each, before anything was taken out."""
        if visible and min(visible) >> _SLOT_BITS == max(visible) >> _SLOT_BITS:  # as those of one receive
            self.add_all(visible[0], ticks, tails)
            return
        for visible_at, tick, tail in zip(visible, ticks, tails, strict=True):
            slot = self._slot(visible_at >> _SLOT_BITS)
            slot.append(tick)
            slot.append(tail)

    def add_all(self, visible_at: int, ticks: array[int], tails: array[int]) -> bool:
        """Enter holes that fall due together; as :meth:`add`."""
        number = visible_at >> _SLOT_BITS
        if number <= self._taken:
            return False
        slot = self._slot(number)
        if len(ticks) == 1:
            slot.append(ticks[0])
            slot.append(tails[0])
        else:
            slot.extend(chain.from_iterable(zip(ticks, tails, strict=True)))
        return True

    def _slot(self, number: int) -> array[int]:
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = array("q")
            heapq.heappush(self._order, number)
        return slot

    def reaches(self, now: int) -> bool:
        """Whether there is something for :meth:`take`."""
        return bool(self._order) and self._order[0] <= now >> _SLOT_BITS

    def take(self, now: int) -> list[MessageId]:
        """Take out the first slot of what may have fallen due, or some thousands of it.

        Some ids may not be due yet. Nothing more is entered into this slot, or into those before it.
        """
        if not self.reaches(now):
            return []
        self._taken = self._order[0]
        slot = self._slots[self._taken]
        some = slot[-2 * _MOST_TAKEN :]
        if len(some) < len(slot):
            del slot[-2 * _MOST_TAKEN :]
        else:
            heapq.heappop(self._order)
            del self._slots[self._taken]
        return [*map(MessageId, some[::2], some[1::2])]

    def next(self) -> int | None:
        """A moment before which nothing falls due; None if nothing will."""
        return self._order[0] << _SLOT_BITS if self._order else None
