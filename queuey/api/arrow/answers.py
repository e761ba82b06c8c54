"""Messages as Arrow: record batches with columns built from buffers.

numpy builds columns of numbers and ids in one step, not from lists of values. A column without a value in a whole page
costs next to nothing, and a pack goes out as it lies in the store.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from queuey.api.forms import COLUMNS, EndMark
from queuey.errors import NotAcceptable
from queuey.http.exchange import Chunk
from queuey.ids import EPOCH_TICKS, TAIL_MASK
from queuey.model import Bodies, Columns, Message, decode_headers

ARROW_COLUMNS = (*COLUMNS, "id")
"""``id`` is a message id as 16 bytes, big-endian like a UUID: half the size of its text in an answer."""
_DIGITS = 32
"""Hex digits of a message id as text."""
_DEFAULT = ("queue", "partition", "message_id", "timestamp", "content_type", "body")


def check_arrow(otherwise: str) -> None:
    """:param otherwise: what a caller can do without Arrow.
    :raises NotAcceptable: pyarrow or numpy is not installed.
    """
    try:
        import numpy  # noqa: F401, ICN001
        import pyarrow  # noqa: F401, ICN001
    except ImportError as error:
        raise NotAcceptable(f"this server has no Arrow: install queuey[arrow] on it, or {otherwise}") from error


class ArrowForm:
    """Arrow IPC record batches; the last one has no rows and carries the end mark."""

    media_type = "application/vnd.apache.arrow.stream"
    is_loaded: ClassVar[bool] = False
    """Arrow was used before, and takes no time to load."""

    def __init__(self, columns: Sequence[str] | None, queue: str, metadata: Mapping[str, str] | None = None) -> None:
        """:param metadata: of the whole stream.
        :raises ImportError: pyarrow or numpy is not installed.
        """
        import numpy as np
        import pyarrow as pa

        self._pa, self._np = pa, np
        ArrowForm.is_loaded = True
        self._queue = queue
        self._queues: Any = ()
        """The queue's name, repeated for the longest batch so far: built once, since it takes 50 µs."""
        kinds = self._types()
        self._schema = pa.schema([(name, kinds[name]) for name in columns or _DEFAULT], metadata)
        self._out = _Chunks()
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._out, mode="w"), self._schema)

    def _types(self) -> dict[str, Any]:
        """Types of all columns that there are."""
        pa = self._pa
        return {
            "queue": pa.string(),
            "partition": pa.int32(),
            "message_id": pa.string(),
            "id": pa.binary(16),
            "timestamp": pa.timestamp("us", tz="UTC"),
            "content_type": pa.string(),
            "key": pa.string(),
            "body": pa.binary(),
            "expires": pa.timestamp("us", tz="UTC"),
            "headers": pa.map_(pa.string(), pa.binary()),
        }

    def start(self) -> Chunk:
        return self._out.take()

    def rows(self, messages: Sequence[Message], partition: int) -> Iterator[Chunk]:
        """One record batch."""
        columns = Columns.of(messages)
        arrays = [self._array(name, kind, columns, partition) for name, kind in self._kinds()]
        self._writer.write_batch(self._pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        yield self._out.take()

    def _kinds(self) -> list[tuple[str, Any]]:
        return [(field.name, field.type) for field in self._schema]

    def _array(self, name: str, kind: Any, columns: Columns, partition: int) -> Any:
        pa = self._pa
        if name == "queue":
            if len(self._queues) < len(columns):
                self._queues = pa.repeat(pa.scalar(self._queue), len(columns))
            return self._queues.slice(0, len(columns))
        if name == "partition":
            return pa.repeat(pa.scalar(partition, kind), len(columns))
        if name == "message_id":
            digits = self._ids(columns).tobytes().hex().encode()
            ends = self._np.arange(0, len(digits) + 1, _DIGITS, dtype=self._np.int32)
            return pa.Array.from_buffers(kind, len(columns), [None, pa.py_buffer(ends), pa.py_buffer(digits)])
        if name == "id":
            return pa.FixedSizeBinaryArray.from_buffers(kind, len(columns), [None, pa.py_buffer(self._ids(columns))])
        if name in ("timestamp", "expires"):
            ticks = self._numbers(columns.ticks if name == "timestamp" else columns.expires_ticks)
            return pa.Array.from_buffers(kind, len(columns), [None, pa.py_buffer((ticks - EPOCH_TICKS) // 10)])
        if name == "body":
            return self._bodies(columns.bodies, kind)
        if name == "headers":
            return self._headers(columns.headers, kind)
        values = columns.content_types if name == "content_type" else columns.keys
        return pa.nulls(len(values), kind) if values.count(None) == len(values) else pa.array(values, kind)

    def _headers(self, headers: Sequence[bytes | None], kind: Any) -> Any:
        pa = self._pa
        if headers.count(None) == len(headers):
            return pa.nulls(len(headers), kind)
        return pa.array([None if found is None else [*decode_headers(found).items()] for found in headers], kind)

    def _bodies(self, bodies: Sequence[bytes], kind: Any) -> Any:
        pa = self._pa
        if not isinstance(bodies, Bodies):
            return pa.array(bodies, kind)
        data = pa.py_buffer(memoryview(bodies.data)[bodies.start :])
        return pa.Array.from_buffers(kind, len(bodies), [None, pa.py_buffer(bodies.ends), data])

    def _numbers(self, values: Sequence[int]) -> Any:
        if isinstance(values, array):
            return self._np.frombuffer(values, self._np.int64)
        return self._np.fromiter(values, self._np.int64, len(values))

    def _ids(self, columns: Columns) -> Any:
        """The 16 bytes of each id.

        It is a UUID of version 1: low, middle and high ticks, then the tail as on the wire.
        """
        ticks, tails = (self._numbers(column).view(self._np.uint64) for column in (columns.ticks, columns.tails))
        made = self._np.empty((len(columns), 2), ">u8")
        made[:, 0] = ticks << 32 | ticks >> 16 & 0xFFFF0000 | ticks >> 48 | 0x1000
        made[:, 1] = tails ^ TAIL_MASK
        return made

    def end(self, mark: EndMark) -> Chunk:
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
    """A file object that the Arrow writer writes to and the answer reads from."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[memoryview] = []

    def write(self, data: Any) -> int:
        self._parts.append(memoryview(data))  # over bytes, or over a buffer that keeps a column's memory alive
        return len(data)

    def flush(self) -> None:
        """Do nothing: this file buffers nothing."""

    def writable(self) -> bool:
        return True

    def take(self) -> Chunk:
        taken, self._parts = self._parts, []
        return taken
