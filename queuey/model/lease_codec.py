"""Changes of a lease group's state as bytes, for a store's rows.

Ids that follow each other, as those of a batch do, take 21 bytes together, and others of the same minutes 4 bytes each.
What is rare is JSON.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from queuey.ids import ZERO_ID, MessageId
from queuey.model.holes import BLOCK_TYPES, Hole, HoleBlock
from queuey.model.lease_state import Change, FreshLeases, Renewal

__all__ = ["SingleStep", "decode_change", "decode_changes", "decode_single", "encode_change"]

_FRONTIER, _FRESH, _HOLES, _CLOSED, _REST, _BLOCK, _FRONTIER_IS_LAST = 1, 2, 4, 8, 16, 32, 64
"""Parts of a change; and that the frontier is the last of the new leases, as it mostly is."""
_ALL_KNOWN = _FRONTIER | _FRESH | _HOLES | _CLOSED | _REST | _BLOCK | _FRONTIER_IS_LAST
_ID = struct.Struct("<qq")
_IDS = struct.Struct("<BI")
_COUNTS = struct.Struct("<qqqIHB")
"""Of a hole: visible_at, leased_at, first_delivered, deliveries, failures, flags."""
_LEASE = struct.Struct("<IqqBI")
"""Of leases of new messages: how many, visible_at, leased_at, flags, and the bytes of the receiver's name."""
_SIZE = struct.Struct("<I")
_ONE_LEASE = struct.Struct("<BBqqIIqqBI")
"""How a change begins that leases one new message: flags, form of the id, the id, the number of leases, and the lease."""
_ONE_CLOSED = struct.Struct("<Bqq")
"""One settled message: the form of the id, and the id."""
_COLUMNS, _SAME_TAIL, _IN_A_ROW, _NEAR, _ONE = 0, 1, 2, 3, 4
"""Forms of ids: both columns; ticks and one tail; the first of a row; how far ticks lie behind the least, and one tail;
one id alone."""
_NEAR_TICKS = 1 << 32
_BLOCK_HEAD = struct.Struct("<qqqqIII")
"""Of a block: the ids that it lies between, the number of holes, the bytes of its names and keys, and those of all."""
_MOST_IN_BLOCK, _MOST_NAMES = 1 << 16, 64 << 20
_MOST_IN_A_ROW = 1 << 16
"""Ids that are written as the first and their number: a damaged number must not fill the memory."""
_NO_KEY = 0xFFFF_FFFF
_NONSENSE = (struct.error, zlib.error, IndexError, KeyError, TypeError, AttributeError)


def encode_change(change: Change) -> bytes:
    """A change as bytes, without :attr:`Change.passed`, which is read from the log again."""
    frontier, fresh, holes, closed, _, _, _, _, _, block, _ = change
    flags = 0
    parts: list[bytes] = []
    if frontier is not None and fresh and frontier == (fresh[-1].ticks[-1], fresh[-1].tails[-1]):
        flags |= _FRONTIER_IS_LAST
    elif frontier is not None:
        flags |= _FRONTIER
        parts.append(_ID.pack(*frontier))
    if fresh:
        flags |= _FRESH
        parts += _encoded_fresh(fresh)
    if holes:
        flags |= _HOLES
        parts += [_encoded_ids(*_columns([hole.id for hole in holes])), *map(_encoded_hole, holes)]
    if closed:
        flags |= _CLOSED
        parts.append(_encoded_ids(*_columns(closed)))
    if rest := _rest(change):
        flags |= _REST
        parts.append(_encoded_text(json.dumps(rest, ensure_ascii=False, separators=(",", ":"))))
    if block is not None:
        flags |= _BLOCK
        parts.append(_encoded_block(block))
    return b"".join([bytes([flags]), *parts])


def decode_change(data: bytes) -> Change:
    """The inverse of :func:`encode_change`.

    :raises ValueError: this is no change, or not a whole one.
    """
    try:
        return _Decoder(data).change()
    except _NONSENSE as error:
        raise ValueError(f"not a change of a lease group: {error}") from error


def _columns(ids: Sequence[MessageId]) -> tuple[array[int], array[int]]:
    return array("q", [ticks for ticks, _ in ids]), array("q", [tail for _, tail in ids])


def _encoded_fresh(fresh: Sequence[FreshLeases]) -> Iterator[bytes]:
    ticks, tails = fresh[0].ticks, fresh[0].tails
    if len(fresh) > 1:
        ticks = array("q", b"".join([one.ticks for one in fresh]))
        tails = array("q", b"".join([one.tails for one in fresh]))
    yield _encoded_ids(ticks, tails)
    yield _SIZE.pack(len(fresh))
    for some, _, (_, visible_at, leased_at, _, _, _, flags, receiver, _) in fresh:
        name = receiver.encode()
        yield _LEASE.pack(len(some), visible_at, leased_at, flags, len(name)) + name


