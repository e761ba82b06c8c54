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
_BASE = EPOCH_TICKS


class EndMark(NamedTuple):
    """How a stream says that it is whole."""

    rows: int
    cursor: str
    more: bool
    watermark: str


@lru_cache(maxsize=1024)
def _tail_hex(tail: int) -> str:
    """The last 16 digits: alike for all messages that one server process stamped."""
    return f"{low_from_tail(tail):016x}"


def id_hex(ticks: int, tail: int) -> str:
    """The wire form of an id, quicker than through :class:`~queuey.ids.MessageId`.

    >>> id_hex(*MessageId.parse("1f9f6640e56711f189bf02fc00000001"))
    '1f9f6640e56711f189bf02fc00000001'
    """
    high = (ticks & 0xFFFFFFFF) << 32 | ticks >> 16 & 0xFFFF0000 | 0x1000 | ticks >> 48
    return f"{high:016x}{_tail_hex(tail)}"


def entry(message: Message, partition: int) -> dict[str, Any]:
    """A message in JSON: v1's four members, and what else was set."""
    ticks, tail, _, content_type, key, body = message
    whole, fraction = divmod(ticks - _BASE, TICKS_PER_SECOND)
    found: dict[str, Any] = {
        "message_id": id_hex(ticks, tail),
        "timestamp": f"{whole}.{fraction:07d}" if whole >= 0 else format_timestamp(ticks),
        "partition": partition,
    }
    try:
        found["body"] = body.decode()
    except UnicodeDecodeError:
        found["body"] = base64.b64encode(body).decode()
        found["encoding"] = "base64"
    if content_type is not None:
        found["content_type"] = content_type
    if key is not None:
        found["key"] = key
    return found


def entry_of(columns: Sequence[str] | None, queue: str) -> Callable[[Message, int], dict[str, Any]]:
    """How to present messages when only some members are wanted."""
    if columns is None:
        return entry
    wanted = frozenset(columns) | ({"encoding"} if "body" in columns else frozenset())

    def chosen(message: Message, partition: int) -> dict[str, Any]:
        whole = {"queue": queue, **entry(message, partition)}
        return {name: value for name, value in whole.items() if name in wanted}

    return chosen


def json_page(entries: Sequence[dict[str, Any]]) -> bytes:
    """v1's answer to a read."""
    return orjson.dumps({"status": "ok", "messages": entries})


class NdjsonForm:
    """One JSON object a line; the last line is the end mark."""

    media_type = "application/x-ndjson"

    def __init__(self, columns: Sequence[str] | None, queue: str) -> None:
        self._entry = entry_of(columns or COLUMNS, queue)

    def start(self) -> bytes:
        return b""

    def rows(self, messages: Sequence[Message], partition: int) -> bytes:
        present = self._entry
        return b"".join([orjson.dumps(present(message, partition), option=orjson.OPT_APPEND_NEWLINE) for message in messages])

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
            return pa.array([(message[0] - _BASE) // 10 for message in messages], self._schema.field(name).type)
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
