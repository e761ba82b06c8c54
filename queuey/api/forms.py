"""Messages in their wire forms: JSON, NDJSON and Arrow.

A body that is UTF-8 travels in JSON as text; any other as base64, and the message says
``"encoding": "base64"``. Raw answers and Arrow carry the bytes as they are.

A stream can break where the server did not mean to end it, and some servers close a broken answer
as neatly as a whole one. So every stream ends with a mark: how many rows it had, the cursor to go
on from, and whether there is more. An answer without it is broken.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import add
from struct import pack
from typing import Any, NamedTuple

import orjson

from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND, format_timestamp, low_from_tail
from queuey.model import Columns, Message, Placed

COLUMNS = ("queue", "partition", "message_id", "timestamp", "content_type", "key", "body")
"""Members a reader may ask for with ``columns``."""


_FIRST_SECOND = EPOCH_TICKS + TICKS_PER_SECOND


class EndMark(NamedTuple):
    """How a stream says that it is whole."""

    rows: int
    cursor: str
    more: bool
    watermark: str


@lru_cache(maxsize=4096)
def _id_suffix(high: str, tail: int) -> str:
    """All but the first 8 digits of an id: alike for what one process stamped within seven minutes."""
    return f"{high[4:]}1{high[1:4]}{low_from_tail(tail):016x}"


def id_texts(ticks: Sequence[int], tails: Sequence[int]) -> list[str]:
    """The wire form of ids, at least one; for many quicker than through :class:`~queuey.ids.MessageId`.

    >>> from queuey.ids import MessageId
    >>> id_texts(*zip(MessageId.parse("1f9f6640e56711f189bf02fc00000001")))
    ['1f9f6640e56711f189bf02fc00000001']
    """
    halves = pack(f">{len(ticks)}q", *ticks).hex("-", 4).split("-")
    highs, lows = halves[::2], halves[1::2]
    if highs.count(highs[0]) == len(highs) == tails.count(tails[0]):  # often so, and then a third quicker
        suffix = _id_suffix(highs[0], tails[0])
        return [low + suffix for low in lows]
    return list(map(add, lows, map(_id_suffix, highs, tails)))


def timestamps(ticks: Sequence[int]) -> list[str]:
    """:func:`~queuey.ids.format_timestamp` of many.

    >>> timestamps([EPOCH_TICKS + 17952366500128320, EPOCH_TICKS - 1])
    ['1795236650.0128320', '-0.0000001']
    """
    if min(ticks) < _FIRST_SECOND:
        return list(map(format_timestamp, ticks))
    return [f"{since[:-7]}.{since[-7:]}" for since in [str(tick - EPOCH_TICKS) for tick in ticks]]


def entries(messages: Sequence[Message], partition: int) -> list[dict[str, Any]]:
    """Messages in JSON: v1's four members, and what else was set."""
    if not messages:
        return []
    columns = Columns.of(messages)
    texts, encodings = _texts(columns.bodies)
    found: list[dict[str, Any]] = [
        {"message_id": message_id, "timestamp": timestamp, "partition": partition, "body": text}
        for message_id, timestamp, text in zip(
            id_texts(columns.ticks, columns.tails), timestamps(columns.ticks), texts, strict=True
        )
    ]
    rare = (("encoding", encodings), ("content_type", columns.content_types), ("key", columns.keys))
    for name, values in rare:
        if values.count(None) < len(values):
            for shown, value in zip(found, values, strict=True):
                if value is not None:
                    shown[name] = value
    return found


def _texts(bodies: Sequence[bytes]) -> tuple[Sequence[str], Sequence[str | None]]:
    """Bodies as JSON carries them, and the encoding of each that is no text."""
    try:
        return list(map(bytes.decode, bodies)), ()
    except UnicodeDecodeError:
        texts, encodings = zip(*map(_text, bodies), strict=True)
        return texts, encodings


def _text(body: bytes) -> tuple[str, str | None]:
    try:
        return body.decode(), None
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"


Presenter = Callable[[Sequence[Message], int], list[dict[str, Any]]]


def entries_of(columns: Sequence[str] | None, queue: str) -> Presenter:
    """How to present messages when only some members are wanted."""
    if columns is None:
        return entries
    wanted = frozenset(columns) | ({"encoding"} if "body" in columns else frozenset())

    def chosen(messages: Sequence[Message], partition: int) -> list[dict[str, Any]]:
        return [
            {name: value for name, value in {"queue": queue, **whole}.items() if name in wanted}
            for whole in entries(messages, partition)
        ]

    return chosen


