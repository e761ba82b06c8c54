"""Streaming reads: offsets, limits, restarts, queues that grow and vanish under a query."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from qdo.client import Client, NewMessage
from tests.support.client import new_name
from tests.support.pipeline import APPLICATION, KEY, append, fill, on_both_stores, on_both_stores_if_drawn
from tests.support.servers import RunningServer, eventually


class Drain:
    """A query into Parquet that is started again and again over one checkpoint."""

    def __init__(self, spark: SparkSession, running: RunningServer, folder: Path, **options: Any) -> None:
        self._spark = spark
        self._folder = folder
        self._options = {
            "url": running.url,
            "application": APPLICATION,
            "token": KEY,
            "startingOffsets": "earliest",
        } | options

    def start(self, **trigger: Any) -> StreamingQuery:
        frame = self._spark.readStream.format("queuey").options(**self._options).load()
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(self._folder / "checkpoint"))
        return writer.option("path", str(self._folder / "out")).trigger(**trigger).start()

    def run(self) -> StreamingQuery:
        """Read what is there now."""
        query = self.start(availableNow=True)
        assert query.awaitTermination(120)
        return query

    @property
    def rows(self) -> DataFrame:
        return self._spark.read.parquet(str(self._folder / "out"))

    def counts(self) -> Counter[tuple[str, int, str]]:
        return Counter((row.queue, row.partition, row.message_id) for row in self.rows.collect())


def rows_of_batches(query: StreamingQuery) -> list[int]:
    """Of those that had any."""
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def there(client: Client, *queues: str) -> Counter[tuple[str, int, str]]:
    return Counter((name, message.partition, message.id.hex) for name in queues for message in client.iterate(name))


@on_both_stores_if_drawn
def test_what_is_available_is_read_once_whatever_comes_meanwhile(
    spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path
) -> None:
    queue = fill(client, partitions=3, messages=400)
    drain = Drain(spark, running, tmp_path, subscribe=queue, maxOffsetsPerTrigger="500")

    query = drain.run()
    assert drain.counts() == there(client, queue)
    assert rows_of_batches(query) == [500, 500, 200]

    append(client, queue, *[NewMessage("more", partition=2)] * 30)
    drain.run()
    assert drain.counts() == there(client, queue)


def test_the_most_of_a_trigger_holds_for_a_queue_of_one_partition(
    spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path
) -> None:
    queue = fill(client, partitions=1, messages=120)
    drain = Drain(spark, running, tmp_path, subscribe=queue, maxOffsetsPerTrigger="50")

    query = drain.run()

    assert rows_of_batches(query) == [50, 50, 20]
    assert drain.counts() == there(client, queue)


def test_headers_come_with_each_message(
    spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path
) -> None:
    queue = new_name()
    client.create_queue(queue)
    headers = {"Kind": b"order", "trace": b"\xff\x00", "empty": b""}
    append(client, queue, NewMessage("a", headers=headers), "b")
    drain = Drain(spark, running, tmp_path, subscribe=queue, columns="body,headers", bodyType="string")

    drain.run()
    append(client, queue, NewMessage("c", headers={"Kind": b"bill"}))
    drain.run()

    assert {row.body: row.headers for row in drain.rows.collect()} == {"a": headers, "b": None, "c": {"Kind": b"bill"}}


@on_both_stores
def test_a_queue_that_grows_and_one_that_comes_are_read_from_their_beginning(
    spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path
) -> None:
    stem = new_name()
    client.create_queue(f"{stem}.a", partitions=1)
    client.append(f"{stem}.a", "first")
    drain = Drain(spark, running, tmp_path, subscribePattern=rf"{stem}\..*")
    query = drain.start(processingTime="200 milliseconds")
    try:
        eventually(lambda: sum(p["numInputRows"] for p in query.recentProgress) == 1, seconds=90)
        client.update_queue(f"{stem}.a", partitions=3)
        client.append(f"{stem}.a", NewMessage("grown", partition=3))
        client.create_queue(f"{stem}.b", partitions=2)
        client.append(f"{stem}.b", NewMessage("new", partition=2))
        eventually(lambda: sum(p["numInputRows"] for p in query.recentProgress) == 3, seconds=90)
    finally:
        query.stop()

    assert drain.counts() == there(client, f"{stem}.a", f"{stem}.b")


def progress(query: StreamingQuery) -> Any:
    return eventually(lambda: query.lastProgress, seconds=90)


def test_nothing_new_makes_no_batch(
    spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path
) -> None:
    drain = Drain(spark, running, tmp_path, subscribe=fill(client))
    drain.run()
    query = drain.start(processingTime="100 milliseconds")
    try:
        before = progress(query)["batchId"]
        for _ in range(5):
            query.processAllAvailable()
        assert progress(query)["batchId"] == before
        assert progress(query)["numInputRows"] == 0
    finally:
        query.stop()


def test_a_batch_that_was_planned_and_not_committed_is_repeated_alike(
    spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path
) -> None:
    queue = fill(client, partitions=2, messages=100)
    drain = Drain(spark, running, tmp_path, subscribe=queue, maxOffsetsPerTrigger="50")
    drain.run()
    wanted = drain.counts()
    # As if the process had been killed between plan and commit of the last batches, their files written or not.
    last = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in (last, last.with_name(f".{last.name}.crc")):
        path.unlink(missing_ok=True)
    log = tmp_path / "out" / "_spark_metadata"
    for path in (log / last.name, log / f".{last.name}.crc"):
        path.unlink(missing_ok=True)

    client.append_batch(queue, ["more"] * 10)
    drain.run()

    assert wanted <= drain.counts() == there(client, queue)


@pytest.mark.parametrize("anew", [False, True])
def test_a_queue_that_was_deleted_is_lost_unless_that_is_to_be_passed_over(
    spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path, anew: bool
) -> None:
    queue, other = fill(client), fill(client)
    Drain(spark, running, tmp_path, subscribe=f"{queue},{other}").run()
    client.delete_queue(queue)
    client.append(other, "goes on")
    if anew:
        client.create_queue(queue)
        client.append(queue, "of the new one")

    with pytest.raises(PySparkException, match=f"queue {queue} was deleted"):
        Drain(spark, running, tmp_path, subscribe=f"{queue},{other}").run()
    tolerant = Drain(spark, running, tmp_path, subscribe=f"{queue},{other}", failOnDataLoss="false")
    tolerant.run()

    assert tolerant.rows.count() == 41 + anew


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"token": "wrong"}, "InvalidApplicationKey"),
        ({"subscribe": "nobody-made-this"}, "there is no queue nobody-made-this"),
        ({"endingOffsets": "latest"}, "endingOffsets is none of a streaming read"),
        ({"url": "http://127.0.0.1:9", "retries": "0"}, "no server answers"),
    ],
)
def test_what_cannot_be_streamed_ends_the_query_with_a_sentence(
    spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException, match=said):
        Drain(spark, running, tmp_path, **({"subscribe": fill(client)} | options)).run()


def test_a_checkpoint_survives_being_copied(
    spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path
) -> None:
    queue = fill(client)
    Drain(spark, running, tmp_path / "a", subscribe=queue).run()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    client.append(queue, "one more")

    drain = Drain(spark, running, tmp_path / "b", subscribe=queue)
    query = drain.run()

    assert sum(each["numInputRows"] for each in query.recentProgress) == 1
