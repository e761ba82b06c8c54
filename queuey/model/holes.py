"""Messages behind a group's frontier that are not settled: the holes (docs/decisions/024).

A hole has the state of one message in one lease group. A partition may have a million of them, so they are stored by
column, in chunks: some 60 bytes each, and up to 80 with the time at which it falls due.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from queuey.ids import MAX_ID, MessageId
from queuey.model.receiver_names import ReceiverNames

__all__ = [
    "ALONE",
    "BLOCK_TYPES",
    "GIVEN_UP",
    "LEASED",
    "TOGETHER",
    "Hole",
    "HoleBlock",
    "HoleTable",
    "marked_together",
    "most_beside",
    "together_flags",
]

LEASED = 1
"""A receiver has it, or had it when its lease ran out; otherwise it waits."""
GIVEN_UP = 2
"""It waits to be moved to the dead letters, and is handed out no more."""
ALONE = 4
"""It is handed out alone next time."""
TOGETHER = 8
"""It was handed out with others; how many they were together is in the upper four bits, see :func:`together_flags`."""
UNCOUNTED = 16
"""Of a message that waits: it was released without a failure. Those bits have no number then."""
_SIZE_SHIFT = 4
_SMALLER = 16
"""Messages that ran out together come back in receives of about a sixteenth of their number."""
MOST_FAILURES = (1 << 16) - 1
_CHUNK = 512
"""Holes of a chunk; a chunk twice as large is split."""


class Hole(NamedTuple):
    """The state of a message that is not settled. Times are ticks."""

    id: MessageId
    visible_at: int
    """From then on it may be handed out; see also :class:`~queuey.model.leases.Renewal`."""
    leased_at: int = 0
    """When it was handed out last; 0 if it never was."""
    first_delivered: int = 0
    """When it was handed out first; 0 if it never was."""
    deliveries: int = 0
    failures: int = 0
    flags: int = 0
    receiver: str = ""
    """The receiver that has it or had it last."""
    key: str | None = None
    """Its message's key, in a group that keeps the order of keys."""


BLOCK_TYPES = "qqqqqQL"


class HoleBlock(NamedTuple):
    """All holes behind one id and up to another, by column."""

    after: MessageId
    upto: MessageId
    columns: Sequence[array[int]]
    """Of the types :data:`BLOCK_TYPES`: ticks and tails of ids, visible_at, leased_at, first_delivered, ``deliveries << 24 |
    failures << 8 | flags``, and indexes of names."""
    names: Sequence[str]
    """Of receivers."""
    keys: Sequence[str | None] | None
    """None if no hole has a key."""


def together_flags(number: int) -> int:
    """The flags of messages that were handed out together.

    >>> together_flags(1), together_flags(1000) >> 4
    (0, 10)
    """
    return TOGETHER | min(number.bit_length(), 15) << _SIZE_SHIFT if number > 1 else 0


def marked_together(flags: int, number: int) -> int:
    """Flags of a message that was handed out, with how many it was handed out together with.

    >>> marked_together(LEASED | together_flags(4), 8) == LEASED | together_flags(8)
    True
    """
    return flags & (TOGETHER - 1) | together_flags(number)


