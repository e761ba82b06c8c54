"""Writes: stored once however often tasks are tried, cut in the same places, refused with a sentence."""

from __future__ import annotations

import os
import socket
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit, lpad

from qdo.client import Client
from qdo.pipeline.sink import RequestChunks, _as_written
from queuey.ids import TICKS_PER_SECOND
from tests.support import servers
from tests.support.client import new_name
from tests.support.pipeline import APPLICATION, KEY, counted, fill, on_both_stores, on_both_stores_if_drawn, settle
from tests.support.raw import begin_upload
from tests.support.servers import RunningServer

HEADERS = pa.map_(pa.string(), pa.binary())


def write(frame: DataFrame, running: RunningServer, **options: Any) -> None:
    given = {"url": running.url, "application": APPLICATION, "token": KEY} | options
    frame.write.format("queuey").options(**given).mode("append").save()


def made(client: Client, partitions: int = 4) -> str:
    queue = new_name()
    client.create_queue(queue, partitions=partitions)
    return queue


def test_every_row_becomes_a_message(spark: SparkSession, running: RunningServer, client: Client) -> None:
    queue = made(client)
    rows = spark.range(0, 25_000, 1, 3).select(
        col("id").cast("string").alias("body"), (col("id") % 4 + 1).cast("int").alias("partition")
    )

    write(rows, running, queue=queue, batchSize="3000")

    found = [(message.partition, int(message.body)) for message in client.iterate(queue)]
    assert Counter(number for _, number in found) == Counter(range(25_000))
    assert all(number % 4 + 1 == partition for partition, number in found)


def test_a_row_says_where_how_long_and_what(spark: SparkSession, running: RunningServer, client: Client) -> None:
    first, second = made(client), made(client)
    due = datetime.now(UTC) + timedelta(hours=1)
    rows = spark.createDataFrame(
        [
            (first, bytearray(b"\xff\x00"), "k", 60, "image/png", None),
            (second, bytearray(b"plain"), None, None, None, None),
            (first, bytearray(b"later"), None, 3600, None, due),
        ],
        "queue string, body binary, key string, ttl int, content_type string, deliver_at timestamp",
    ).coalesce(1)

    write(rows, running)

    (image,) = client.iterate(first)
    (plain,) = client.iterate(second)
    assert (image.body, image.key, image.content_type, plain.body) == (b"\xff\x00", "k", "image/png", b"plain")
    assert client.queue_info(first).partitions[0].number == 1
    assert sum(partition.scheduled for partition in client.queue_info(first).partitions) == 1


@pytest.mark.parametrize("kind", ["binary", "string"])
def test_headers_are_maps_of_bytes_or_texts(
    spark: SparkSession, running: RunningServer, client: Client, kind: str
) -> None:
    queue = made(client, 1)
    value = bytearray(b"\xff\x00") if kind == "binary" else "\u00e4"
    rows = [("a", {"trace": value}), ("b", None), ("c", {})]

    write(spark.createDataFrame(rows, f"body string, headers map<string,{kind}>"), running, queue=queue)
    write(spark.createDataFrame([("d", None)], f"body string, headers map<string,{kind}>"), running, queue=queue)

    expected = value.encode() if isinstance(value, str) else bytes(value)
    found = {message.body: message.headers for message in client.iterate(queue)}
    assert found == {b"a": {"trace": expected}, b"b": {}, b"c": {}, b"d": {}}


def test_the_option_ttl_is_of_rows_that_name_none(spark: SparkSession, running: RunningServer, client: Client) -> None:
    queue = made(client, 1)

    write(spark.createDataFrame([("x",)], "body string"), running, queue=queue, ttl="60")

    (message,) = client.stream_ndjson(queue, columns=["expires"])
    assert 59 < float(message.expires or 0) - float(message.timestamp) < 61


@on_both_stores
def test_a_task_that_fails_after_some_requests_stores_once(
    spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path
) -> None:
    queue, marks = made(client), str(tmp_path)

    def failing(rows: Iterable[Any]) -> Iterator[tuple[str]]:
        for number, row in enumerate(rows):
            flag = Path(marks) / str(row.id)
            if number == 3_000 and not flag.exists():
                flag.touch()
                raise RuntimeError("planted")
            yield (str(row.id),)

    rows = spark.range(0, 8_000, 1, 2).rdd.mapPartitions(failing).toDF("body string")
    write(rows, running, queue=queue, batchSize="500")
    settle(client, queue)

    assert len(list(tmp_path.iterdir())) == 2
    assert Counter(int(message.body) for message in client.iterate(queue)) == Counter(range(8_000))


def test_a_job_of_the_same_name_is_repeated_safely(spark: SparkSession, running: RunningServer, client: Client) -> None:
    queue = made(client)
    rows = spark.range(0, 1_000, 1, 2).select(col("id").cast("string").alias("body"))

    write(rows, running, queue=queue, jobId="nightly-7")
    write(rows, running, queue=queue, jobId="nightly-7")
    with pytest.raises(PySparkException, match="tried again with other rows"):
        write(rows.select(lit("x").alias("body")), running, queue=queue, jobId="nightly-7")

    assert len(list(client.iterate(queue))) == 1_000