def _encoded_ids(ticks: array[int], tails: array[int]) -> bytes:
    number, first, tail = len(ticks), ticks[0], tails[0]
    if number == 1:
        return bytes([_ONE]) + _ID.pack(first, tail)
    if tails.count(tail) < number:
        return _IDS.pack(_COLUMNS, number) + _little(ticks) + _little(tails)
    is_near = ticks[-1] - first == number - 1 and number <= _MOST_IN_A_ROW
    if is_near and ticks == array("q", range(first, first + number)):
        return _IDS.pack(_IN_A_ROW, number) + _ID.pack(first, tail)
    least = min(ticks)
    if max(ticks) - least < _NEAR_TICKS:
        behind = array("I", [one - least for one in ticks])
        return _IDS.pack(_NEAR, number) + _ID.pack(least, tail) + _little(behind)
    return _IDS.pack(_SAME_TAIL, number) + _little(ticks) + tail.to_bytes(8, "little", signed=True)


def _little(column: array[int]) -> bytes:
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()


def _encoded_hole(hole: Hole) -> bytes:
    _, visible_at, leased_at, first, deliveries, failures, flags, receiver, key = hole
    counts = _COUNTS.pack(visible_at, leased_at, first, deliveries, failures, flags)
    return counts + _encoded_text(receiver) + (_SIZE.pack(_NO_KEY) if key is None else _encoded_text(key))


def _encoded_text(text: str) -> bytes:
    encoded = text.encode()
    return _SIZE.pack(len(encoded)) + encoded


def _encoded_block(block: HoleBlock) -> bytes:
    after, upto, columns, names, keys = block
    texts = json.dumps([names, keys], separators=(",", ":")).encode()
    planes = [_planes(column) for column in columns]
    data = zlib.compress(b"".join([*planes, texts]), 1)
    return _BLOCK_HEAD.pack(*after, *upto, len(columns[0]), len(texts), len(data)) + data


def _planes(column: array[int]) -> bytes:
    """The first bytes of all numbers, then the second ones, and so on: neighbours that are alike take little room."""
    raw = _little(column)
    return b"".join([raw[at :: column.itemsize] for at in range(column.itemsize)])


def _rest(change: Change) -> dict[str, Any]:
    rest: dict[str, Any] = {}
    if change.renewals:
        rest["renewals"] = {name: [*renewal] for name, renewal in change.renewals.items()}
    if change.reasons:
        rest["reasons"] = [[*message_id, reason] for message_id, reason in change.reasons.items()]
    if change.skipped:
        rest["skipped"] = {key: None if first is None else [*first] for key, first in change.skipped.items()}
    if change.dead:
        rest["dead"] = change.dead
    if change.base is not None:
        rest["base"] = change.base
    return rest


class SingleStep(NamedTuple):
    """A change that leases one new message, the last one that the group has looked at, and may settle another."""

    id: MessageId
    lease: Hole
    """Without the id."""
    closed: MessageId | None


def decode_single(data: bytes) -> SingleStep | None:
    """A change if it is of this kind, in a fraction of the time; None if it is none, or no change at all.

    A group whose receivers take one message at a time has many of them.
    """
    flags = data[0]
    is_closing = flags == _FRESH | _FRONTIER_IS_LAST | _CLOSED
    if not (is_closing or flags == _FRESH | _FRONTIER_IS_LAST) or len(data) < _ONE_LEASE.size:
        return None
    _, kind, ticks, tail, leases, number, visible_at, leased_at, lease_flags, size = _ONE_LEASE.unpack_from(data)
    end = _ONE_LEASE.size + size
    if kind != _ONE or (leases, number) != (1, 1) or len(data) != end + is_closing * _ONE_CLOSED.size:
        return None
    closed = None
    if is_closing:
        form, *closed_id = _ONE_CLOSED.unpack_from(data, end)
        if form != _ONE:
            return None
        closed = MessageId(*closed_id)
    try:
        receiver = data[_ONE_LEASE.size : end].decode()
    except UnicodeDecodeError:
        return None
    lease = Hole(ZERO_ID, visible_at, leased_at, leased_at, 1, 0, lease_flags, receiver)
    return SingleStep(MessageId(ticks, tail), lease, closed)


def decode_changes(data: bytes) -> Iterator[Change]:
    """Changes that were encoded one after the other.

    :raises ValueError: as :func:`decode_change`.
    """
    decoder = _Decoder(data)
    try:
        while not decoder.is_at_end:
            yield decoder.next()
    except _NONSENSE as error:
        raise ValueError(f"not a change of a lease group: {error}") from error


def _from_planes(code: str, data: bytes, begin: int, number: int) -> array[int]:
    column = array(code)
    size = column.itemsize
    raw = bytearray(size * number)
    for at in range(size):
        raw[at::size] = data[begin + at * number : begin + (at + 1) * number]
    column.frombytes(raw)
    if sys.byteorder == "big":
        column.byteswap()
    return column


