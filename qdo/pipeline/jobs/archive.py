"""Queues to Parquet, by queue and day: each message once, however often the job is killed; and the archive read again.

A run goes on where the last one ended, by a checkpoint of Spark's. A micro-batch is written aside, by the tasks that read it
where they can (:mod:`qdo.pipeline.jobs.staging`) and else by Spark; it is read back, its files are moved to
``queue=<queue>/day=<day>/`` under names that follow from its number, and then its manifest is written: only what a manifest
names is in the archive. A batch that is repeated moves the same files to the same names (G5). Days are those of UTC, by the
time in a message's id.
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
    messages_in,
    tail_of,
    writing,
)
from qdo.pipeline.jobs.folder import Folder
from qdo.pipeline.rows import schema_text
from queuey.errors import ConfigurationError, CorruptMessage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["Archive", "ArchivedFile", "Staged", "archive"]

FILE_BYTES = 128 << 20
"""A compacted file's size, about."""
LEFT_SECONDS = 86_400.0
"""What nobody has written to for so long is no run's that is under way."""
_CHOOSING = frozenset({"columns", "bodytype"})
_MANIFESTS = "_manifest"
_CHECKPOINT = "_checkpoint"
_HELD = f"{_CHECKPOINT}/run.lock"
"""By the run that is under way: two that begin the same micro-batch would each move its files to the same names."""
_STAGING = "_staging"
_DAY = "date_add(date'1970-01-01', cast(floor(unix_micros(timestamp) / 86400000000) as int))"
_IN_ORDER = ("queue", "day", "partition", "timestamp", "message_id")
"""Queue and day first, as Spark sorts by folders when it writes, and would lose another order."""
_ROW = "xxhash64(partition, message_id, body, content_type, key, expires)"


Looked = list[tuple[Staged, int]]
"""Files that were written aside, each with the checksum of what is read from it."""


