"""Files of an archive, written by the tasks that read.

They make Parquet of what the server sends.

Spark sees no message. Through Spark each message would be a row of its own on its way from Python to Parquet, which took
four times as long (measured, docs/decisions/016). This works for folders that the machine's own file system reaches. Only
Spark knows the way to others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from qdo.pipeline.jobs.archive_files import FILE_COLUMNS, Staged
from qdo.pipeline.rows import Rows
from qdo.pipeline.source import QueueySource
from qdo.pipeline.task_reader import SpanReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from qdo.pipeline.options import ReadOptions
    from qdo.pipeline.spans import Part

__all__ = ["StagingSource"]

GROUP_BYTES = 64 << 20
"""A task holds this much before it writes. So a row group has this much, if the queue's day does."""
MOST_OPEN = 32
"""Files that a task has open: days of one queue."""
_DAY_MICROS = 86_400 * 1_000_000


class StagingSource(QueueySource):
    """The stream of the source ``queuey``, with the same options and offsets.

    Spark gets rows about files from it.
    """

    folder = ""
    """Where tasks write: a path on each machine with tasks. Its last part is in the name of the format: a session may have
    several."""

    @classmethod
    def name(cls) -> str:
        return f"queuey-staging-{Path(cls.folder).name}"

    def schema(self) -> str:
        return "name string, messages long, first string, last string"

    def reads(self, options: ReadOptions, schema: StructType) -> Stager:
        return Stager(SpanReader.of(options, Rows(FILE_COLUMNS, text_bodies=False)), self.folder)


class Stager:
    """Writes parts in a task."""

    def __init__(self, reader: SpanReader, folder: str) -> None:
        self._reader = reader
        self._folder = folder

    def batches(self, parts: Sequence[Part]) -> Iterator[Any]:
        """One batch of :class:`Staged`. If the task fails, no file is left.

        :raises OSError: a file cannot be written.
        :raises QueueyError: as :meth:`qdo.pipeline.task_reader.SpanReader.batches`.
        """
        import pyarrow as pa
        from pyspark import TaskContext

        task = TaskContext.get()
        with _Files(Path(self._folder), task.partitionId() if task is not None else 0) as files:
            for part, batch in self._reader.by_part(sorted(parts, key=lambda part: (part.queue, part.partition))):
                files.add(part.queue, batch)
        columns = zip(*files.staged, strict=True) if files.staged else ([], [], [], [])
        kinds = (pa.string(), pa.int64(), pa.string(), pa.string())
        yield pa.record_batch([pa.array(*each) for each in zip(columns, kinds, strict=True)], names=[*Staged._fields])


class _Files:
    """The files of one task.

    There is one for each queue and day, or more if there are very many days.

    Names sort in the order of tasks, so a batch that is repeated has the same files in the same places. Each name belongs
    to one attempt alone.
    """

    def __init__(self, folder: Path, task: int) -> None:
        self._folder = folder
        self._task = task
        self._queue = ""
        self._made: list[_File] = []
        self._open: dict[str, _File] = {}
        """Of the present queue, by day."""

    @property
    def staged(self) -> list[Staged]:
        return [file.staged for file in self._made]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self._close()
        except BaseException:
            self._remove()
            raise
        if kind is not None:
            self._remove()

    def add(self, queue: str, batch: Any) -> None:
        """Add rows of one partition, in the order of time."""
        if queue != self._queue:
            self._close()
            self._queue = queue
        for day, rows in _by_day(batch):
            self._file(day, batch.schema).hold(rows)
        if sum(file.held_bytes for file in self._open.values()) >= GROUP_BYTES:
            for file in self._open.values():
                file.write()

    def _file(self, day: str, schema: Any) -> _File:
        if day not in self._open:
            if len(self._open) == MOST_OPEN:
                self._close()
            name = f"{self._task:05d}-{len(self._made):05d}-{uuid4().hex}.parquet"
            made = _File(self._folder, f"queue={self._queue}/day={day}/{name}", schema)
            self._made.append(made)
            self._open[day] = made
        return self._open[day]

    def _close(self) -> None:
        with ExitStack() as closing:
            for file in self._open.values():
                closing.callback(file.close)
            self._open = {}

    def _remove(self) -> None:
        for file in self._made:
            with suppress(OSError):
                file.path.unlink()


class _File:
    """A Parquet file like those that Spark writes.

    It has times in microseconds of UTC, and their statistics.
    """

    def __init__(self, folder: Path, name: str, schema: Any) -> None:
        from pyarrow.parquet import ParquetWriter

        self.path = folder / name
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._name = name
        self._messages = 0
        self._ends: list[tuple[Any, str]] = []
        """Time and id of the first and the last message of each piece."""
        self._held: list[Any] = []
        self.held_bytes = 0
        self._writer = ParquetWriter(
            self.path,
            schema,
            compression="snappy",
            use_dictionary=["partition", "content_type", "key", "headers.key_value.key"],
            write_statistics=[name for name in schema.names if name not in ("body", "headers")],
            write_page_checksum=True,
            store_schema=False,
        )

    @property
    def staged(self) -> Staged:
        return Staged(self._name, self._messages, min(self._ends)[1], max(self._ends)[1])

    def hold(self, rows: Any) -> None:
        """Keep rows, in the order of time, until :meth:`write`."""
        self._held.append(rows)
        self.held_bytes += rows.nbytes
        self._messages += rows.num_rows
        self._ends += [(rows["timestamp"][at].value, rows["message_id"][at].as_py()) for at in (0, -1)]

    def write(self) -> None:
        """Write everything that is held as one row group."""
        import pyarrow as pa

        if self._held:
            table = pa.Table.from_batches(self._held)
            self._writer.write_table(table, row_group_size=table.num_rows)
            self._held, self.held_bytes = [], 0

    def close(self) -> None:
        try:
            self.write()
        finally:
            self._writer.close()


def _by_day(batch: Any) -> Iterator[tuple[str, Any]]:
    """The rows of each day. They come in the order of time."""
    import numpy as np
    import pyarrow as pa

    days = batch["timestamp"].cast(pa.int64()).to_numpy() // _DAY_MICROS
    begins = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist()]
    for begin, end in zip(begins, [*begins[1:], len(days)], strict=True):
        yield str(np.datetime64(int(days[begin]), "D")), batch.slice(begin, end - begin)
