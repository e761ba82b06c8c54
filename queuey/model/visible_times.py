"""When messages that are not settled fall due."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter

from queuey.ids import MessageId
from queuey.model.holes import Hole, HoleTable

__all__ = ["VisibleTimes"]

_SLOT_BITS = 22
"""Holes that fall due within 0.4 s share a slot."""
_MOST_TAKEN = 4096
"""Holes that are looked at together: a step must not wait for a million of them."""
_LEAST_IN_ROW = 3
"""Fewer holes take less room one by one."""
_ROW = 5
"""Numbers of a row: when its holes fall due, the id before the first of them, and the id of the last."""
_LEAST_CLEANED, _CLEANED_AT = 256, 16
"""A slot with more numbers than the first, and than the second for each hole that is left, is cleaned."""
_OLD = 8
"""A slot is cleaned only if there are as many later ones: mostly all of its holes are settled before."""


class _Slot:
    """Holes that fall due within the same time."""

    __slots__ = ("cleaned", "ids", "left", "rows")

    def __init__(self) -> None:
        self.ids = array("q")
        """Of single holes: ticks and tail, in turn."""
        self.rows = array("q")
        self.left = 0
        """Holes that were neither settled nor entered again; it may count more, but never fewer."""
        self.cleaned = (0, 0)
        """After it was cleaned last: its numbers, and how many holes were left."""

    def add(self, visible_at: int, ticks: array[int], tails: array[int]) -> None:
        self.left += len(ticks)
        if len(ticks) >= _LEAST_IN_ROW:
            self.add_row(visible_at, MessageId(ticks[0], tails[0]).before(), MessageId(ticks[-1], tails[-1]))
            return
        for one in zip(ticks, tails, strict=True):
            self.ids.extend(one)

    def add_row(self, visible_at: int, after: MessageId, last: MessageId) -> None:
        self.rows.extend((visible_at, *after, *last))

    def clean(self, table: HoleTable) -> None:
        """Forget holes that the table has no more, if nearly all are settled and that is worth the time."""
        numbers, left = self.cleaned
        is_other = self.numbers > 2 * numbers or 2 * self.left < left
        if is_other and self.numbers > max(_LEAST_CLEANED, _CLEANED_AT * self.left):
            self._clean(table)
            self.cleaned = (self.numbers, self.left)

    @property
    def numbers(self) -> int:
        return len(self.ids) + len(self.rows)

    def _clean(self, table: HoleTable) -> None:
        ids, rows = self.ids, self.rows
        self.ids, self.rows = array("q"), array("q")
        for one in zip(ids[::2], ids[1::2], strict=True):
            if table.find(MessageId(*one)) is not None:
                self.ids.extend(one)
        for at in range(0, len(rows), _ROW):
            row = rows[at : at + _ROW]
            first = next(table.after(MessageId(*row[1:3])), None)
            if first is not None and first.id <= MessageId(*row[3:]):
                self.rows.extend(row)


class VisibleTimes:
    """When holes fall due: 16 bytes for a hole, 40 for a row of holes that fall due together.

    A hole that changes is entered again, and its earlier entry may stay until its time, as may that of a message that is
    settled: what falls due is looked up in the table. A row takes one look-up, and its settled messages take no time.
    Room is given back once all holes of a slot are settled, or nearly all.
    """

    def __init__(self, table: HoleTable) -> None:
        """:param table: has the holes that are entered here, and no more those that are settled."""
        self._table = table
        self._slots: dict[int, _Slot] = {}
        self._order: list[int] = []
        """The slots' numbers, rising."""
        self._taken = -1
        """The number of the slot of which something was taken out last."""
        self._old = -1
        """Slots up to this number may be cleaned."""

    def add(self, visible_at: int, message_id: MessageId) -> bool:
        """Enter a hole; False if its slot was taken out already, and then nothing is entered."""
        number = visible_at >> _SLOT_BITS
        if number <= self._taken:
            return False
        slot = self._slot(number)
        slot.ids.extend(message_id)
        slot.left += 1
        return True

    def add_each(self, visible: array[int], ticks: array[int], tails: array[int]) -> list[tuple[int, MessageId]]:
        """Enter holes with a time each.

        :param ticks: rising with ``tails``.
        :returns: when they fall due, and their ids, of those whose slots were taken out already.
        """
        late: list[tuple[int, MessageId]] = []
        begin, number = 0, len(visible)
        while begin < number:
            visible_at, end = visible[begin], begin + 1
            while end < number and visible[end] == visible_at:
                end += 1
            some = ticks[begin:end], tails[begin:end]
            if not self.add_all(visible_at, *some):
                late += [(visible_at, message_id) for message_id in map(MessageId, *some)]
            begin = end
        return late

    def add_all(self, visible_at: int, ticks: array[int], tails: array[int]) -> bool:
        """Enter holes that fall due together; as :meth:`add`.

        :param ticks: as for :meth:`add_each`.
        """
        number = visible_at >> _SLOT_BITS
        if number <= self._taken:
            return False
        self._slot(number).add(visible_at, ticks, tails)
        return True

    def _slot(self, number: int) -> _Slot:
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = _Slot()
            at = bisect_left(self._order, number)
            self._order.insert(at, number)
            if at >= _OLD:
                self._old = self._order[at - _OLD]
                self._slots[self._old].clean(self._table)
        return slot

    def leave(self, visible_at: int, holes: int = 1) -> None:
        """Holes that were entered with this time are settled, or are about to be entered again."""
        self._leave(visible_at >> _SLOT_BITS, holes)

    def leave_all(self, visible: array[int]) -> None:
        """Holes that were entered with these times are settled."""
        first, holes = visible[0], len(visible)
        if holes == 1 or visible.count(first) == holes:  # mostly so
            self._leave(first >> _SLOT_BITS, holes)
            return
        for number, some in Counter([one >> _SLOT_BITS for one in visible]).items():
            self._leave(number, some)

    def _leave(self, number: int, holes: int) -> None:
        slot = self._slots.get(number)
        if slot is None or number <= self._taken:  # its holes are no longer counted
            return
        slot.left -= holes
        if not slot.left:
            del self._slots[number], self._order[bisect_left(self._order, number)]
        elif number <= self._old:
            slot.clean(self._table)

    def reaches(self, now: int) -> bool:
        """Whether there is something for :meth:`take`."""
        return bool(self._order) and self._order[0] <= now >> _SLOT_BITS

    def take(self, now: int) -> list[Hole]:
        """Take out the first slot of what may have fallen due, or some thousands of it.

        Nothing more is entered into this slot, or into those before it.

        :returns: holes of the table. Some may not be due yet, and some may be due later than when they were entered.
        """
        if not self.reaches(now):
            return []
        self._taken = self._order[0]
        slot = self._slots[self._taken]
        take = _taken_singly if slot.ids else _taken_of_row
        found = take(slot, self._table) if slot.numbers else []
        if not slot.numbers:
            del self._slots[self._taken], self._order[0]
        return found

    def next(self) -> int | None:
        """A moment before which nothing falls due; None if nothing will."""
        return self._order[0] << _SLOT_BITS if self._order else None


def _taken_singly(slot: _Slot, table: HoleTable) -> list[Hole]:
    some = slot.ids[-2 * _MOST_TAKEN :]
    del slot.ids[-2 * _MOST_TAKEN :]
    found = [table.find(MessageId(ticks, tail)) for ticks, tail in zip(some[::2], some[1::2], strict=True)]
    return [hole for hole in found if hole is not None]


def _taken_of_row(slot: _Slot, table: HoleTable) -> list[Hole]:
    """Those of the last row that have not changed. Those that have were entered again."""
    visible_at, *ids = slot.rows[-_ROW:]
    del slot.rows[-_ROW:]
    upto, last = MessageId(*ids[:2]), MessageId(*ids[2:])
    found: list[Hole] = []
    for looked, hole in enumerate(table.after(upto)):
        if hole.id > last:
            break
        if looked == _MOST_TAKEN:
            slot.add_row(visible_at, upto, last)
            break
        upto = hole.id
        if hole.visible_at == visible_at:
            found.append(hole)
    return found