@on_both_stores_if_drawn
def test_a_stream_of_one_queue_into_another_stores_each_message_once(
    spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path
) -> None:
    source, target = fill(client, partitions=2, messages=300), made(client)
    given = {"url": running.url, "application": APPLICATION, "token": KEY}

    def run() -> None:
        frame = (
            spark.readStream.format("queuey")
            .options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="300", **given)
            .load()
        )
        writer = (
            frame.select("body", col("message_id").alias("key"))
            .writeStream.format("queuey")
            .options(queue=target, **given)
        )
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(120)

    run()
    # As if the process had been killed after the last batch was written and before that was noted.
    last = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in (last, last.with_name(f".{last.name}.crc")):
        path.unlink(missing_ok=True)
    run()
    settle(client, target)

    wanted = Counter(message.id.hex for message in client.iterate(source))
    assert Counter(message.key for message in client.iterate(target)) == wanted


HELD_SECONDS = 6.0
"""Long enough for the first request of a write, and less than a task goes on trying."""


@pytest.fixture(scope="module")
def narrow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server for one large request at a time, on sixteen connections."""
    settings = "connections = 16\n\n[limits]\nmax_in_flight_mb = 1\n"
    with servers.shipped(tmp_path_factory.mktemp("narrow"), settings=settings, name="narrow") as running:
        yield running


@pytest.mark.parametrize("limit", ["in_flight", pytest.param("connections", marks=pytest.mark.drawn)])
def test_a_server_without_room_is_waited_for(spark: SparkSession, narrow_server: RunningServer, limit: str) -> None:
    """It answers 429 where an upload holds all the bytes there are, 503 where all connections are taken."""
    with Client(narrow_server.url, APPLICATION, KEY) as client:
        queue = made(client)
    before = counted(narrow_server, "queuey_throttled_total", limit=limit)
    if limit == "in_flight":
        held = [begin_upload(narrow_server.port, f"/v1/{APPLICATION}/{queue}", KEY, b"x" * ((1 << 20) - 1))]
    else:
        held = [socket.create_connection(("127.0.0.1", narrow_server.port)) for _ in range(16)]
    ending = threading.Timer(HELD_SECONDS, close_all, [held])
    ending.start()
    try:
        write(
            spark.range(0, 4_000, 1, 2).select(lpad(col("id").cast("string"), 100, "0").alias("body")),
            narrow_server,
            queue=queue,
        )
    finally:
        ending.join()

    assert counted(narrow_server, "queuey_throttled_total", limit=limit) > before
    with Client(narrow_server.url, APPLICATION, KEY) as client:
        assert Counter(int(message.body) for message in client.iterate(queue)) == Counter(range(4_000))


def close_all(connections: Iterable[socket.socket]) -> None:
    for each in connections:
        each.close()


def test_a_rate_is_kept(spark: SparkSession, running: RunningServer, client: Client) -> None:
    queue = made(client, 1)

    write(spark.range(0, 50, 1, 1).select(col("id").cast("string").alias("body")), running, queue=queue, maxRate="20")

    ids = [message.id for message in client.iterate(queue)]
    assert len(ids) == 50
    # Twenty at a time: so the third of them is sent two seconds after the first, which may have been on its way for a while.
    assert (ids[-1].ticks - ids[0].ticks) / TICKS_PER_SECOND > 1


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("'x' as text", {"queue": "q"}, "column text cannot be written"),
        ("1 as body", {"queue": "q"}, "column body is int: expected string or binary"),
        (
            "'x' as body, map('a',1) as headers",
            {"queue": "q"},
            "is map<string,int>: expected map<string,binary> or map",
        ),
        ("'x' as key", {"queue": "q"}, "no column body"),
        ("'x' as body, 1 as partition, 'k' as key", {"queue": "known"}, "give a partition or a key"),
        ("'x' as body", {}, "where to"),
        ("'x' as body, 'q' as queue", {"queue": "q"}, "where to"),
        ("'x' as body", {"queue": "q", "subscribe": "q"}, "subscribe is none of a write"),
        ("'x' as body", {"queue": "nobody-made-this"}, "QueueNotFound"),
        ("cast(null as string) as body", {"queue": "known"}, "Required"),
    ],
)
def test_what_cannot_be_written_is_refused_with_a_sentence(
    spark: SparkSession, running: RunningServer, client: Client, columns: str, options: dict[str, str], said: str
) -> None:
    known = {"queue": made(client)} if options.get("queue") == "known" else {}

    with pytest.raises(PySparkException, match=said):
        write(spark.range(1).selectExpr(*columns.split(", ")), running, **(options | known))


def test_rows_with_keys_of_their_own_may_come_in_another_order(
    spark: SparkSession, running: RunningServer, client: Client
) -> None:
    queue = made(client, 2)
    rows = spark.range(0, 90, 1, 1).selectExpr("cast(id as string) as body", "concat('row-', id) as idempotency_key")

    for frame in (rows, rows.orderBy(col("body").desc()).coalesce(1)):
        write(frame, running, queue=queue, jobId="repeated", batchSize="20")
    settle(client, queue)

    assert Counter(int(message.body) for message in client.iterate(queue)) == Counter(range(90))
    with pytest.raises(PySparkException, match="rows with one key must be alike"):
        write(rows.selectExpr("concat(body, '!') as body", "idempotency_key"), running, queue=queue)


def test_a_repeat_is_the_same_though_spark_hands_over_other_batches(
    spark: SparkSession, running: RunningServer, client: Client
) -> None:
    queue = made(client, 2)
    rows = spark.range(0, 500, 1, 1).selectExpr("cast(id as string) as body", "if(id % 3 = 0, null, 'k') as key")
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    assert before is not None

    try:
        for most in ("10000", "70"):
            spark.conf.set(name, most)
            write(rows, running, queue=queue, jobId="repeated", batchSize="120")
    finally:
        spark.conf.set(name, before)
    settle(client, queue)

    assert Counter(int(message.body) for message in client.iterate(queue)) == Counter(range(500))


def test_a_request_has_room_for_all_its_columns(spark: SparkSession, running: RunningServer, client: Client) -> None:
    queue = made(client, 2)
    wide = "concat(repeat('\u00e4', 240), id) as key"

    write(spark.range(0, 10_000, 1, 1).selectExpr("repeat('x', 400) as body", wide), running, queue=queue)
    settle(client, queue)

    assert sum(span.messages or 0 for span in client.survey(queue, count=10_000).spans.values()) == 10_000


def test_a_refused_row_is_named_by_its_place(spark: SparkSession, running: RunningServer, client: Client) -> None:
    queue = made(client, 1)
    rows = spark.range(0, 50, 1, 1).selectExpr("if(id = 33, null, 'x') as body")

    with pytest.raises(
        PySparkException, match=rf"20 rows for queue '{queue}', from row 20 of task 0 on: 13.body: Required"
    ):
        write(rows, running, queue=queue, batchSize="20")


@pytest.mark.parametrize(
    ("body", "queue", "error"), [("'x'", "", "QueueNotFound"), ("repeat('x', 9000000)", "any", "MessageTooLarge")]
)
def test_rows_without_a_place_are_named_by_theirs(
    spark: SparkSession, running: RunningServer, body: str, queue: str, error: str
) -> None:
    rows = spark.range(0, 1, 1, 1).selectExpr(f"{body} as body", f"'{queue}' as queue")

    with pytest.raises(PySparkException, match=f"{error}: 1 rows for queue '{queue}', from row 0 of task 0 on: "):
        write(rows, running)


def test_what_a_token_may_not_append_is_told_with_the_queue(
    spark: SparkSession, running: RunningServer, client: Client
) -> None:
    queue = made(client, 1)
    token = client.new_token(queues=[queue], verbs=["read"]).text

    with pytest.raises(PySparkException, match=f"Forbidden: appending to queue {queue}: "):
        write(spark.range(1).selectExpr("'x' as body"), running, queue=queue, token=token)


def test_a_log_is_not_overwritten(spark: SparkSession, running: RunningServer, client: Client) -> None:
    frame = spark.range(1).selectExpr("'x' as body")
    options = {"url": running.url, "application": APPLICATION, "token": KEY, "queue": made(client)}

    with pytest.raises(PySparkException, match="a log is not overwritten"):
        frame.write.format("queuey").options(**options).mode("overwrite").save()


@given(
    st.lists(st.integers(1, 40), max_size=12),
    st.integers(1, 30),
    st.integers(1, 400),
    st.lists(st.integers(1, 60), max_size=12),
)
def test_requests_are_cut_in_the_same_places_however_spark_cut_the_rows(
    sizes: list[int], rows: int, size: int, otherwise: list[int]
) -> None:
    bodies = [os.urandom(length) for length in sizes for _ in range(3)]
    headers = [[("name", body[:9])] if at % 3 else None for at, body in enumerate(bodies)]

    def cut(lengths: list[int]) -> list[tuple[int, list[bytes], bytes]]:
        ttls = [None if len(body) % 2 else 5 for body in bodies]
        columns = (pa.array(bodies, pa.binary()), pa.array(headers, HEADERS), pa.array(ttls, pa.int32()))
        table = pa.table(dict(zip(("body", "headers", "ttl"), columns, strict=True)))
        batches, at = [], 0
        for length in [*lengths, len(bodies)]:
            batches += table.slice(at, length).to_batches()
            at += length
        return [
            (first, part["body"].to_pylist(), _as_written(part).to_pybytes())
            for first, part in RequestChunks(rows, size).of(iter(batches))
        ]

    found = cut([])

    assert found == cut(otherwise)
    assert [body for _, part, _ in found for body in part] == bodies
    assert all(len(part) <= rows and (len(part) == 1 or sum(map(len, part)) <= size) for _, part, _ in found)
    assert all(bodies[first] == part[0] for first, part, _ in found)