def json_page(shown: Sequence[dict[str, Any]]) -> bytes:
    """v1's answer to a read."""
    return orjson.dumps({"status": "ok", "messages": shown})


class NdjsonForm:
    """One JSON object a line; the last line is the end mark."""

    media_type = "application/x-ndjson"

    def __init__(self, columns: Sequence[str] | None, queue: str) -> None:
        self._entries = entries_of(columns or COLUMNS, queue)

    def start(self) -> bytes:
        return b""

    def rows(self, messages: Sequence[Message], partition: int) -> bytes:
        line = orjson.OPT_APPEND_NEWLINE
        return b"".join([orjson.dumps(shown, option=line) for shown in self._entries(messages, partition)])

    def end(self, mark: EndMark) -> bytes:
        return orjson.dumps({"end": mark._asdict()}, option=orjson.OPT_APPEND_NEWLINE)


class ArrowForm:
    """Arrow IPC record batches, built from buffers; the last batch has no rows and carries the end mark."""

    media_type = "application/vnd.apache.arrow.stream"

    def __init__(self, columns: Sequence[str] | None, queue: str) -> None:
        """:raises ImportError: pyarrow is not installed."""
        import pyarrow as pa

        self._pa = pa
        self._columns = columns or tuple(name for name in COLUMNS if name != "key")
        self._queue = queue
        self._queues: Any = ()
        """The queue's name, as often as the longest batch needed it: made once, for it takes 50 µs."""
        kinds = {
            "queue": pa.string(),
            "partition": pa.int32(),
            "message_id": pa.string(),
            "timestamp": pa.timestamp("us", tz="UTC"),
            "content_type": pa.string(),
            "key": pa.string(),
            "body": pa.binary(),
        }
        self._schema = pa.schema([(name, kinds[name]) for name in self._columns])
        self._out = _Chunks()
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._out, mode="w"), self._schema)

    def start(self) -> bytes:
        return self._out.take()

    def rows(self, messages: Sequence[Message], partition: int) -> bytes:
        columns = Columns.of(messages)
        arrays = [self._array(name, columns, partition) for name in self._columns]
        self._writer.write_batch(self._pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        return self._out.take()

    def _array(self, name: str, columns: Columns, partition: int) -> Any:
        pa, kind = self._pa, self._schema.field(name).type
        if name == "queue":
            if len(self._queues) < len(columns):
                self._queues = pa.repeat(pa.scalar(self._queue), len(columns))
            return self._queues.slice(0, len(columns))
        if name == "partition":
            return pa.repeat(pa.scalar(partition, kind), len(columns))
        if name == "message_id":
            return pa.array(id_texts(columns.ticks, columns.tails), kind)
        if name == "timestamp":
            return pa.array([(ticks - EPOCH_TICKS) // 10 for ticks in columns.ticks], kind)
        values = {"content_type": columns.content_types, "key": columns.keys, "body": columns.bodies}
        return pa.array(values[name], kind)

    def end(self, mark: EndMark) -> bytes:
        empty = self._pa.RecordBatch.from_pylist([], schema=self._schema)
        metadata = {
            "queuey.rows": str(mark.rows),
            "queuey.next": mark.cursor,
            "queuey.more": "1" if mark.more else "0",
            "queuey.watermark": mark.watermark,
        }
        self._writer.write_batch(empty, custom_metadata=metadata)
        self._writer.close()
        return self._out.take()


class _Chunks:
    """A file that the Arrow writer writes to and the answer takes from."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""

    def writable(self) -> bool:
        return True

    def take(self) -> bytes:
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken


def append_answer(placed: Sequence[Placed]) -> bytes:
    """v1's answer to an append, where an id is called ``key``."""
    shown: Iterable[tuple[str, str, int]]
    if len(placed) < _MANY:
        shown = [(message_id.hex, message_id.timestamp, partition) for message_id, partition in placed]
    else:
        ids, partitions = zip(*placed, strict=True)
        ticks, tails = zip(*ids, strict=True)
        shown = zip(id_texts(ticks, tails), timestamps(ticks), partitions, strict=True)
    return json_page(
        [{"key": key, "timestamp": timestamp, "partition": partition} for key, timestamp, partition in shown]
    )


_MANY = 5
"""Ids from which on it pays to make their texts together."""
