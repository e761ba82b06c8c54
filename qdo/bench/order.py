"""How far a stream of numbers is from its order, in bounded memory.

The figures are those of :func:`qdo.measure.disorder`. A number is settled when all lower ones have come: after that
nothing can change its place or the part of the longest rise below it, so only numbers above a gap are kept.
"""

from __future__ import annotations

from bisect import bisect_left

HORIZON = 1 << 16
"""Numbers kept above a gap. After that the gap counts as lost; what fills it later counts as out of order."""


class StreamOrder:
    """The first receipts of the messages of one stream, which are numbered from 0.

    >>> order = StreamOrder()
    >>> for number in (2, 1, 3, 4, 0):
    ...     order.add(number)
    >>> order.end()
    >>> order.received, order.out_of_order, order.moved
    (5, 2, 8)
    """

    __slots__ = ("_ends", "_lost", "_next", "_risen", "_waiting", "moved", "received")

    def __init__(self) -> None:
        self.received = 0
        self.moved = 0
        """Sum over the numbers of the distance between the place they came at and their place in order."""
        self._next = 0
        self._lost = 0
        self._risen = 0
        """Length of the longest rise among the settled numbers."""
        self._ends: list[int] = []
        """Least last numbers of longer rises, as of :func:`qdo.measure.longest_rise`."""
        self._waiting: dict[int, int] = {}
        """Numbers above a gap, and the places they came at."""

    @property
    def out_of_order(self) -> int:
        """Numbers that must be taken out to leave the longest rise."""
        return self.received - self._risen - len(self._ends)

    def add(self, number: int) -> None:
        """The next number that came; none comes twice."""
        place = self.received
        self.received += 1
        if number < self._next:
            self.moved += abs(place - number + self._lost)
            return
        ends = self._ends
        if number == self._next and not ends and not self._waiting:
            self.moved += abs(place - number + self._lost)
            self._next += 1
            self._risen += 1
            return
        self._waiting[number] = place
        at = bisect_left(ends, number)
        ends[at : at + 1] = [number]
        self._settle()
        if len(self._waiting) > HORIZON:
            self._give_up()

    def end(self) -> None:
        """No more numbers come."""
        while self._waiting:
            self._give_up()

    def _give_up(self) -> None:
        least = min(self._waiting)
        self._lost += least - self._next
        self._next = least
        self._settle()

    def _settle(self) -> None:
        waiting = self._waiting
        before = self._next
        while self._next in waiting:
            self.moved += abs(waiting.pop(self._next) - self._next + self._lost)
            self._next += 1
        if self._next > before:
            settled = bisect_left(self._ends, self._next)
            self._risen += settled
            del self._ends[:settled]