class _Decoder:
    """Reads changes from the first byte to the last."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._data)

    def change(self) -> Change:
        """The only change."""
        found = self.next()
        if not self.is_at_end:
            raise ValueError("not a change of a lease group: something follows it")
        return found

    def next(self) -> Change:
        """The next change."""
        flags = self._take(1)[0]
        if flags & ~_ALL_KNOWN:
            raise ValueError("not a change of a lease group: it has an unknown part")
        frontier = MessageId(*self._unpack(_ID)) if flags & _FRONTIER else None
        fresh = [*self._fresh()] if flags & _FRESH else []
        if flags & _FRONTIER_IS_LAST:
            frontier = MessageId(fresh[-1].ticks[-1], fresh[-1].tails[-1])
        ids = [*map(MessageId, *self._ids())] if flags & _HOLES else []
        holes = [self._hole(message_id) for message_id in ids]
        closed = [*map(MessageId, *self._ids())] if flags & _CLOSED else []
        rest: Mapping[str, Any] = json.loads(self._text(self._size())) if flags & _REST else {}
        block = self._block() if flags & _BLOCK else None
        return Change(
            frontier,
            fresh,
            holes,
            closed,
            renewals={name: Renewal(*renewal) for name, renewal in rest.get("renewals", {}).items()},
            reasons={MessageId(ticks, tail): reason for ticks, tail, reason in rest.get("reasons", [])},
            skipped={
                key: None if first is None else MessageId(*first) for key, first in rest.get("skipped", {}).items()
            },
            dead=rest.get("dead", 0),
            block=block,
            base=rest.get("base"),
        )

    def _take(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if len(found) < size:
            raise ValueError("not a change of a lease group: its end is missing")
        self._at += size
        return found

    def _unpack(self, form: struct.Struct) -> tuple[Any, ...]:
        return form.unpack(self._take(form.size))

    def _size(self) -> int:
        return int(self._unpack(_SIZE)[0])

    def _text(self, size: int) -> str:
        return self._take(size).decode()

    def _fresh(self) -> Iterator[FreshLeases]:
        ticks, tails = self._ids()
        (leases,) = self._unpack(_SIZE)
        at = 0
        for _ in range(leases):
            number, visible_at, leased_at, flags, size = self._unpack(_LEASE)
            end = at + number
            hole = Hole(ZERO_ID, visible_at, leased_at, leased_at, 1, 0, flags, self._text(size))
            yield FreshLeases(ticks[at:end], tails[at:end], hole)
            if not number or end > len(ticks):
                break
            at = end
        if at != len(ticks):
            raise ValueError("not a change of a lease group: leases without messages")

    def _block(self) -> HoleBlock:
        *ids, number, of_texts, size = self._unpack(_BLOCK_HEAD)
        if number > _MOST_IN_BLOCK or of_texts > _MOST_NAMES:
            raise ValueError("not a change of a lease group: a block is too large")
        wanted = sum([array(code).itemsize for code in BLOCK_TYPES]) * number + of_texts
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(self._take(size), wanted + 1)
        if len(data) != wanted or not unpacker.eof or unpacker.unused_data:
            raise ValueError("not a change of a lease group: a block has another size than it says")
        columns, at = [], 0
        for code in BLOCK_TYPES:
            column = _from_planes(code, data, at, number)
            columns.append(column)
            at += column.itemsize * number
        names, keys = json.loads(data[at:])
        first, second = MessageId(*ids[:2]), MessageId(*ids[2:])
        if not all(isinstance(name, str) for name in names) or any(local >= len(names) for local in {*columns[-1]}):
            raise ValueError("not a change of a lease group: a hole without a receiver")
        if keys is not None and len(keys) != number:
            raise ValueError("not a change of a lease group: a hole without a key")
        return HoleBlock(first, second, columns, names, keys)

    def _column(self, number: int, code: Literal["q", "I"] = "q") -> array[int]:
        column = array(code, self._take(array(code).itemsize * number))
        if sys.byteorder == "big":
            column.byteswap()
        return column

    def _ids(self) -> tuple[array[int], array[int]]:
        """Ticks and tails."""
        (kind,) = self._take(1)
        if kind == _ONE:
            return self._column(1), self._column(1)
        number = self._size()
        if kind == _COLUMNS:
            return self._column(number), self._column(number)
        if kind == _SAME_TAIL:
            return self._column(number), self._column(1) * number
        if kind not in (_IN_A_ROW, _NEAR) or (kind == _IN_A_ROW and number > _MOST_IN_A_ROW):
            raise ValueError("not a change of a lease group: ids of an unknown form")
        first, tail = self._unpack(_ID)
        if kind == _NEAR:
            return array("q", [first + behind for behind in self._column(number, "I")]), array("q", [tail]) * number
        return array("q", range(first, first + number)), array("q", [tail]) * number

    def _hole(self, message_id: MessageId) -> Hole:
        visible_at, leased_at, first, deliveries, failures, flags = self._unpack(_COUNTS)
        receiver = self._text(self._size())
        size = self._size()
        key = None if size == _NO_KEY else self._text(size)
        return Hole(message_id, visible_at, leased_at, first, deliveries, failures, flags, receiver, key)
