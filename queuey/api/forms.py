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
from typing import Any, NamedTuple

import orjson

from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND, MessageId, format_timestamp, low_from_tail
from queuey.model import Message

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
def _id_suffix(ticks_above: int, tail: int) -> str:
    """All but the first 8 digits of an id: alike for what one process stamped within seven minutes."""
    return f"{ticks_above & 0xFFFF:04x}{0x1000 | ticks_above >> 16:04x}{low_from_tail(tail):016x}"


def id_hex(ticks: int, tail: int) -> str:
    """The wire form of an id, quicker than through :class:`~queuey.ids.MessageId`.

    >>> id_hex(*MessageId.parse("1f9f6640e56711f189bf02fc00000001"))
    '1f9f6640e56711f189bf02fc00000001'
    """
    return f"{ticks & 0xFFFFFFFF:08x}{_id_suffix(ticks >> 32, tail)}"


def entries(messages: Iterable[Message], partition: int) -> list[dict[str, Any]]:
    """Messages in JSON: v1's four members, and what else was set.

    One loop for the whole page: this is most of what a read costs beside the database.
    """
    found = []
    suffix, suffix_of = "", (-1, 0)
    for ticks, tail, _, content_type, key, body in messages:
        if suffix_of != (ticks >> 32, tail):
            suffix_of = (ticks >> 32, tail)
            suffix = _id_suffix(*suffix_of)
        since = str(ticks - EPOCH_TICKS)
        shown: dict[str, Any] = {
            "message_id": "%08x%s" % (ticks & 0xFFFFFFFF, suffix),  # noqa: UP031 - a quarter quicker than an f-string
            "timestamp": f"{since[:-7]}.{since[-7:]}" if ticks >= _FIRST_SECOND else format_timestamp(ticks),
            "partition": partition,
        }
        try:
            shown["body"] = body.decode()
        except UnicodeDecodeError:
            shown["body"] = base64.b64encode(body).decode()
            shown["encoding"] = "base64"
        if content_type is not None:
            shown["content_type"] = content_type
        if key is not None:
            shown["key"] = key
        found.append(shown)
    return found


Presenter = Callable[[Iterable[Message], int], list[dict[str, Any]]]


def entries_of(columns: Sequence[str] | None, queue: str) -> Presenter:
    """How to present messages when only some members are wanted."""
    if columns is None:
        return entries
    wanted = frozenset(columns) | ({"encoding"} if "body" in columns else frozenset())

    def chosen(messages: Iterable[Message], partition: int) -> list[dict[str, Any]]:
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
        arrays = [self._array(name, messages, partition) for name in self._columns]
        self._writer.write_batch(self._pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        return self._out.take()

    def _array(self, name: str, messages: Sequence[Message], partition: int) -> Any:
        pa, count = self._pa, len(messages)
        if name == "queue":
            return pa.repeat(pa.scalar(self._queue), count)
        if name == "partition":
            return pa.repeat(pa.scalar(partition, pa.int32()), count)
        if name == "timestamp":
            return pa.array([(message[0] - EPOCH_TICKS) // 10 for message in messages], self._schema.field(name).type)
        if name == "message_id":
            return self._texts([id_hex(message[0], message[1]) for message in messages])
        if name == "body":
            return pa.array([message[5] for message in messages], pa.binary())
        return pa.array([getattr(message, name) for message in messages], pa.string())

    def _texts(self, texts: list[str]) -> Any:
        return self._pa.array(texts, self._pa.string())

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


def append_answer(placed: Iterable[tuple[MessageId, int]]) -> bytes:
    """v1's answer to an append, where an id is called ``key``."""
    places = [
        f'{{"key":"{id_hex(ticks, tail)}","timestamp":"{format_timestamp(ticks)}","partition":{partition}}}'
        for (ticks, tail), partition in placed
    ]
    return f'{{"status":"ok","messages":[{",".join(places)}]}}'.encode()
