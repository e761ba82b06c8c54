"""Packs: neighbouring messages of one partition, stored as one piece.

A single message costs a row and an index entry, and as much again when it is read. What came as a batch is mostly read
as a batch. So it is stored as one, in the layout that Arrow has in memory: numbers beside numbers, bodies end to end. A
reader takes the columns unchanged, without an interpreter step for each message.

A pack is two pieces of bytes. The *head* has what decides about messages: ids and expiry. The *rest* has bodies,
content types and keys; readers that want only ids skip it. Each piece has a CRC32C. Each message also has a CRC32C of
its own, so that damage is reported by message (G6). The pack's first id is added to it, so that the rest of another
pack does not match.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import NamedTuple, TypeVar, cast

from google_crc32c import extend as crc32c_extend
from google_crc32c import value as crc32c

from queuey.ids import MessageId
from queuey.model import Alike, Bodies, Columns, Span, shifted

__all__ = [
    "LEAST",
    "MOST",
    "PackHead",
    "Piece",
    "Rest",
    "cut",
    "encoded",
    "packed",
    "picked",
    "read_head",
    "read_rest",
    "read_whole",
]

T = TypeVar("T")

LEAST = 32
"""The number of messages from which on a pack pays. Fewer are as fast as rows, and are deleted faster."""
MOST = 250
"""The most messages of one pack. A page that needs one of them reads all, and deleting one unpacks all."""
MOST_BYTES = 64 << 10
"""The most bytes of bodies in one pack, unless it has a single message."""

_HEAD = struct.Struct("<I")
_REST = struct.Struct("<IIII")


class Piece(NamedTuple):
    """Bytes, and the checksum that they must match when they are read."""

    data: bytes
    crc: int

    @classmethod
    def of(cls, parts: Iterable[bytes | memoryview]) -> Piece:
        data = b"".join(parts)
        return cls(data, crc32c(data))

    @property
    def is_sound(self) -> bool:
        """Whether the bytes match their checksum."""
        try:
            return bool(crc32c(self.data) == self.crc)
        except TypeError:  # a flipped bit changed the type of a blob
            return False


class PackHead(NamedTuple):
    """The ids and expiries of a pack's messages, in the order of their ids."""

    ticks: Sequence[int]
    tails: Sequence[int]
    expires_ticks: Sequence[int]

    def inside(self, span: Span) -> range:
        """The messages that lie in a span, by index."""
        start, stop = self._after(span.after), self._after(span.upto)
        return range(start, max(start, stop))

    def _after(self, end: MessageId) -> int:
        """The index of the first message after an id. Few messages have the same ticks."""
        ticks, tail = end
        found = bisect_right(self.ticks, ticks)
        while found and self.ticks[found - 1] == ticks and self.tails[found - 1] > tail:
            found -= 1
        return found

    def id_at(self, index: int) -> MessageId:
        return MessageId(self.ticks[index], self.tails[index])


def _has_any(values: Sequence[bytes | None]) -> bool:
    return values.count(None) < len(values)


def cut(columns: Columns) -> Iterator[Columns]:
    """The messages in runs that can each be a pack, by count and by bytes."""
    ends = [*accumulate(columns.sizes(), initial=0)] if _has_any(columns.headers) else _laid(columns.bodies)[0]
    start, count = 0, len(columns)
    while start < count:
        room = bisect_right(ends, ends[start] + MOST_BYTES, start) - 1
        stop = min(start + MOST, max(room, start + 1))
        yield columns[start:stop] if stop - start < count else columns
        start = stop


class Rest(NamedTuple):
    """The rest of a pack whose messages need not have ids yet.

    It is built while other requests of its store commit.
    """

    messages: int
    sizes: bytes
    crcs: int
    """The CRCs of the messages, as digits of one large number."""
    parts: Sequence[bytes | memoryview]
    body_bytes: int

    @classmethod
    def of(cls, columns: Columns) -> Rest:
        """:param columns: at least one message; their ids are not used."""
        beside = _beside(columns)
        lengths_and_parts = [_names(values) for values in beside]
        ends, bodies = _laid(columns.bodies)
        crcs = int.from_bytes(_numbers("I", _crcs(beside, columns.bodies)), "little")
        sizes = _REST.pack(len(columns), *map(len, lengths_and_parts))
        parts = [_numbers("i", ends), *lengths_and_parts, *bodies]
        return cls(len(columns), sizes, crcs, parts, ends[-1])

    def bound(self, first: MessageId) -> Piece:
        """:param first: the id of the first message."""
        crcs = (self.crcs ^ _bits_of(first) * _ones(self.messages, 4)).to_bytes(4 * self.messages, "little")
        return Piece.of([self.sizes, crcs, *self.parts])