class Archive:
    """An archive in a folder."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        """:param path: on any file system that Spark knows; it need not be there."""
        self._spark = spark
        self.folder = Folder(spark, path.rstrip("/"))
        self.checkpoint = self.folder.at(_CHECKPOINT)
        self.aside = f"{_STAGING}/{uuid4().hex}"
        """Where this object has files written; another run of the same archive has a folder of its own."""
        self.stored = 0
        """Messages that were added by way of this object."""

    def is_there(self) -> bool:
        """Whether a run was ever begun."""
        return self.folder.exists(_CHECKPOINT) or self.folder.exists(_MANIFESTS)

    def files(self) -> list[ArchivedFile]:
        """All files of the archive, by name.

        :raises ConfigurationError: there is none.
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
        """The messages, with the columns of the source and ``day``; by the manifests, never by what lies in the folder.

        :param files: only of these; None is all.
        """
        names = [self.folder.at(file.name) for file in (self.files() if files is None else files)]
        schema = f"{schema_text()}, day date"
        if not names:
            return self._spark.createDataFrame([], schema)
        return self._reader(schema).option("basePath", self.folder.url).parquet(*names)

    def _reader(self, schema: str) -> DataFrameReader:
        """One that fails on a page which is not as it was written."""
        return self._spark.read.schema(schema).option("parquet.page.verify-checksum.enabled", "true")

    def store(self, frame: DataFrame, number: int) -> None:
        """Add a micro-batch; one that is in the archive already changes nothing.

        :param frame: messages, or what :class:`~qdo.pipeline.jobs.staging.StagingSource` tells of files.
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
        self._keep(manifest, {"query": query, "files": made})
        self.stored += messages_in(made)

    def reached(self) -> Offsets:
        """How far the steps that are done have got, by queue."""
        done = [name.rpartition("/")[2] for name in self.folder.names(f"{_CHECKPOINT}/commits")]
        numbers = [int(name) for name in done if name.isdecimal()]
        if not numbers:
            return {}
        # Spark's own lines come first, then one for each source, and there is one source.
        return from_json(json.loads(self.folder.read(f"{_CHECKPOINT}/offsets/{max(numbers)}").splitlines()[-1]))

    def compact(self, before: date) -> int:
        """Put the files of each queue and day together, in the order of ids; what was there is removed after.

        :param before: only earlier days: a day that still gets messages would be put together again and again.
        :returns: how many files are fewer.
        :raises CorruptMessage: the messages read are not those that were written; nothing is changed.
        """
        gone = 0
        groups: dict[tuple[str, str], list[ArchivedFile]] = {}
        for file in self.files():
            if file.day < before.isoformat():
                groups.setdefault((file.queue, file.day), []).append(file)
        for (queue, day), files in sorted(groups.items()):
            if len(files) > 1:
                gone += len(files) - self._put_together(queue, day, files)
        self._sweep()
        return gone

    def _put_together(self, queue: str, day: str, files: Sequence[ArchivedFile]) -> int:
        size = sum(self.folder.size(file.name) for file in files)
        frame = self.read(files).repartitionByRange(
            max(1, ceil(size / FILE_BYTES)), "partition", "timestamp", "message_id"
        )
        last = max(file.name.rpartition("/")[2] for file in files).partition(".")[0]
        stem = f"day-{day}-to-{last}"
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
        """Write aside, by Spark."""
        below = f"{self.aside}/{stem}"
        with writing(frame) as writer:
            writer.partitionBy("queue", "day").mode("overwrite").parquet(self.folder.at(below))
        written = [name for name in self.folder.names(below) if name.endswith(".parquet")]
        ends = [f"{least}(struct(timestamp, message_id)).message_id" for least in ("min", "max")]
        told = self._by_file(written, *ends)
        return [(Staged(f"{stem}/{tail}", row[0], *row[2:]), row[1]) for tail, row in told.items()]

    def _check(self, staged: Sequence[Staged]) -> Looked:
        """Read what tasks wrote.

        :raises CorruptMessage: a file has not what was written to it.
        :raises ConfigurationError: one is not there.
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
        """What is read from files: how many messages, their checksum, and more that Spark is to add up; by queue, day and file."""
        from pyspark.sql.functions import expr

        if not names:
            return {}
        rows = self._reader(schema_text(FILE_COLUMNS)).parquet(*map(self.folder.at, names))
        sums = [expr(each) for each in ("count(*)", f"bit_xor({_ROW})", *more)]
        told = rows.groupBy(expr("_metadata.file_path as file")).agg(*sums).collect()
        return {tail_of(unquote(row[0])): row[1:] for row in told}

    def _take(self, looked: Looked, stem: str) -> list[ArchivedFile]:
        """Move files to their places. What else lies aside, of tasks that failed, goes."""
        made = []
        for number, (file, checksum) in enumerate(sorted(looked, key=lambda each: tail_of(each[0].name))):
            folder = tail_of(file.name).rpartition("/")[0]
            queue, day = (unquote(part.partition("=")[2]) for part in folder.split("/"))
            target = f"{folder}/{stem}-{number:05d}.snappy.parquet"
            self.folder.move(f"{self.aside}/{file.name}", target)
            made.append(ArchivedFile(target, queue, day, file.messages, file.first, file.last, checksum))
        self.folder.remove(self.aside)
        return made

    def forget_left(self, before: float) -> None:
        """Remove what runs that were killed had written aside.

        :param before: seconds since 1970: what was changed since may be of a run that is under way.
        """
        for name, changed in self.folder.children(_STAGING):
            if changed < before:
                self.folder.remove(name)

    def _keep(self, manifest: str, told: Mapping[str, Any]) -> None:
        files = [asdict(file) for file in told["files"]]
        self.folder.write(manifest, json.dumps({**told, "files": files}, indent=1) + "\n")

    def _sweep(self) -> None:
        """Remove what compacting replaced, also what a run that was killed left."""
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
    """Archive what is in queues now and is not in the archive yet.

    Killed at any moment, the next run goes on: no message is lost or twice in it.

    :param options: of the source: url, application, token, subscribe or subscribePattern, maxOffsetsPerTrigger. The
        queues are read from their beginning by the first run.
    :param compact_before: put the files of earlier days together afterwards.
    :param begun: gets the archive before its first message, to see in another thread how far this run is.
    :returns: how many it was.
    :raises ConfigurationError: the folder has other things in it; another run is under way in it, on a file system that locks
        files; or an option chooses what of a message is read.
    :raises QueueyError: as :meth:`Archive.store` and :meth:`Archive.compact`; Spark's own error if the query fails.
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
        frame = spark.readStream.format(source).options(startingOffsets="earliest").options(**options).load()
        writer = frame.writeStream.foreachBatch(found.store).option("checkpointLocation", found.checkpoint)
        begun(found)
        _run(writer.trigger(availableNow=True))
        if compact_before is not None:
            found.compact(compact_before)
    return found.stored


def _run(writer: DataStreamWriter) -> None:
    """A query, to its end. It does not outlive a wait that is interrupted: the folder is free for another run then."""
    query = writer.start()
    try:
        query.awaitTermination()
    except BaseException:
        with suppress(Exception):  # what came first is told
            query.stop()
        raise


def _staging(spark: SparkSession, folder: str) -> str:
    """The format whose tasks write files into a folder."""
    from qdo.pipeline.jobs.staging import StagingSource

    source = StagingSource.knowing(folder=folder, cores=cores_of(spark))
    spark.dataSource.register(source)
    return source.name()
