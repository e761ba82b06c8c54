"""Writing: batches of rows as Arrow, each under an idempotency key.

So a task that is tried again stores once (G7).

A key names the query, the micro-batch, the task's partition and the first row. A task that is repeated cuts its rows at
the same places and sends the same requests. Each request makes its messages readable, and a task may still write after
its job was given up. So readers get messages at least once; by the keys the effect is exactly once.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from qdo.pipeline.options import WriteOptions
from qdo.pipeline.task_reader import connect, doing
from queuey.errors import ConfigurationError, InvalidParameter, KeyReused, MessageTooLarge, QueueNotFound

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from qdo.client import Client

log = logging.getLogger("qdo.pipeline")

COLUMNS = {
    "body": ("string", "binary"),
    "queue": ("string",),
    "partition": ("int", "bigint", "smallint", "tinyint"),
    "key": ("string",),
    "ttl": ("int", "bigint", "smallint", "tinyint"),
    "deliver_at": ("timestamp",),
    "content_type": ("string",),
    "idempotency_key": ("string",),
    "headers": ("map<string,binary>", "map<string,string>"),
}
"""The columns of a DataFrame that can be written, with their types. ``body`` is required, and null is none."""


_OTHER_ROWS = (
    "a task was tried again with other rows than before (request {}), and some of them are stored already: sort within "
    "partitions before writing, or give each row an idempotency_key"
)
_OTHER_MESSAGE = (
    "an idempotency_key of these rows stands for another message already, of these rows or of the last 24 hours: rows with "
    "one key must be alike in every column"
)


@dataclass
class Stored(WriterCommitMessage):
    """How much a task stored."""

    messages: int
    requests: int


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """:raises ConfigurationError: columns are unknown, missing or of a wrong type, or contradict each other."""
    names = schema.fieldNames()
    for field in schema.fields:
        kinds, given = COLUMNS.get(field.name), field.dataType.simpleString()
        if kinds is None:
            raise ConfigurationError(
                f"column {field.name} cannot be written: there are {', '.join(COLUMNS)}; drop it, or put it into the body"
            )
        if given not in kinds:
            raise ConfigurationError(f"column {field.name} is {given}: expected {' or '.join(kinds)}")
    if "body" not in names:
        raise ConfigurationError("there is no column body: name what is to be written so, a string or binary")
    if ("queue" in names) == bool(options.queue):
        raise ConfigurationError("where to? Give the option queue, or a column queue, not both")


class RequestChunks:
    """Cuts the rows of a task into requests.

    It cuts at the same places however Spark has cut the rows into batches.
    """

    def __init__(self, rows: int, size: int) -> None:
        self._rows = rows
        self._bytes = size

    def of(self, batches: Iterator[Any]) -> Iterator[tuple[int, Any]]:
        """Tables, each with the number of its first row."""
        import pyarrow as pa

        held: list[Any] = []
        count = first = 0
        for batch in batches:
            held.append(batch)
            count += batch.num_rows
            while count >= self._rows:
                table = pa.Table.from_batches(held)
                yield from self._small(first, table.slice(0, self._rows))
                held, count, first = table.slice(self._rows).to_batches(), count - self._rows, first + self._rows
        if count:
            yield from self._small(first, pa.Table.from_batches(held))

    def _small(self, first: int, table: Any) -> Iterator[tuple[int, Any]]:
        """Cut a table into halves until each is small enough or has one row."""
        size = sum(_bytes_in(table[name]) for name in table.column_names if name != "queue")
        if size <= self._bytes or table.num_rows == 1:
            yield first, table
            return
        middle = table.num_rows // 2
        yield from self._small(first, table.slice(0, middle))
        yield from self._small(first + middle, table.slice(middle))


def _bytes_in(column: Any) -> int:
    """Bytes of a column that differ from row to row."""
    import pyarrow.types as kinds

    if kinds.is_map(column.type):
        return _header_bytes(column)
    return 0 if kinds.is_primitive(column.type) else _bytes_of(column)


def _bytes_of(values: Any) -> int:
    import pyarrow.compute as pc

    size: int = pc.sum(pc.binary_length(values)).as_py() or 0
    return size


def _header_bytes(headers: Any) -> int:
    """Bytes of names and values. They do not depend on how Spark has cut the rows into batches."""
    size = 0
    for chunk in headers.chunks:
        # Names and values are those of the whole array: a slice tells by its offsets which ones are its own.
        first, end = chunk.offsets[0].as_py(), chunk.offsets[-1].as_py()
        size += sum(_bytes_of(part.slice(first, end - first)) for part in (chunk.keys, chunk.items))
    return size


def _as_written(table: Any) -> Any:
    """The body of a request: the same bytes for the same rows.

    Arrays that were sliced or put together have the same values, and other bytes around them. The server would take the
    rows of a repeated task for other ones.
    """
    import numpy as np
    import pyarrow as pa

    made = table.combine_chunks().take(pa.array(np.arange(len(table))))
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, made.schema) as writer:
        writer.write_table(made)
    return out.getvalue()


class _Sender:
    """What both writers do in a task."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema, options)
        self._options = options

    def send(self, batches: Iterator[Any], scope: str) -> Stored:
        """Store the rows of a task.

        :raises KeyReused: the task has other rows than at its first try, or a row's own key stands for another message.
        :raises QueueyError: the server refuses a request. It stores nothing of that one; earlier requests are stored.
        """
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        messages = requests = 0
        rate = self._options.max_rate
        chunks = RequestChunks(
            min(self._options.batch_size, rate or self._options.batch_size), self._options.batch_bytes
        )
        began: float | None = None
        with connect(self._options.reach) as client:
            for first, table in chunks.of(batches):
                began = time.monotonic() if began is None else began
                if rate is not None:
                    time.sleep(max(0.0, began + messages / rate - time.monotonic()))
                for at, (queue, part) in enumerate(self._by_queue(table)):
                    try:
                        messages += self._post(client, queue, part, f"{scope}-{task}-{first}-{at}")
                    except (InvalidParameter, MessageTooLarge, QueueNotFound) as error:
                        where = f"{len(part)} rows for queue {queue!r}, from row {first} of task {task} on"
                        raise type(error)(f"{where}: {error}") from error
                    requests += 1
        return Stored(messages, requests)

    def _by_queue(self, table: Any) -> Iterator[tuple[str, Any]]:
        """A table for each queue, in the order of its first rows."""
        import pyarrow.compute as pc

        if "queue" not in table.column_names:
            yield self._options.queue, table
            return
        names = table["queue"]
        rest = table.drop_columns(["queue"])
        for name in pc.unique(names).to_pylist():
            if name is None:
                raise ConfigurationError("column queue is null in a row: every message needs a queue")
            yield name, rest.filter(pc.equal(names, name))

    def _post(self, client: Client, queue: str, table: Any, once: str) -> int:
        import pyarrow as pa

        if self._options.ttl_seconds is not None and "ttl" not in table.column_names:
            table = table.append_column("ttl", pa.repeat(pa.scalar(self._options.ttl_seconds, pa.int32()), len(table)))
        if "headers" in table.column_names and table["headers"].null_count == len(table):
            # The server looks at a column of headers row by row.
            table = table.drop_columns(["headers"])
        own = "idempotency_key" in table.column_names and not table["idempotency_key"].null_count
        try:
            # Rows with keys of their own may come in another order, so the request has no key that stands for an order.
            with doing(f"appending to queue {queue}"):
                return client.append_arrow(queue, _as_written(table), idempotency_key=None if own else once)
        except KeyReused as error:
            raise KeyReused(_OTHER_MESSAGE if own else _OTHER_ROWS.format(once)) from error


