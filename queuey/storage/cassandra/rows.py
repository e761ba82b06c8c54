"""The form of a message as a row of ``messages``.

Rows are built here when they are written, and parsed here when they are read. They are built in their wire form, with
all that a batch says about each. The driver would do that value by value, looking up the column's type each time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple

from queuey.ids import TICKS_PER_SECOND, MessageId, tail_from_low
from queuey.model import Message, PartitionId, encode_headers
from queuey.storage.cassandra.buckets import Bucket
from queuey.storage.cassandra.session import Rows
from queuey.storage.checksums import Beside, all_match, checksum_of, corrupt

_SPARE_SECONDS = 60
"""How much longer than its message a row lives. The expiry column decides to the tick; the extra time is a margin."""
# A batch's row is the prepared statement's id, the number of values, and the values, each after its length.
_PREPARED = struct.Struct(">BH")
_PARTITION_VALUES = struct.Struct(">Hi16siiiqi")
_ID_EXPIRES_CHECKSUM = struct.Struct(">16siqiq")
_TTL_TIME = struct.Struct(">iiiq")
_LENGTH = struct.Struct(">i").pack
_NULL, _UNSET = _LENGTH(-1), _LENGTH(-2)
_VALUES = 12
"""Columns of ``message_insert``."""
_ROUTING_KEY = struct.Struct(">H16sxHixHqx")


class PartitionKey(NamedTuple):
    """A Cassandra partition."""

    routing_key: bytes
    head: bytes
    """What a row begins with."""


def partition_key_of(query_id: bytes, partition: PartitionId, bucket: Bucket) -> PartitionKey:
    """:param query_id: of ``message_insert``, as prepared."""
    queue, number, at = partition.queue.bytes, partition.number, bucket.number
    prepared = _PREPARED.pack(1, len(query_id)) + query_id
    return PartitionKey(
        _ROUTING_KEY.pack(16, queue, 4, number, 8, at),
        prepared + _PARTITION_VALUES.pack(_VALUES, 16, queue, 4, number, 8, at, 16),
    )


class RowEncoder:
    """Builds the rows of a ``message_insert`` batch, all written at one moment."""

    __slots__ = ("_nothing", "_now_ticks", "_write_time")

    def __init__(self, now_ticks: int, write_time: int, *, over: bool = False) -> None:
        """:param now_ticks: the moment from which Cassandra counts the rows' own TTL.
        :param over: there may be an old row, whose content type and key must go.
        """
        self._now_ticks = now_ticks
        self._write_time = write_time
        self._nothing = _NULL if over else _UNSET

    def row(
        self,
        partition_key: PartitionKey,
        message_id: MessageId,
        expires_ticks: int,
        body: bytes,
        beside: Beside,
    ) -> bytes:
        """:param beside: encoded headers have CQL's form of a map, and go into the row unchanged."""
        checksum = checksum_of(message_id, beside, body)
        kind, key, headers = beside
        ttl_seconds = (expires_ticks - self._now_ticks) // TICKS_PER_SECOND + _SPARE_SECONDS
        return b"".join(
            (
                partition_key.head,
                _ID_EXPIRES_CHECKSUM.pack(message_id.bytes, 8, expires_ticks, 8, checksum),
                self._nothing if kind is None else _LENGTH(len(kind)) + kind,
                self._nothing if key is None else _LENGTH(len(key)) + key,
                _LENGTH(len(body)),
                body,
                self._nothing if headers is None else _LENGTH(len(headers)) + headers,
                _TTL_TIME.pack(4, ttl_seconds, 8, self._write_time),
            )
        )


