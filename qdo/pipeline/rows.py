"""Rows as Spark takes them, made from what the server sends.

The server sends only what differs from message to message: the id as 16 bytes, the body, and on request content type,
key, expiry and headers. Queue, partition, the id as text and its time are made here, one column at a time.
"""

from __future__ import annotations

from binascii import hexlify
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from queuey.errors import BadRequest, ConfigurationError
from queuey.ids import EPOCH_TICKS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

COLUMNS = {
    "queue": "string",
    "partition": "int",
    "message_id": "string",
    "timestamp": "timestamp",
    "body": "binary",
    "content_type": "string",
    "key": "string",
    "expires": "timestamp",
    "headers": "map<string,binary>",
}
"""From names to Spark's types, in the order of the schema. The first five are never null."""
DEFAULT_COLUMNS = tuple(name for name in COLUMNS if name != "headers")
"""Of a read that names no columns. It has no headers: Spark refuses ``distinct``, ``dropDuplicates``, ``groupBy`` and
``union distinct`` over a map, so such queries of whole messages would fail. The server sends headers only on request."""
_SENT = ("body", "content_type", "key", "expires", "headers")
BATCH_ROWS = 8_000
"""Small batches of an answer are put together until they have this many rows,"""
BATCH_BYTES = 4 << 20
"""or this many bytes."""


def schema_text(columns: Sequence[str] = (), body_type: str = "binary") -> str:
    """The schema in Spark's syntax.

    :param columns: in the order wanted; empty for :data:`DEFAULT_COLUMNS`.
    :raises ConfigurationError: a column does not exist.

    >>> schema_text(["message_id", "body"], "string")
    'message_id string, body string'
    """
    unknown = [name for name in columns if name not in COLUMNS]
    if unknown:
        raise ConfigurationError(f"option columns: no column {unknown[0]!r}: there are {', '.join(COLUMNS)}")
    kinds = COLUMNS | {"body": body_type}
    return ", ".join(f"{name} {kinds[name]}" for name in columns or DEFAULT_COLUMNS)


def check_schema(schema: StructType) -> None:
    """Check that a user's schema has columns of this source, with their types.

    :raises ConfigurationError: it has others.
    """
    for field in schema.fields:
        given, wanted = field.dataType.simpleString(), COLUMNS.get(field.name)
        if wanted is None or given not in ({"string", "binary"} if field.name == "body" else {wanted}):
            whole = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
            raise ConfigurationError(
                f"the schema's column {field.name} {given}: there are {whole}; body may be a string"
            )
        if not field.nullable:
            raise ConfigurationError(
                f"the schema's column {field.name} is not null: Spark takes this source's columns as nullable"
            )


class Rows:
    """Makes Spark's batches from the server's."""

    def __init__(self, names: Sequence[str], *, text_bodies: bool) -> None:
        """:param names: of the columns, in the order of the schema."""
        self._names = names
        self._text_bodies = text_bodies
        self.sent = ("id", *[name for name in _SENT if name in names])
        """The columns to request from the server."""

    def batches(self, found: Iterator[Any], queue: str, partition: int) -> Iterator[Any]:
        """Batches of one partition, with small ones put together.

        :raises BadRequest: a body should be text and is not UTF-8. The error names the message.
        """
        import pyarrow as pa

        held: list[Any] = []
        rows = size = 0
        for batch in found:
            held.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= BATCH_ROWS or size >= BATCH_BYTES:
                yield self.batch(pa.concat_batches(held) if len(held) > 1 else held[0], queue, partition)
                held, rows, size = [], 0, 0
        if rows:
            yield self.batch(pa.concat_batches(held), queue, partition)

    def batch(self, sent: Any, queue: str, partition: int) -> Any:
        """One batch, with columns in the order of the schema."""
        import pyarrow as pa

        ids = _id_bytes(sent)
        arrays = []
        for name in self._names:
            if name == "queue":
                arrays.append(_same(pa.scalar(queue), sent.num_rows))
            elif name == "partition":
                arrays.append(_same(pa.scalar(partition, pa.int32()), sent.num_rows))
            elif name == "message_id":
                arrays.append(_texts(ids))
            elif name == "timestamp":
                arrays.append(_timestamps(ids))
            elif name == "body" and self._text_bodies:
                arrays.append(self._text(sent, ids))
            else:
                arrays.append(sent.column(name))
        return pa.RecordBatch.from_arrays(arrays, names=list(self._names))

    def _text(self, sent: Any, ids: Any) -> Any:
        import pyarrow as pa

        bodies = sent.column("body")
        try:
            return bodies.cast(pa.string())
        except pa.ArrowInvalid as error:
            for at, body in enumerate(bodies):
                try:
                    body.as_py().decode()
                except UnicodeDecodeError as reason:
                    which = ids[at].tobytes().hex()
                    raise BadRequest(
                        f"the body of message {which} is not UTF-8: read it with bodyType=binary"
                    ) from reason
            raise AssertionError("no body is to blame") from error


def _id_bytes(sent: Any) -> Any:
    """The ids as an array of (rows, 16) bytes."""
    import numpy as np

    column = sent.column("id")
    start = column.offset * 16
    raw = np.frombuffer(column.buffers()[1], np.uint8)[start : start + 16 * len(column)]
    return raw.reshape(-1, 16)


def _same(value: Any, rows: int) -> Any:
    """A column with one value in all rows."""
    return _repeated(value, 1 << rows.bit_length()).slice(0, rows)


@lru_cache(maxsize=4)
def _repeated(value: Any, times: int) -> Any:
    """The column is cached: the next batches are about as long."""
    import pyarrow as pa

    return pa.repeat(value, times)


def _texts(ids: Any) -> Any:
    """The ids as text, 32 hex digits each."""
    import numpy as np
    import pyarrow as pa

    ends = np.arange(0, 32 * len(ids) + 1, 32, dtype=np.int32)
    return pa.StringArray.from_buffers(len(ids), pa.py_buffer(ends), pa.py_buffer(hexlify(ids)))


def _timestamps(ids: Any) -> Any:
    """The moments in the ids, to the microsecond.

    An id has the low, middle and high words of its ticks in this order.
    """
    import numpy as np
    import pyarrow as pa

    words = ids.view(">u8")[:, 0].astype(np.uint64)
    ticks = (words << 48 & 0x0FFF << 48 | words << 16 & 0xFFFF << 32 | words >> 32).view(np.int64)
    return pa.array((ticks - EPOCH_TICKS) // 10).view(pa.timestamp("us", tz="UTC"))


def last_id(sent: Any) -> bytes:
    """The last id of a batch from the server, which has at least one row."""
    found: bytes = sent.column("id")[-1].as_py()
    return found
