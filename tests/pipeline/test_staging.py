"""Files that tasks write for an archive: what is in them, what is left of them, and the same archive by way of Spark."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from qdo.client import Client
from qdo.pipeline.jobs import staging
from qdo.pipeline.jobs.archive import LEFT_SECONDS, Archive, Staged, archive
from qdo.pipeline.jobs.staging import Stager, StagingSource
from qdo.pipeline.spans import Part
from queuey.errors import ConfigurationError, CorruptMessage, QueueyError
from queuey.ids import ZERO_ID
from tests.support.archives import archived, filled, options, there
from tests.support.client import new_name
from tests.support.pipeline import append
from tests.support.servers import RunningServer

BEGIN = datetime(2026, 2, 27, 22, tzinfo=UTC)
Row = tuple[str, int, datetime]
"""Queue, partition and time."""


class Batches:
    """What a reader would bring, an hour of a few messages in each batch; it may fail at the end."""

    def __init__(self, hours: int, error: Exception | None = None) -> None:
        self.rows: list[Row] = []
        self._hours = hours
        self._error = error

    def by_part(self, parts: list[Part]) -> Iterator[tuple[Part, Any]]:
        for part in parts:
            for hour in range(0, self._hours, 5):
                times = [BEGIN + timedelta(hours=hour + each) for each in range(5)]
                self.rows += [(part.queue, part.partition, time) for time in times]
                yield part, batch(part, times)
        if self._error is not None:
            raise self._error


def batch(part: Part, times: list[datetime]) -> Any:
    count = len(times)
    return pa.record_batch(
        {
            "partition": pa.array([part.partition] * count, pa.int32()),
            "message_id": pa.array([f"{part.partition}-{time:%d%H}" for time in times]),
            "timestamp": pa.array(times, pa.timestamp("us", tz="UTC")),
            "body": pa.array([b"x" * 100] * count),
            "content_type": pa.nulls(count, pa.string()),
            "key": pa.nulls(count, pa.string()),
            "expires": pa.array(times, pa.timestamp("us", tz="UTC")),
        }
    )


def parts(*queues: str) -> list[Part]:
    """Three of each, in no order."""
    found = [Part(queue, "", number, ZERO_ID, ZERO_ID) for queue in queues for number in (1, 2, 3)]
    return random.Random(1).sample(found, len(found))


def told(batches: Iterator[Any]) -> list[Staged]:
    return [Staged(**row) for batch in batches for row in batch.to_pylist()]


def read(folder: Path, file: Staged) -> list[Row]:
    queue, day = (part.partition("=")[2] for part in file.name.split("/")[:2])
    rows = pq.read_table(folder / file.name, partitioning=None).to_pylist()
    assert {row["timestamp"].date().isoformat() for row in rows} == {day}
    assert len(rows) == file.messages
    least, greatest = min(rows, key=_time), max(rows, key=_time)
    assert file.first in {row["message_id"] for row in rows if _time(row) == _time(least)}
    assert file.last in {row["message_id"] for row in rows if _time(row) == _time(greatest)}
    return [(queue, row["partition"], row["timestamp"]) for row in rows]


def _time(row: dict[str, Any]) -> Any:
    return row["timestamp"]


@pytest.mark.parametrize(("held", "opened"), [(staging.GROUP_BYTES, staging.MOST_OPEN), (2_000, 2)])
def test_a_file_has_a_day_of_a_queue_and_all_are_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int, opened: int
) -> None:
    monkeypatch.setattr(staging, "GROUP_BYTES", held)
    monkeypatch.setattr(staging, "MOST_OPEN", opened)
    reader = Batches(hours=100)

    files = told(Stager(reader, str(tmp_path)).batches(parts("a", "b")))  # type: ignore[arg-type]

    assert sorted(row for file in files for row in read(tmp_path, file)) == sorted(reader.rows)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet")} == {file.name for file in files}
    assert len({file.name.rpartition("/")[0] for file in files}) == 2 * 6
    assert len(files) == 2 * 6 if opened > 6 else len(files) > 2 * 6


def test_a_task_that_fails_leaves_no_file(tmp_path: Path) -> None:
    reader = Batches(hours=100, error=QueueyError("gone"))

    with pytest.raises(QueueyError, match="gone"):
        told(Stager(reader, str(tmp_path)).batches(parts("a")))  # type: ignore[arg-type]

    assert not list(tmp_path.rglob("*.parquet"))


def test_a_disk_that_does_not_take_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "queue=a").touch()

    with pytest.raises(OSError, match="queue=a"):
        told(Stager(Batches(hours=5), str(tmp_path)).batches(parts("a")))  # type: ignore[arg-type]


def test_nothing_is_told_of_nothing(tmp_path: Path) -> None:
    assert told(Stager(Batches(hours=5), str(tmp_path)).batches([])) == []  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_what_tasks_left_that_failed_is_in_no_archive(
    spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path
) -> None:
    """And goes: at once if it is of this run, and in a day if it is of one that was killed, or is under way."""
    name = filled(client, new_name())
    given = options(running, subscribe=name)

    def leave(folder: str, *, seconds_ago: float = 0.0) -> Path:
        file = tmp_path / folder / f"queue={name}" / "day=2026-01-01" / "left.parquet"
        file.parent.mkdir(parents=True)
        file.write_bytes(b"half a file")
        changed = time.time() - seconds_ago
        os.utime(tmp_path / folder, (changed, changed))
        return file

    archive(spark, str(tmp_path), options=given)
    old, new = leave("_staging/old", seconds_ago=LEFT_SECONDS + 60), leave("_staging/new")
    append(client, name, "more")
    own: list[Path] = []
    archive(spark, str(tmp_path), options=given, begun=lambda found: own.append(leave(found.aside)))

    assert archived(Archive(spark, str(tmp_path))) == there(client, name)
    assert [file.exists() for file in (old, new, *own)] == [False, True, False]


def test_a_byte_that_changed_is_told_by_who_reads_it(
    spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path
) -> None:
    name = filled(client, new_name())
    archive(spark, str(tmp_path), options=options(running, subscribe=name))
    (file, *_) = tmp_path.glob("queue=*/day=*/*.parquet")
    found = pq.ParquetFile(file).metadata.row_group(0).column(3)
    assert found.path_in_schema == "body"
    data = bytearray(file.read_bytes())
    data[found.data_page_offset + found.total_compressed_size - 1] ^= 1
    file.write_bytes(data)

    with pytest.raises(Exception, match="could not verify page integrity"):
        Archive(spark, str(tmp_path)).read().select("body").collect()


@pytest.mark.parametrize("chosen", [{"columns": "queue,partition"}, {"bodyType": "string"}])
def test_an_archive_has_messages_whole(
    spark: SparkSession, running: RunningServer, tmp_path: Path, chosen: dict[str, str]
) -> None:
    with pytest.raises(ConfigurationError, match=f"option {next(iter(chosen))}: an archive has messages whole"):
        archive(spark, str(tmp_path / "new"), options=options(running, subscribe="q", **chosen))


def test_archives_of_one_session_have_tasks_of_their_own() -> None:
    one, other = (StagingSource.knowing(folder=folder) for folder in ("/a/_staging/1", "/a/_staging/2"))

    assert one.name() != other.name()


def test_jobs_are_found_where_spark_is_not() -> None:
    """So that a command can say what is missing."""
    code = "import sys; sys.modules['pyspark'] = None; import qdo.pipeline.jobs.archive, qdo.pipeline.jobs.replay"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture
def elsewhere(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """The folder ``tmp_path / "archive"`` by a name that only Spark knows."""
    (tmp_path / "archive").mkdir()
    context: Any = spark.sparkContext
    settings, name = context._jsc.hadoopConfiguration(), "fs.viewfs.mounttable.tests.link./archive"
    settings.set(name, (tmp_path / "archive").as_uri())
    yield "viewfs://tests/archive"
    settings.unset(name)


@pytest.mark.drawn
def test_an_archive_that_only_spark_reaches_is_the_same_and_goes_on_on_the_machine_s_own(
    spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path, elsewhere: str
) -> None:
    name = filled(client, new_name())
    given = options(running, subscribe=name)
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)

    assert archive(spark, elsewhere, options=given) == 60
    assert archived(Archive(spark, elsewhere)) == there(client, name)
    append(client, name, "new")
    assert archive(spark, str(tmp_path / "archive"), options=given, compact_before=tomorrow) == 1
    append(client, name, "newer")
    assert archive(spark, elsewhere, options=given) == 1

    found = Archive(spark, str(tmp_path / "archive"))
    assert archived(found) == there(client, name)
    assert [file.messages for file in found.files()] in ([1, 61], [61, 1])


def test_files_on_another_machine_s_disk_are_told(spark: SparkSession, tmp_path: Path) -> None:
    elsewhere = [Staged("queue=q/day=2026-01-01/x.parquet", 1, "a", "b")]

    with pytest.raises(ConfigurationError, match=r"x\.parquet, which a task wrote, is not there: a folder on the disk"):
        Archive(spark, str(tmp_path)).store(spark.createDataFrame(elsewhere), 0)


def test_a_file_that_has_less_than_was_written_is_in_no_archive(spark: SparkSession, tmp_path: Path) -> None:
    found = Archive(spark, str(tmp_path))
    file, _ = told(Stager(Batches(hours=5), str(tmp_path / found.aside)).batches(parts("q")[:1]))  # type: ignore[arg-type]

    with pytest.raises(CorruptMessage, match=r"3 messages were written to queue=q/day=2026-02-27/.*, and 2 are read"):
        found.store(spark.createDataFrame([file._replace(messages=3)]), 0)
    assert not (tmp_path / "_manifest").exists()