class QueueyWriter(DataSourceArrowWriter):
    """A batch write; mode append."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise ConfigurationError(
                "mode overwrite: a log is not overwritten; use mode append, and delete the queue before if that is meant"
            )
        self._sender = _Sender(options, schema)
        self._scope = options.job or uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._sender.send(iterator, self._scope)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        log.info("stored %s", _total(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Take nothing back: readers may have read already what is stored."""
        log.warning("the write was given up: %s are stored, by tasks that had ended", _total(messages))


class QueueyStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write.

    It is safe to repeat while the server remembers keys: for a day.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        if options.job:
            raise ConfigurationError("option jobId is of a batch write: a stream has the id of its query")
        self._sender = _Sender(options, schema)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise ConfigurationError("a streaming write needs a task of Spark's")
        query, batch = (context.getLocalProperty(name) for name in ("sql.streaming.queryId", "streaming.sql.batchId"))
        return self._sender.send(iterator, f"{query}-{batch}")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        log.debug("batch %d: stored %s", batchId, _total(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Take nothing back, as in a batch write."""
        log.warning(
            "batch %d was given up: %s are stored, and stored once when it is repeated", batchId, _total(messages)
        )


def _total(messages: Sequence[WriterCommitMessage | None]) -> str:
    stored = [message for message in messages if isinstance(message, Stored)]
    return f"{sum(each.messages for each in stored)} messages in {sum(each.requests for each in stored)} requests"