def most_beside(flags: int) -> int:
    """How many messages one receive may have if it has one that ran out together with others.

    >>> [most_beside(together_flags(number)) for number in (2, 10, 100, 1000)]
    [1, 1, 8, 64]
    """
    return max((1 << (flags >> _SIZE_SHIFT)) // _SMALLER, 1)


class _Chunk:
    """Holes with neighbouring ids, by column."""

    __slots__ = ("counts", "firsts", "keys", "leased", "receivers", "tails", "ticks", "visible")

    def __init__(self) -> None:
        self.ticks = array("q")
        self.tails = array("q")
        self.visible = array("q")
        self.leased = array("q")
        self.firsts = array("q")
        self.counts = array("Q")
        """Deliveries, then 16 bits of failures, then 8 bits of flags."""
        self.receivers = array("L")
        self.keys: list[str | None] | None = None
        """None if no hole has a key."""

    def __len__(self) -> int:
        return len(self.ticks)

    def place(self, message_id: MessageId) -> int:
        """Where the hole with this id is, or would be."""
        ticks, tail = message_id
        column = self.ticks
        at = bisect_left(column, ticks)
        while at < len(column) and column[at] == ticks and self.tails[at] < tail:
            at += 1
        return at

    def is_at(self, at: int, message_id: MessageId) -> bool:
        return at < len(self.ticks) and (self.ticks[at], self.tails[at]) == message_id

    def row_end(self, at: int, ids: Sequence[MessageId], number: int) -> int:
        """The end of the row of holes from a place on that are these messages, from the n-th on."""
        end = min(at + len(ids) - number, len(self.ticks))
        may_be_all = not number and end - at > 1  # mostly it is the only row
        if may_be_all and [*zip(self.ticks[at:end], self.tails[at:end], strict=True)] == [*ids[: end - at]]:
            return end
        while at < end and self.is_at(at, ids[number]):
            at, number = at + 1, number + 1
        return at

    def insert(self, at: int, hole: Hole, receiver: int) -> None:
        (ticks, tail), visible, leased, first, deliveries, failures, flags, _, key = hole
        self.ticks.insert(at, ticks)
        self.tails.insert(at, tail)
        self.visible.insert(at, visible)
        self.leased.insert(at, leased)
        self.firsts.insert(at, first)
        self.counts.insert(at, deliveries << 24 | failures << 8 | flags)
        self.receivers.insert(at, receiver)
        if self.keys is None and key is not None:
            self.keys = [None] * (len(self.ticks) - 1)
        if self.keys is not None:
            self.keys.insert(at, key)

    def replace(self, at: int, hole: Hole, receiver: int) -> None:
        _, visible, leased, first, deliveries, failures, flags, _, key = hole
        self.visible[at], self.leased[at], self.firsts[at] = visible, leased, first
        self.counts[at] = deliveries << 24 | failures << 8 | flags
        self.receivers[at] = receiver
        if self.keys is None and key is not None:
            self.keys = [None] * len(self.ticks)
        if self.keys is not None:
            self.keys[at] = key

    def extend(self, ticks: array[int], tails: array[int], hole: Hole, receiver: int) -> None:
        """Add holes that differ only in their ids, behind all others."""
        _, visible, leased, first, deliveries, failures, flags, _, _ = hole
        number = len(ticks)
        self.ticks.extend(ticks)
        self.tails.extend(tails)
        if number == 1:
            self.visible.append(visible)
            self.leased.append(leased)
            self.firsts.append(first)
            self.counts.append(deliveries << 24 | failures << 8 | flags)
            self.receivers.append(receiver)
            if self.keys is not None:
                self.keys.append(None)
            return
        self.visible.extend(array("q", [visible]) * number)
        self.leased.extend(array("q", [leased]) * number)
        self.firsts.extend(array("q", [first]) * number)
        self.counts.extend(array("Q", [deliveries << 24 | failures << 8 | flags]) * number)
        self.receivers.extend(array("L", [receiver]) * number)
        if self.keys is not None:
            self.keys += [None] * number

    def delete(self, at: int, end: int) -> None:
        del self.ticks[at:end], self.tails[at:end], self.visible[at:end], self.leased[at:end], self.firsts[at:end]
        del self.counts[at:end], self.receivers[at:end]
        if self.keys is not None:
            del self.keys[at:end]

    def cut(self, at: int) -> _Chunk:
        """Take away the holes from a place on, as a chunk of their own."""
        rest = _Chunk()
        for column, kept in zip(self.columns(), rest.columns(), strict=True):
            kept.extend(column[at:])
            del column[at:]
        if self.keys is not None:
            self.keys, rest.keys = self.keys[:at], self.keys[at:]
        return rest

    def join(self, other: _Chunk) -> None:
        """Take over the holes of the next chunk."""
        if self.keys is not None or other.keys is not None:
            self.keys = (self.keys or [None] * len(self)) + (other.keys or [None] * len(other))
        for column, more in zip(self.columns(), other.columns(), strict=True):
            column.extend(more)

    def columns(self) -> tuple[array[int], ...]:
        """All but the keys, of the types :data:`BLOCK_TYPES`."""
        return (self.ticks, self.tails, self.visible, self.leased, self.firsts, self.counts, self.receivers)


class HoleTable:
    """Holes in the order of their ids."""

    def __init__(self) -> None:
        self._chunks: list[_Chunk] = []
        self._lows: list[MessageId] = []
        """The first id of each chunk."""
        self._names = ReceiverNames()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Hole]:
        for chunk in self._chunks:
            for at in range(len(chunk)):
                yield self._hole(chunk, at)

    def after(self, message_id: MessageId) -> Iterator[Hole]:
        """The holes behind an id, in order."""
        index = max(bisect_right(self._lows, message_id) - 1, 0)
        for chunk in self._chunks[index : index + 1]:
            at = chunk.place(message_id)
            for place in range(at + chunk.is_at(at, message_id), len(chunk)):
                yield self._hole(chunk, place)
        for chunk in self._chunks[index + 1 :]:
            for place in range(len(chunk)):
                yield self._hole(chunk, place)

    def first(self) -> MessageId | None:
        """The least id."""
        return self._lows[0] if self._lows else None

    def has_receiver(self, name: str) -> bool:
        """Whether a receiver has a hole, or had it last."""
        return name in self._names

    def find(self, message_id: MessageId) -> Hole | None:
        """The hole of a message; None if the message is settled or not handed out yet."""
        index = bisect_right(self._lows, message_id) - 1
        if index < 0:
            return None
        chunk = self._chunks[index]
        at = chunk.place(message_id)
        return self._hole(chunk, at) if chunk.is_at(at, message_id) else None

    def leased_since(self, message_id: MessageId, delivery: int) -> int | None:
        """When this delivery was leased, in ticks; None if it is not leased any more."""
        index = bisect_right(self._lows, message_id) - 1
        if index < 0:
            return None
        chunk = self._chunks[index]
        at = chunk.place(message_id)
        is_leased = chunk.is_at(at, message_id) and chunk.counts[at] & LEASED and chunk.counts[at] >> 24 == delivery
        return chunk.leased[at] if is_leased else None

    def leases_of(self, ids: Sequence[MessageId]) -> tuple[Sequence[int], Sequence[int]] | None:
        """Of each hole, deliveries and flags as ``deliveries << 24 | failures << 8 | flags``, and when it was leased.

        Messages that were handed out together are settled together, and then this is one look-up for all of them.

        :param ids: rising.
        :returns: None if some are no holes, or they do not rise.
        """
        counts, leased = array("Q"), array("q")
        for index, at, end in self._rows(ids):
            counts.extend(self._chunks[index].counts[at:end])
            leased.extend(self._chunks[index].leased[at:end])
        return (counts, leased) if counts else None

    def remove_all(self, ids: Sequence[MessageId]) -> tuple[array[int], array[int]] | None:
        """Remove holes; their ids rise.

        :returns: deliveries and flags as in :meth:`leases_of`, and ``visible_at``, in any order. None: nothing is removed.
        """
        rows = self._rows(ids)
        if not rows:
            return None
        counts, visible = array("Q"), array("q")
        for index, at, end in reversed(rows):
            chunk = self._chunks[index]
            counts.extend(chunk.counts[at:end])
            visible.extend(chunk.visible[at:end])
            receivers = chunk.receivers[at:end]
            if receivers.count(receivers[0]) == end - at:
                self._names.give_back(receivers[0], end - at)
            else:
                for receiver in receivers:
                    self._names.give_back(receiver)
            chunk.delete(at, end)
            if not at or len(chunk.ticks) < _CHUNK // 4:
                self._shrink(index)
        self._size -= len(ids)
        return counts, visible

    def _rows(self, ids: Sequence[MessageId]) -> Sequence[tuple[int, int, int]]:
        """Where holes are: in which chunks, and there from where to where. Those that lie side by side are one row.

        It is empty if some are no holes, or the ids do not rise.
        """
        rows: list[tuple[int, int, int]] = []
        number = 0
        while number < len(ids):
            index = bisect_right(self._lows, ids[number]) - 1
            if index < 0:
                return ()
            chunk = self._chunks[index]
            at = chunk.place(ids[number])
            end = chunk.row_end(at, ids, number)
            if end == at or (rows and (index, at) < rows[-1][::2]):
                return ()
            rows.append((index, at, end))
            number += end - at
        return rows

    def block(self, after: MessageId) -> HoleBlock:
        """The next holes behind an id: some hundreds of them. The last block ends at the greatest id of all."""
        index = bisect_right(self._lows, after) - 1
        at = 0
        if index >= 0:
            chunk = self._chunks[index]
            at = chunk.place(after)
            at += chunk.is_at(at, after)
        if index < 0 or at == len(chunk):
            index, at = index + 1, 0
        if index == len(self._chunks):
            return HoleBlock(after, MAX_ID, [array(code) for code in BLOCK_TYPES], [], None)
        chunk = self._chunks[index]
        numbers = {number: local for local, number in enumerate(sorted({*chunk.receivers[at:]}))}
        upto = MAX_ID if index + 1 == len(self._chunks) else MessageId(chunk.ticks[-1], chunk.tails[-1])
        *columns, receivers = (column[at:] for column in chunk.columns())
        return HoleBlock(
            after,
            upto,
            [*columns, array("L", [numbers[number] for number in receivers])],
            [self._names[number] for number in numbers],
            None if chunk.keys is None else chunk.keys[at:],
        )

    def put_block(self, block: HoleBlock) -> None:
        """Let these holes replace all others behind one id and up to another."""
        begin, end = self._boundary(block.after), self._boundary(block.upto)
        for chunk in self._chunks[begin:end]:
            self._size -= len(chunk)
            for receiver in chunk.receivers:
                self._names.give_back(receiver)
        made: list[_Chunk] = []
        *columns, receivers = block.columns
        if receivers:
            uses = [receivers.count(local) for local in range(len(block.names))]
            numbers = [self._names.take(name, holes) for name, holes in zip(block.names, uses, strict=True)]
            made.append(_Chunk())
            receivers = array("L", [numbers[local] for local in receivers])
            for column, more in zip(made[0].columns(), [*columns, receivers], strict=True):
                column.extend(more)
            made[0].keys = None if block.keys is None else [*block.keys]
            self._size += len(receivers)
        self._chunks[begin:end] = made
        self._lows[begin:end] = [MessageId(chunk.ticks[0], chunk.tails[0]) for chunk in made]

    def _boundary(self, message_id: MessageId) -> int:
        """The index of the first chunk of which all holes are behind an id; a chunk that spans it is cut."""
        index = bisect_right(self._lows, message_id)
        if index:
            chunk = self._chunks[index - 1]
            at = chunk.place(message_id)
            at += chunk.is_at(at, message_id)
            if at < len(chunk):
                rest = chunk.cut(at)
                self._chunks.insert(index, rest)
                self._lows.insert(index, MessageId(rest.ticks[0], rest.tails[0]))
        return index

    def put(self, hole: Hole) -> None:
        """Insert a hole, or replace the one with its id."""
        receiver = self._names.take(hole.receiver)
        if not self._chunks:
            self._chunks, self._lows = [_Chunk()], [hole.id]
        index = max(bisect_right(self._lows, hole.id) - 1, 0)
        chunk = self._chunks[index]
        at = chunk.place(hole.id)
        if chunk.is_at(at, hole.id):
            self._names.give_back(chunk.receivers[at])
            chunk.replace(at, hole, receiver)
            return
        chunk.insert(at, hole, receiver)
        self._size += 1
        self._lows[index] = MessageId(chunk.ticks[0], chunk.tails[0])
        self._split(index)

    def extend(self, ticks: array[int], tails: array[int], hole: Hole) -> None:
        """Add holes without keys that differ only in their ids.

        :param ticks: rising with ``tails``, and all behind the greatest id of the table.
        """
        receiver = self._names.take(hole.receiver, len(ticks))
        if not self._chunks:
            self._chunks, self._lows = [_Chunk()], [MessageId(ticks[0], tails[0])]
        last = self._chunks[-1]
        last.extend(ticks, tails, hole, receiver)
        self._size += len(ticks)
        if len(last.ticks) > 2 * _CHUNK:
            self._split(len(self._chunks) - 1)

    def remove(self, message_id: MessageId) -> bool:
        """Remove a hole; False if there is none."""
        index = bisect_right(self._lows, message_id) - 1
        if index < 0:
            return False
        chunk = self._chunks[index]
        at = chunk.place(message_id)
        if not chunk.is_at(at, message_id):
            return False
        self._names.give_back(chunk.receivers[at])
        chunk.delete(at, at + 1)
        self._size -= 1
        self._shrink(index)
        return True

    def _hole(self, chunk: _Chunk, at: int) -> Hole:
        counts = chunk.counts[at]
        return Hole(
            MessageId(chunk.ticks[at], chunk.tails[at]),
            chunk.visible[at],
            chunk.leased[at],
            chunk.firsts[at],
            counts >> 24,
            counts >> 8 & MOST_FAILURES,
            counts & 0xFF,
            self._names[chunk.receivers[at]],
            None if chunk.keys is None else chunk.keys[at],
        )

    def _split(self, index: int) -> None:
        """Keep a chunk that grew within its size."""
        chunk = self._chunks[index]
        while len(chunk) > 2 * _CHUNK:
            chunk = chunk.cut(_CHUNK)
            index += 1
            self._chunks.insert(index, chunk)
            self._lows.insert(index, MessageId(chunk.ticks[0], chunk.tails[0]))

    def _shrink(self, index: int) -> None:
        """Drop an empty chunk, and join a small one with the next."""
        chunk = self._chunks[index]
        if not len(chunk):
            del self._chunks[index], self._lows[index]
            return
        self._lows[index] = MessageId(chunk.ticks[0], chunk.tails[0])
        if len(chunk) < _CHUNK // 4 and index + 1 < len(self._chunks):
            following = self._chunks[index + 1]
            if len(chunk) + len(following) <= _CHUNK:
                chunk.join(following)
                del self._chunks[index + 1], self._lows[index + 1]
