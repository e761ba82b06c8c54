"""Packs: messages of one partition, next to each other in its order, kept as one piece.

A message by itself costs a row and an entry of the index, and as much again when it is read. What came as a batch is
mostly read as a batch; so it is kept as one, in the layout that Arrow has in memory: numbers beside numbers, bodies end
to end. A reader takes the columns as they are, without a step of the interpreter for each message.

A pack is two pieces of bytes. The *head* decides about messages: ids and expiry. The *rest* has bodies, content types and
keys, and is not looked at by who wants ids alone. Each has a CRC32C of the whole piece. Messages have their own seals as well,
so that damage is told by message (G6).
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import NamedTuple, TypeVar

from google_crc32c import value as crc32c

from queuey.ids import MessageId
from queuey.model import Bodies, Columns, Span
from queuey.storage.seals import all_match, seals_of

__all__ = [
    "LEAST",
    "MOST",
    "Head",
    "Piece",
    "cut",
    "encoded",
    "packed",
    "picked",
    "read_head",
    "read_rest",
    "read_unchecked",
]

T = TypeVar("T")

LEAST = 32
"""Messages from which on a pack pays: fewer are as quick as rows, and are deleted quicker."""
MOST = 250
"""Messages of one pack at most. All are read for a page that needs one, and unpacked when one is deleted."""
MOST_BYTES = 64 << 10
"""Bodies of one pack at most, but for a single one."""

_HEAD = struct.Struct("<I")
_REST = struct.Struct("<III")


class Piece(NamedTuple):
    """Bytes, and what they must match when they are read."""

    data: bytes
    crc: int

    @classmethod
    def of(cls, parts: Sequence[bytes]) -> Piece:
        data = b"".join(parts)
        return cls(data, crc32c(data))

    @property
    def is_sound(self) -> bool:
        """Whether the bytes are as they were written."""
        try:
            return bool(crc32c(self.data) == self.crc)
        except TypeError:  # a flipped bit made something else of a blob
            return False


class Head(NamedTuple):
    """What decides about a pack's messages, in the order of their ids."""

    ticks: Sequence[int]
    tails: Sequence[int]
    expires_ticks: Sequence[int]

    def inside(self, span: Span) -> range:
        """Which of them lie in a span."""
        ids = range(len(self.ticks))
        start, stop = (bisect_right(ids, end, key=self.id_at) for end in span)
        return range(start, max(start, stop))

    def id_at(self, index: int) -> MessageId:
        return MessageId(self.ticks[index], self.tails[index])


def cut(columns: Columns) -> Iterator[Columns]:
    """Messages in runs of which each may be a pack, by number and by bytes."""
    start = size = 0
    for at, length in enumerate(map(len, columns.bodies)):
        if at - start == MOST or (size + length > MOST_BYTES and at > start):
            yield columns[start:at]
            start, size = at, 0
        size += length
    yield columns[start:] if start else columns


def packed(columns: Columns) -> tuple[Piece, Piece]:
    """The head and the rest of a pack.

    :param columns: at least one message, ids rising.
    """
    kinds, keys = encoded(columns.content_types), encoded(columns.keys)
    kinds_part, keys_part = _names(kinds), _names(keys)
    seals = seals_of(columns.ticks, columns.tails, kinds, keys, columns.bodies)
    numbers = [_numbers("q", values) for values in (columns.ticks, columns.tails, columns.expires_ticks)]
    rest = [
        _REST.pack(len(columns), len(kinds_part), len(keys_part)),
        _numbers("q", seals),
        _numbers("i", accumulate(map(len, columns.bodies), initial=0)),
        kinds_part,
        keys_part,
        *columns.bodies,
    ]
    return Piece.of([_HEAD.pack(len(columns)), *numbers]), Piece.of(rest)


def read_head(piece: Piece) -> Head | None:
    """:returns: None of a head that is not as it was written."""
    if not piece.is_sound:
        return None
    (messages,) = _HEAD.unpack_from(piece.data)
    size = 8 * messages
    ticks, tails, expires = (_array("q", piece.data, _HEAD.size + size * at, size) for at in range(3))
    return Head(ticks, tails, expires)