def packed(columns: Columns, rest: Rest | None = None) -> tuple[Piece, Piece]:
    """The head and the rest of a pack.

    :param columns: at least one message, with rising ids.
    :param rest: the rest of these messages, if it is built already.
    """
    numbers = [_numbers("q", values) for values in (columns.ticks, columns.tails, columns.expires_ticks)]
    first = MessageId(columns.ticks[0], columns.tails[0])
    return Piece.of([_HEAD.pack(len(columns)), *numbers]), (rest or Rest.of(columns)).bound(first)


def read_head(piece: Piece) -> PackHead | None:
    """:returns: None if the head is damaged."""
    if not piece.is_sound:
        return None
    (messages,) = _HEAD.unpack_from(piece.data)
    size = 8 * messages
    ticks, tails, expires = (_array("q", piece.data, _HEAD.size + size * at, size) for at in range(3))
    return PackHead(ticks, tails, expires)


def read_rest(head: PackHead, piece: Piece, chosen: Sequence[int]) -> tuple[Columns, Sequence[MessageId]]:
    """Messages of a pack, and the ids of damaged ones, which are left out.

    :param chosen: indexes of the messages, rising.
    """
    try:
        whole, crcs = _read(head, piece.data)
    except ValueError:
        return Columns.of([]), [head.id_at(at) for at in chosen]
    if not piece.is_sound:
        is_sound = _which_match(whole, crcs)
        lost = [head.id_at(at) for at in chosen if not is_sound[at]]
        return taken_from(whole, [at for at in chosen if is_sound[at]]), lost
    return taken_from(whole, chosen), ()


def picked(column: Sequence[T], chosen: Sequence[int]) -> Sequence[T]:
    """The chosen values of a column."""
    if isinstance(chosen, range):
        return column if len(chosen) == len(column) else column[chosen.start : chosen.stop : chosen.step]
    if isinstance(column, range) and column.step == 1:
        return cast("Sequence[T]", shifted("q", array("q", struct.pack(f"{len(chosen)}q", *chosen)), column.start))
    if isinstance(column, Alike | Bodies):
        return column.picked(chosen)
    return itemgetter(*chosen)(column) if len(chosen) > 1 else [column[at] for at in chosen]


def taken_from(columns: Columns, chosen: Sequence[int]) -> Columns:
    """The chosen messages."""
    if isinstance(chosen, range) and len(chosen) == len(columns):
        return columns
    return Columns(*[picked(column, chosen) for column in columns.all()])


def _beside(columns: Columns) -> tuple[Sequence[bytes | None], ...]:
    """Content types, keys and headers, as they are stored."""
    return encoded(columns.content_types), encoded(columns.keys), columns.headers


def _crcs(beside: Sequence[Sequence[bytes | None]], bodies: Sequence[bytes]) -> Iterable[int]:
    """The CRC of each message, over its body and what is beside it."""
    crcs: Iterable[int] = map(crc32c, bodies)
    return map(_with_rest, crcs, *beside) if any(map(_has_any, beside)) else crcs


def _bits_of(first: MessageId) -> int:
    """The number that a pack's first id adds to the CRC of each message."""
    return (first.ticks ^ first.tail) & 0xFFFFFFFF


def _with_rest(crc: int, *beside: bytes | None) -> int:
    """A body's CRC, continued over what is beside the body.

    A missing value gives another CRC than an empty one.
    """
    if beside.count(None) == len(beside):
        return crc
    marked = [b"-" if value is None else b"%d:%b" % (len(value), value) for value in beside]
    extended: int = crc32c_extend(crc, b"".join(marked))
    return extended


def _which_match(columns: Columns, crcs: Sequence[int]) -> Sequence[bool]:
    """Whether each message matches its CRC."""
    bits, made = _bits_of(columns[0].id), _crcs(_beside(columns), columns.bodies)
    return [crc ^ bits == one for crc, one in zip(crcs, made, strict=True)]


def read_whole(head: PackHead, piece: Piece) -> tuple[Columns, Sequence[bool]]:
    """All messages of a pack, and whether each is undamaged.

    :raises ValueError: it is damaged, and its messages cannot be separated.
    """
    whole, crcs = _read(head, piece.data)
    return whole, [True] * len(whole) if piece.is_sound else _which_match(whole, crcs)


