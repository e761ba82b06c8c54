"""The format ``queuey`` of Spark.

It has batch and streaming reads, and batch and streaming writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from pyspark import __version__ as spark_version
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from qdo.pipeline import rows
from qdo.pipeline.options import BATCH, STREAM, ReadOptions, WriteOptions, body_type, parsed, words
from qdo.pipeline.planner import Planner
from qdo.pipeline.task_reader import SpanReader
from qdo.pipeline.tasks import PartReader, Task
from queuey.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter, Filter
    from pyspark.sql.types import StructType


class QueueySource(DataSource):
    """Spark makes one for each read and each write.

    :data:`qdo.pipeline.options.OPTIONS` are its options.
    """

    pushes_filters = False
    """The default, which an option may change. Spark refuses a reader that pushes filters in a session without its setting."""
    cores: int | None = None
    """How many tasks run at once, if it is known. A read then has hardly more tasks, since each one costs time."""

    @classmethod
    def knowing(cls, **known: Any) -> type[Self]:
        """A source of a session that knows something.

        Spark sends classes to its Python processes by name. A class that is not what its name stands for is sent whole.

        :param known: values of the class's own variables.
        """
        return type(cls.__name__, (cls,), {"__module__": cls.__module__, **known})

    @classmethod
    def name(cls) -> str:
        return "queuey"

    def schema(self) -> str:
        """:raises ConfigurationError: an unknown column, or an unknown type of bodies."""
        columns, kind = self._chosen()
        return rows.schema_text(columns, kind or "binary")

    def _chosen(self) -> tuple[Sequence[str], str]:
        """Columns and the type of bodies, as options name them; empty if they do not."""
        given = {name.lower(): text for name, text in self.options.items()}
        columns, kind = given.get("columns"), given.get("bodytype")
        return parsed("columns", columns, words) if columns else (), parsed("bodyType", kind, body_type) if kind else ""

    def reader(self, schema: StructType) -> DataSourceReader:
        options = ReadOptions.of(self.options, BATCH)
        pushes = self.pushes_filters if options.pushes_filters is None else options.pushes_filters
        return (PushingReader if pushes else QueueyReader)(options, self.reads(options, schema), self.cores)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            from qdo.pipeline.stream import QueueyStreamReader
        except ModuleNotFoundError as error:
            if error.name != "pyspark.sql.streaming.datasource":
                raise
            raise ConfigurationError(
                f"a streaming read needs Spark 4.2 or newer, and this is {spark_version}"
            ) from error
        options = ReadOptions.of(self.options, STREAM)
        return QueueyStreamReader(options, self.reads(options, schema), self.cores)

    def reads(self, options: ReadOptions, schema: StructType) -> PartReader:
        """What reads in the tasks of a batch or a stream.

        :raises ConfigurationError: options choose other columns or types than the schema that the user gave.
        """
        columns, kind = self._chosen()
        fields = {field.name: field.dataType.simpleString() for field in schema.fields}
        if columns and [*columns] != [*fields]:
            raise ConfigurationError("option columns: the schema that was given has other columns; give one of them")
        if kind and fields.get("body", kind) != kind:
            raise ConfigurationError(f"option bodyType: the schema that was given has a {fields['body']} body")
        return reader_of(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from qdo.pipeline.sink import QueueyWriter

        return QueueyWriter(WriteOptions.of(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from qdo.pipeline.sink import QueueyStreamWriter

        return QueueyStreamWriter(WriteOptions.of(self.options), schema)


def reader_of(options: ReadOptions, schema: StructType) -> SpanReader:
    """What makes rows from messages.

    :raises ConfigurationError: the schema has other columns or types than this source.
    """
    rows.check_schema(schema)
    text = any(field.name == "body" and field.dataType.simpleString() == "string" for field in schema.fields)
    made = rows.Rows(schema.fieldNames(), text_bodies=text)
    return SpanReader.of(options, made)


class QueueyReader(DataSourceReader):
    """A batch read. The ends of all spans are fixed when it is planned."""

    def __init__(self, options: ReadOptions, reader: PartReader, cores: int | None = None) -> None:
        self._planner = Planner(options, cores)
        self._reader = reader

    def partitions(self) -> Sequence[InputPartition]:
        return [Task(parts) for parts in self._planner.tasks()]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Spark's batches.

        For an empty plan Spark makes one task, and it has nothing to read.
        """
        return self._reader.batches(partition.parts) if isinstance(partition, Task) else iter(())


class PushingReader(QueueyReader):
    """A batch read that takes filters from Spark.

    Without Spark's setting, Spark would refuse every query of it.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        for each in filters:
            column: tuple[str, ...] = getattr(each, "attribute", ())
            taken = len(column) == 1 and self._planner.narrow(
                type(each).__name__, column[0], getattr(each, "value", None)
            )
            if not taken:
                yield each
