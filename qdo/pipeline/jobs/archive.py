"""Queues to Parquet, by queue and day.

Each message once, however often the job is killed; and the archive read again.

A run goes on where the last one ended, by a checkpoint of Spark's. A micro-batch is first written aside: by the tasks
that read it if they can (:mod:`qdo.pipeline.jobs.staging`), otherwise by Spark. It is read back, and its files are moved to
``queue=<queue>/day=<day>/`` under names that follow from its number. Then its manifest is written. Only files in a
manifest belong to the archive. A batch that is repeated moves the same files to the same names (G5). Days are days of
UTC, by the time in a message's id.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import date
from math import ceil
from time import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from uuid import uuid4

from qdo.pipeline import cores_of
from qdo.pipeline.checkpoint import Offsets, from_json
from qdo.pipeline.jobs.archive_files import (
    FILE_COLUMNS,
    ArchivedFile,
    Staged,
    checksum_of,
    is_compacted,
    messages_in,
    newest_in,
    stem_of_day,
    tail_of,
    writing,
)
from qdo.pipeline.jobs.folder import Folder
from qdo.pipeline.rows import COLUMNS, schema_text
from queuey.errors import ConfigurationError, CorruptMessage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["Archive", "ArchivedFile", "Staged", "archive"]

FILE_BYTES = 128 << 20
"""Of a compacted file, approximately."""
LEFT_SECONDS = 86_400.0
"""Files that nobody has written to for this long belong to no run under way."""
_CHOOSING = frozenset({"columns", "bodytype"})
_MANIFESTS = "_manifest"
_CHECKPOINT = "_checkpoint"
_HELD = f"{_CHECKPOINT}/run.lock"
"""The run under way holds it. Two runs that begin the same micro-batch would both move its files to the same names."""
_STAGING = "_staging"
_DAY = "date_add(date'1970-01-01', cast(floor(unix_micros(timestamp) / 86400000000) as int))"
_IN_ORDER = ("queue", "day", "partition", "timestamp", "message_id")
"""Queue and day come first: Spark sorts by folders when it writes, and would lose another order."""
_ROW = "xxhash64(partition, message_id, body, content_type, key, expires, array_sort(map_entries(headers)))"
"""Spark hashes no map, and a map has no order: its entries are hashed in the order of their names."""


Looked = list[tuple[Staged, int]]
"""Files that were written aside, each with the checksum of what was read from it."""


class Archive:
    """An archive in a folder."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        """:param path: on any file system that Spark knows; it need not exist."""
        self._spark = spark
        self.folder = Folder(spark, path.rstrip("/"))
        self.checkpoint = self.folder.at(_CHECKPOINT)
        self.aside = f"{_STAGING}/{uuid4().hex}"
        """The folder for files of this object. Another run of the same archive has a folder of its own."""
        self.stored = 0
        """Messages that this object has added."""

    def is_there(self) -> bool:
        """Whether a run has ever begun here."""
        return self.folder.exists(_CHECKPOINT) or self.folder.exists(_MANIFESTS)

    def files(self) -> list[ArchivedFile]:
        """All files of the archive, by name.

        :raises ConfigurationError: there is no archive.
        """
        if not self.is_there():
            raise ConfigurationError(f"{self.folder.url} is no archive: there is no {_MANIFESTS} in it")
        found: dict[str, ArchivedFile] = {}
        replaced: set[str] = set()
        for name in self.folder.names(_MANIFESTS):
            if name.endswith(".json"):
                told = json.loads(self.folder.read(name))
                found |= {entry["name"]: ArchivedFile(**entry) for entry in told["files"]}
                replaced |= set(told.get("replaces", ()))
        return [found[name] for name in sorted(found) if name not in replaced]

    def read(self, files: Iterable[ArchivedFile] | None = None) -> DataFrame:
        """The messages, with all columns of the source, ``headers`` too, and ``day``.

        Manifests say which files to read.

        :param files: only these; None for all.
        """
        names = [self.folder.at(file.name) for file in (self.files() if files is None else files)]
        schema = f"{schema_text(list(COLUMNS))}, day date"
        if not names:
            return self._spark.createDataFrame([], schema)
        return self._reader(schema).option("basePath", self.folder.url).parquet(*names)

    def _reader(self, schema: str) -> DataFrameReader:
        """A reader that fails on a page which is not as it was written."""
        return self._spark.read.schema(schema).option("parquet.page.verify-checksum.enabled", "true")

    def store(self, frame: DataFrame, number: int) -> None:
        """Add a micro-batch. One that is in the archive already changes nothing.

        :param frame: messages, or rows of :class:`~qdo.pipeline.jobs.staging.StagingSource` about files.
        :raises ConfigurationError: the archive has a batch of this number from another checkpoint; or tasks wrote files
            into a folder of their own machine.
        """
        manifest = f"{_MANIFESTS}/batch-{number:09d}.json"
        query = str(frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
        if self.folder.exists(manifest):
            made_by = json.loads(self.folder.read(manifest))["query"]
            if made_by != query:
                raise ConfigurationError(
                    f"{self.folder.url} has a batch {number} of another checkpoint ({made_by}): its own was removed; "
                    "archive to a new folder, or bring the checkpoint back"
                )
            return
        from pyspark.sql.functions import expr

        stem = f"batch-{number:09d}"
        if frame.columns == [*Staged._fields]:
            looked = self._check([Staged(*row) for row in frame.collect()])
        else:
            looked = self._write(frame.withColumn("day", expr(_DAY)), stem)
        made = self._take(looked, stem)
        self._keep_step(number)
        self._keep(manifest, {"query": query, "files": made})
        self.stored += messages_in(made)

    def _keep_step(self, number: int) -> None:
        """Have Spark's record of a step on disk.

        A step that it forgets at a power cut is planned anew, with more messages, and the manifest would hide these.
        """
        names = [f"{_CHECKPOINT}/metadata", f"{_CHECKPOINT}/offsets/{number}"]
        for name in names:
            self.folder.sync(name)
        self.folder.sync_names(names)

    def reached(self) -> Offsets:
        """How far the finished steps are, by queue."""
        done = [name.rpartition("/")[2] for name in self.folder.names(f"{_CHECKPOINT}/commits")]
        numbers = [int(name) for name in done if name.isdecimal()]
        if not numbers:
            return {}
        # Spark's own lines come first, then one for each source. This query has one source.
        return from_json(json.loads(self.folder.read(f"{_CHECKPOINT}/offsets/{max(numbers)}").splitlines()[-1]))

    def compact(self, before: date) -> int:
        """Put the files of each queue and day together, in the order of ids.

        Then remove the files they replace. A day that is in order already stays as it is, until a run adds a file to it.

        :param before: only earlier days. A day that still gets messages would be compacted again and again.
        :returns: by how many the number of files fell.
        :raises CorruptMessage: the messages read are not those that were written. Nothing is changed.
        """
        gone = 0
        groups: dict[tuple[str, str], list[ArchivedFile]] = {}
        for file in self.files():
            if file.day < before.isoformat():
                groups.setdefault((file.queue, file.day), []).append(file)
        for (queue, day), files in sorted(groups.items()):
            if len(files) > 1 and not all(map(is_compacted, files)):
                gone += len(files) - self._put_together(queue, day, files)
        self._sweep()
        return gone

    def _put_together(self, queue: str, day: str, files: Sequence[ArchivedFile]) -> int:
        size = sum(self.folder.size(file.name) for file in files)
        frame = self.read(files).repartitionByRange(
            max(1, ceil(size / FILE_BYTES)), "partition", "timestamp", "message_id"
        )
        last = max(map(newest_in, files))
        stem = stem_of_day(day, last)
        made = self._take(self._write(frame.sortWithinPartitions(*_IN_ORDER), stem), stem)
        if (messages_in(made), checksum_of(made)) != (messages_in(files), checksum_of(files)):
            for file in made:
                self.folder.remove(file.name)
            raise CorruptMessage(
                f"the files of {queue} on {day} have {messages_in(made)} messages where their manifests tell of {messages_in(files)}, "
                "or others: they are left as they are"
            )
        manifest = f"{_MANIFESTS}/{queue}-{day}-{last}.json"
        self._keep(manifest, {"replaces": [file.name for file in files], "files": made})
        return len(made)

    def _write(self, frame: DataFrame, stem: str) -> Looked:
        """Have Spark write a frame aside."""
        below = f"{self.aside}/{stem}"
        with writing(frame) as writer:
            writer.partitionBy("queue", "day").mode("overwrite").parquet(self.folder.at(below))
        written = [name for name in self.folder.names(below) if name.endswith(".parquet")]
        ends = [f"{least}(struct(timestamp, message_id)).message_id" for least in ("min", "max")]
        told = self._by_file(written, *ends)
        return [(Staged(f"{stem}/{tail}", row[0], *row[2:]), row[1]) for tail, row in told.items()]

    def _check(self, staged: Sequence[Staged]) -> Looked:
        """Read back what tasks wrote.

        :raises CorruptMessage: a file has not what was written to it.
        :raises ConfigurationError: a file does not exist.
        """
        names = [f"{self.aside}/{file.name}" for file in staged]
        missing = [name for name in names if not self.folder.exists(name)]
        if missing:
            raise ConfigurationError(
                f"{self.folder.at(missing[0])}, which a task wrote, is not there: a folder on the disk of one machine is "
                "none for a cluster; name one that all of its machines share (those that ran tasks have files in it now)"
            )
        told = self._by_file(names)
        for file in staged:
            messages, _ = told.get(tail_of(file.name), (0, 0))
            if messages != file.messages:
                raise CorruptMessage(
                    f"{file.messages} messages were written to {file.name}, and {messages} are read from it"
                )
        return [(file, told[tail_of(file.name)][1]) for file in staged]

    def _by_file(self, names: Sequence[str], *more: str) -> dict[str, Sequence[Any]]:
        """What is read from files, by queue, day and file.

        The values are messages, checksum, and further sums of Spark's.
        """
        from pyspark.sql.functions import expr

        if not names:
            return {}
        rows = self._reader(schema_text(FILE_COLUMNS)).parquet(*map(self.folder.at, names))
        sums = [expr(each) for each in ("count(*)", f"bit_xor({_ROW})", *more)]
        told = rows.groupBy(expr("_metadata.file_path as file")).agg(*sums).collect()
        return {tail_of(unquote(row[0])): row[1:] for row in told}

    def _take(self, looked: Looked, stem: str) -> list[ArchivedFile]:
        """Move files to their places, and remove what failed tasks left aside."""
        made = []
        for number, (file, checksum) in enumerate(sorted(looked, key=lambda each: tail_of(each[0].name))):
            folder = tail_of(file.name).rpartition("/")[0]
            queue, day = (unquote(part.partition("=")[2]) for part in folder.split("/"))
            target = f"{folder}/{stem}-{number:05d}.snappy.parquet"
            self.folder.move(f"{self.aside}/{file.name}", target)
            made.append(ArchivedFile(target, queue, day, file.messages, file.first, file.last, checksum))
        self.folder.sync_names(file.name for file in made)
        self.folder.remove(self.aside)
        return made

    def forget_left(self, before: float) -> None:
        """Remove what runs wrote aside that were killed.

        :param before: seconds since 1970. Files changed later may belong to a run under way.
        """
        for name, changed in self.folder.children(_STAGING):
            if changed < before:
                self.folder.remove(name)

    def _keep(self, manifest: str, told: Mapping[str, Any]) -> None:
        files = [asdict(file) for file in told["files"]]
        self.folder.write(manifest, json.dumps({**told, "files": files}, indent=1) + "\n")

    def _sweep(self) -> None:
        """Remove files that compacting has replaced, also those that a killed run left."""
        live = {file.name for file in self.files()}
        for name in self.folder.names(_MANIFESTS):
            for replaced in json.loads(self.folder.read(name)).get("replaces", ()) if name.endswith(".json") else ():
                if replaced not in live:
                    self.folder.remove(replaced)


def archive(
    spark: SparkSession,
    path: str,
    *,
    options: Mapping[str, str],
    compact_before: date | None = None,
    begun: Callable[[Archive], None] = lambda found: None,
) -> int:
    """Archive messages that are in queues now and not in the archive yet.

    A run may be killed at any moment. The next one goes on, and no message is lost or is in the archive twice.

    :param options: of the source: url, application, token, subscribe or subscribePattern, maxOffsetsPerTrigger. The first
        run reads the queues from their beginning.
    :param compact_before: put the files of earlier days together afterwards.
    :param begun: gets the archive before its first message, so that another thread can see how far the run is.
    :returns: messages that were added.
    :raises ConfigurationError: the folder has other things in it; another run is under way in it, on a file system that
        locks files; or an option chooses parts of messages.
    :raises QueueyError: as :meth:`Archive.store` and :meth:`Archive.compact`. If the query fails, Spark's own error.
    """
    found = Archive(spark, path)
    if not found.is_there() and not found.folder.is_new():
        raise ConfigurationError(f"{found.folder.url} is no archive, and there is something in it: name a new folder")
    chosen = [name for name in options if name.lower() in _CHOOSING]
    if chosen:
        raise ConfigurationError(f"option {chosen[0]}: an archive has messages whole, as they are")
    with found.folder.held(_HELD):
        found.forget_left(time() - LEFT_SECONDS)
        source = "queuey"
        if found.folder.local is not None:
            source = _staging(spark, f"{found.folder.local}/{found.aside}")
        whole = {"startingOffsets": "earliest", "columns": ",".join(COLUMNS)}
        frame = spark.readStream.format(source).options(**whole).options(**options).load()
        writer = frame.writeStream.foreachBatch(found.store).option("checkpointLocation", found.checkpoint)
        begun(found)
        _run(writer.trigger(availableNow=True))
        if compact_before is not None:
            found.compact(compact_before)
    return found.stored


def _run(writer: DataStreamWriter) -> None:
    """Run a query to its end.

    If the wait is interrupted the query ends, too: then the folder is free for another run.
    """
    query = writer.start()
    try:
        query.awaitTermination()
    except BaseException:
        with suppress(Exception):  # the error that came first is raised
            query.stop()
        raise


def _staging(spark: SparkSession, folder: str) -> str:
    """The name of the format whose tasks write files into a folder."""
    from qdo.pipeline.jobs.staging import StagingSource

    source = StagingSource.knowing(folder=folder, cores=cores_of(spark))
    spark.dataSource.register(source)
    return source.name()