def _read(head: PackHead, data: bytes) -> tuple[Columns, Sequence[int]]:
    """All messages, and their CRCs.

    :raises ValueError: see :func:`read_whole`.
    """
    try:
        return _parts(head, data)
    except (struct.error, TypeError) as error:
        raise ValueError(str(error)) from error


def _parts(head: PackHead, data: bytes) -> tuple[Columns, Sequence[int]]:
    messages, kinds_size, keys_size, headers_size = _REST.unpack_from(data)
    crcs_at = _REST.size
    ends_at = crcs_at + 4 * messages
    kinds_at = ends_at + 4 * (messages + 1)
    keys_at = kinds_at + kinds_size
    headers_at = keys_at + keys_size
    bodies_at = headers_at + headers_size
    ends = _array("i", data, ends_at, kinds_at - ends_at)
    if messages != len(head.ticks) or len(ends) != messages + 1:
        raise ValueError("not of this head")
    kinds = _read_names(data[kinds_at:keys_at], messages)
    keys = _read_names(data[keys_at:headers_at], messages)
    headers = _read_values(data[headers_at:bodies_at], messages)
    if not len(kinds) == len(keys) == len(headers) == messages:
        raise ValueError("not of this head")
    bodies = Bodies(data, ends, bodies_at)
    return Columns(*head, kinds, keys, bodies, headers), _array("I", data, crcs_at, 4 * messages)


def _laid(bodies: Sequence[bytes]) -> tuple[Sequence[int], Sequence[bytes | memoryview]]:
    """Where each body begins and ends, and the pieces that the bodies come in.

    There is one more number than bodies: each body begins where the one before it ends.
    """
    if isinstance(bodies, Bodies):
        return bodies.places(), [bodies.whole()]
    return [*accumulate(map(len, bodies), initial=0)], bodies


def _numbers(code: str, values: Iterable[int]) -> bytes:
    """The numbers as bytes, little-endian on every machine."""
    if isinstance(values, array) and sys.byteorder == "little":
        return values.tobytes()
    if isinstance(values, range):
        return _rising(values, struct.calcsize(f"<{code}"))
    if isinstance(values, Alike):
        return struct.pack(f"<{code}", values.value) * len(values)
    numbers = tuple(values)
    return struct.pack(f"<{len(numbers)}{code}", *numbers)


def _rising(values: range, size: int) -> bytes:
    """Numbers of 0 or more, each of ``size`` bytes.

    They are made in one step, as digits of one large number.
    """
    number = _ones(len(values), size) * values.start + _steps(len(values), values.step, size)
    return number.to_bytes(len(values) * size, "little")


@lru_cache
def _ones(count: int, size: int) -> int:
    """1, 1, 1 ... as digits of ``size`` bytes each."""
    return int.from_bytes((1).to_bytes(size, "little") * count, "little")


@lru_cache
def _steps(count: int, step: int, size: int) -> int:
    """0, step, 2 * step ... as digits of ``size`` bytes each."""
    return int.from_bytes(b"".join([(step * at).to_bytes(size, "little") for at in range(count)]), "little")


def _array(code: str, data: bytes, start: int, size: int) -> Sequence[int]:
    numbers = array(code, data[start : start + size])
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def encoded(names: Sequence[str | None]) -> Sequence[bytes | None]:
    """Content types or keys as they are stored."""
    if names.count(None) == len(names):
        return Alike(None, len(names))
    return [None if name is None else name.encode() for name in names]


def _names(names: Sequence[bytes | None]) -> bytes:
    """Content types or keys as bytes.

    It is empty if no message has one, one value if all have the same, and else each value after its length.
    """
    first = names[0]
    if names.count(first) == len(names):
        return b"" if first is None else b"=" + first
    lengths = _numbers("i", [-1 if name is None else len(name) for name in names])
    return b"#" + lengths + b"".join([name for name in names if name is not None])


def _read_names(data: bytes, messages: int) -> Sequence[str | None]:
    values = _read_values(data, messages)
    if isinstance(values, Alike):
        return Alike(None if values.value is None else values.value.decode(), messages)
    return [None if value is None else value.decode() for value in values]


def _read_values(data: bytes, messages: int) -> Sequence[bytes | None]:
    if data[:1] in (b"", b"="):
        return Alike(data[1:] if data else None, messages)
    lengths = _array("i", data, 1, 4 * messages)
    places = pairwise(accumulate((max(length, 0) for length in lengths), initial=1 + 4 * messages))
    return [None if length < 0 else data[begin:end] for length, (begin, end) in zip(lengths, places, strict=True)]