class Block(NamedTuple):
    """Rows by column, in the order of their ids or in reverse.

    Handling a page of a thousand takes only a few steps.
    """

    ticks: tuple[int, ...]
    tails: tuple[int, ...]
    expires: tuple[int, ...]
    checksums: tuple[int, ...]
    content_types: tuple[bytes | None, ...]
    keys: tuple[bytes | None, ...]
    bodies: tuple[bytes, ...]
    headers: tuple[bytes | None, ...]

    @classmethod
    def of_rows(cls, rows: Sequence[tuple[Any, ...]]) -> Block:
        """Rows of eight values."""
        return cls(*zip(*rows, strict=True)) if rows else NO_ROWS

    @property
    def length(self) -> int:
        return len(self.ticks)

    def id_at(self, at: int) -> MessageId:
        return MessageId(self.ticks[at], self.tails[at])

    def rows(self) -> Iterator[tuple[Any, ...]]:
        return zip(*self, strict=True)

    def between(self, first: int, end: int) -> Block:
        """The rows from ``first`` on, up to but without ``end``."""
        if first == 0 and end >= self.length:
            return self
        return Block._make(column[first:end] for column in self)

    def live(self, now_ticks: int) -> Block:
        """The rows that have not expired."""
        if not self.expires or min(self.expires) > now_ticks:
            return self
        lives = [expires > now_ticks for expires in self.expires]
        return Block._make(tuple(compress(column, lives)) for column in self)

    @property
    def beside(self) -> tuple[tuple[bytes | None, ...], tuple[bytes | None, ...], tuple[bytes | None, ...]]:
        """Content types, keys and headers."""
        return self.content_types, self.keys, self.headers

    def sizes(self) -> list[int]:
        """Bytes of each message: its body and its headers."""
        if self.headers.count(None) == len(self.headers):
            return [*map(len, self.bodies)]
        return [len(body) + len(headers or b"") for body, headers in zip(self.bodies, self.headers, strict=True)]

    def is_sound(self) -> bool:
        """Whether all rows match their checksums."""
        return all_match(self.checksums, self.ticks, self.tails, self.beside, self.bodies)


NO_ROWS = Block((), (), (), (), (), (), (), ())


def block_of(found: Rows) -> Block:
    """The rows that the statements ``read_...`` and ``message_find`` found."""
    if not found:
        return NO_ROWS
    return _block(*zip(*found, strict=True))


def _block(ids: Sequence[bytes], *others: Any) -> Block:
    expires, checksums, content_types, keys, bodies, headers = others
    return Block(*_ids(ids), expires, checksums, content_types, keys, bodies, _encoded(headers))


def _encoded(headers: tuple[Any, ...]) -> tuple[bytes | None, ...]:
    """Headers as they were written; the driver makes each a mapping."""
    if headers.count(None) == len(headers):
        return headers
    return tuple([None if found is None else _encoded_one(found) for found in headers])


def _encoded_one(headers: Mapping[str, bytes]) -> bytes | None:
    """The encoding of one row's headers; of headers that no message can have, bytes that no checksum matches (G6)."""
    try:
        return encode_headers(headers, bounded=False)
    except ValueError:
        return _NO_ENCODING


_NO_ENCODING = b"\0"
"""Too short for an encoding of headers."""


def blocks_of(found: Rows) -> dict[int, Block]:
    """The rows that ``read_together`` found, by bucket.

    The rows of each bucket come one after the other.
    """
    blocks: dict[int, Block] = {}
    first, (*columns, buckets) = 0, zip(*found, strict=True) if found else ((),)
    while first < len(found):
        end = first + buckets.count(buckets[first])
        blocks[buckets[first]] = _block(*[column[first:end] for column in columns])
        first = end
    return blocks


def block_of_ids(found: Rows) -> Block:
    """The rows that ``ids_...`` found: bodies are empty, and need no check."""
    if not found:
        return NO_ROWS
    ids, expires = zip(*found, strict=True)
    nothing = (None,) * len(ids)
    return Block(*_ids(ids), expires, (0,) * len(ids), nothing, nothing, (b"",) * len(ids), nothing)


class _Tails(dict[int, int]):
    """Tails by the low halves of ids; most ids of a page share one."""

    def __missing__(self, low: int) -> int:
        tail = self[low] = tail_from_low(low)
        return tail


def _ids(raw: Sequence[bytes]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ticks and tails of ids, all in one step.

    One by one they took a third of a page's time.
    """
    halves = struct.unpack(f">{2 * len(raw)}Q", b"".join(raw))
    ticks = [high >> 32 | (high & 0xFFFF0000) << 16 | (high & 0x0FFF) << 48 for high in halves[::2]]
    return tuple(ticks), tuple(map(_Tails().__getitem__, halves[1::2]))


def texts_of(values: Sequence[bytes | None]) -> Sequence[str | None]:
    """Texts as they were before they were encoded."""
    if values.count(None) == len(values):
        return [None] * len(values)
    return [None if value is None else value.decode() for value in values]


def message_of(found: Rows) -> Message | None:
    """The message that ``message_find`` found; None if there is none.

    :raises CorruptMessage: it does not match its checksum.
    """
    block = block_of(found)
    if not block.length:
        return None
    if not block.is_sound():
        raise corrupt(block.id_at(0))
    kinds, keys = texts_of(block.content_types), texts_of(block.keys)
    return Message(*block.id_at(0), block.expires[0], kinds[0], keys[0], block.bodies[0], block.headers[0])