def read_rest(head: Head, piece: Piece, chosen: Sequence[int]) -> tuple[Columns, Sequence[MessageId]]:
    """Messages of a pack, and the ids of those among them that are not as they were written, which are left out.

    :param chosen: which are wanted, rising.
    """
    try:
        whole, seals = read_unchecked(head, piece.data)
    except ValueError:
        return Columns.of([]), [head.id_at(at) for at in chosen]
    if not piece.is_sound:
        sound = [at for at in chosen if _matches(whole, seals, at)]
        return taken_from(whole, sound), [head.id_at(at) for at in sorted({*chosen} - {*sound})]
    return taken_from(whole, chosen), ()


def picked(column: Sequence[T], chosen: Sequence[int]) -> Sequence[T]:
    """The values of a column that are wanted."""
    if isinstance(chosen, range):
        return column if len(chosen) == len(column) else column[chosen.start : chosen.stop]
    return itemgetter(*chosen)(column) if len(chosen) > 1 else [column[at] for at in chosen]


def taken_from(columns: Columns, chosen: Sequence[int]) -> Columns:
    """The messages that are wanted."""
    if isinstance(chosen, range) and len(chosen) == len(columns):
        return columns
    return Columns(*[picked(column, chosen) for column in columns.all()])


def _matches(columns: Columns, seals: Sequence[int], at: int) -> bool:
    found = columns[at]
    kinds, keys = encoded((found.content_type,)), encoded((found.key,))
    return all_match((seals[at],), (found.ticks,), (found.tail,), kinds, keys, (found.body,))


def read_unchecked(head: Head, data: bytes) -> tuple[Columns, Sequence[int]]:
    """All messages of a pack, and their seals.

    :raises ValueError: it is damaged, and its messages cannot be told from each other.
    """
    try:
        return _read(head, data)
    except (struct.error, TypeError) as error:
        raise ValueError(str(error)) from error


def _read(head: Head, data: bytes) -> tuple[Columns, Sequence[int]]:
    messages, kinds_size, keys_size = _REST.unpack_from(data)
    seals_at = _REST.size
    ends_at = seals_at + 8 * messages
    kinds_at = ends_at + 4 * (messages + 1)
    keys_at = kinds_at + kinds_size
    bodies_at = keys_at + keys_size
    ends = _array("i", data, ends_at, kinds_at - ends_at)
    if messages != len(head.ticks) or len(ends) != messages + 1:
        raise ValueError("not of this head")
    kinds = _read_names(data[kinds_at:keys_at], messages)
    keys = _read_names(data[keys_at:bodies_at], messages)
    return Columns(*head, kinds, keys, Bodies(data, ends, bodies_at)), _array("q", data, seals_at, 8 * messages)


def _numbers(code: str, values: Iterable[int]) -> bytes:
    """Little-endian on every machine."""
    numbers = array(code, values)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _array(code: str, data: bytes, start: int, size: int) -> Sequence[int]:
    numbers = array(code, data[start : start + size])
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def encoded(names: Sequence[str | None]) -> Sequence[bytes | None]:
    """Content types or keys as they are stored."""
    if names.count(None) == len(names):
        return (None,) * len(names)
    return [None if name is None else name.encode() for name in names]


def _names(names: Sequence[bytes | None]) -> bytes:
    """Content types or keys: nothing if no message has one; that of all if all have the same; else each after its length."""
    first = names[0]
    if names.count(first) == len(names):
        return b"" if first is None else b"=" + first
    lengths = _numbers("i", [-1 if name is None else len(name) for name in names])
    return b"#" + lengths + b"".join([name for name in names if name is not None])


def _read_names(data: bytes, messages: int) -> Sequence[str | None]:
    if not data:
        return (None,) * messages
    if data[:1] == b"=":
        return (data[1:].decode(),) * messages
    lengths = _array("i", data, 1, 4 * messages)
    places = pairwise(accumulate((max(length, 0) for length in lengths), initial=1 + 4 * messages))
    return [
        None if length < 0 else data[begin:end].decode() for length, (begin, end) in zip(lengths, places, strict=True)
    ]
