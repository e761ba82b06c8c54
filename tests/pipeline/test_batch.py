"""Batch reads by a real Spark of a real server."""

from __future__ import annotations

import json
import os
import signal
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from qdo.client import Client, NewMessage
from qdo.client.streams import ARROW
from queuey.ids import EPOCH_TICKS, MessageId
from tests.support.client import new_name
from tests.support.pipeline import APPLICATION, KEY, append, counted, fill, on_both_stores, on_both_stores_if_drawn
from tests.support.servers import RunningServer, eventually
from tests.support.services.proxy import Proxy


def read(spark: SparkSession, running: RunningServer, schema: str = "", **options: Any) -> DataFrame:
    reader = spark.read.format("queuey")
    given = {"url": running.url, "application": APPLICATION, "token": KEY} | options
    return (reader.schema(schema) if schema else reader).options(**given).load()


def by_rest(client: Client, queue: str) -> list[tuple[int, str, bytes]]:
    return sorted((message.partition, message.id.hex, message.body) for message in client.iterate(queue))


@on_both_stores
@pytest.mark.parametrize("transport", ["arrow", "json"])
def test_every_column_of_every_message_is_as_by_rest(
    spark: SparkSession, running: RunningServer, client: Client, transport: str
) -> None:
    queue = fill(client, partitions=3, messages=50)
    append(client, queue, NewMessage(b"\xff\x00", key="k", content_type="image/png", ttl_seconds=60))

    rows = read(spark, running, subscribe=queue, transport=transport).collect()

    assert sorted((row.partition, row.message_id, bytes(row.body)) for row in rows) == by_rest(client, queue)
    assert {row.queue for row in rows} == {queue}
    for row in rows:
        ticks = MessageId.parse(row.message_id).ticks
        since = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=(ticks - EPOCH_TICKS) // 10)
        assert row.timestamp.replace(tzinfo=UTC) == since
        lives = timedelta(seconds=60) if row.key else timedelta(days=3)
        assert row.expires - row.timestamp == lives
    assert [(row.key, row.content_type) for row in rows if row.key] == [("k", "image/png")]


@pytest.mark.parametrize("transport", ["arrow", "json"])
def test_headers_come_where_they_are_asked_for(
    spark: SparkSession, running: RunningServer, client: Client, transport: str
) -> None:
    queue = fill(client, partitions=1, messages=0)
    headers = {"Kind": b"order", "trace": b"\xff\x00", "empty": b""}
    append(client, queue, NewMessage("a", headers=headers), "b")
    given = {"subscribe": queue, "transport": transport}

    chosen = read(spark, running, columns="body,headers", bodyType="string", **given).collect()
    by_schema = read(spark, running, "headers map<string,binary>", **given).collect()
    whole = read(spark, running, **given)

    assert {row.body: row.headers for row in chosen} == {"a": headers, "b": None}
    assert [row.headers for row in by_schema] == [row.headers for row in chosen]
    assert "headers" not in whole.columns
    assert whole.distinct().count() == 2


def test_a_schema_of_the_user_is_all_that_is_sent(spark: SparkSession, running: RunningServer, client: Client) -> None:
    queue = fill(client)

    some = read(spark, running, "partition int, message_id string", subscribe=queue)
    chosen = read(spark, running, subscribe=queue, columns="body,queue", bodyType="string")

    assert sorted(map(tuple, some.collect())) == [(number, id_) for number, id_, _ in by_rest(client, queue)]
    assert sorted(map(tuple, chosen.collect())) == sorted(
        (body.decode(), queue) for _, _, body in by_rest(client, queue)
    )


@on_both_stores_if_drawn
def test_filters_give_what_spark_by_itself_would_give(
    spark: SparkSession, running: RunningServer, client: Client
) -> None:
    queues = [fill(client, partitions=3, messages=20) for _ in range(2)]
    pushing = read(spark, running, subscribe=",".join(queues))
    plain = read(spark, running, subscribe=",".join(queues), filterPushdown="false")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    rows = plain.orderBy("message_id").collect()
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    some = rows[17]

    conditions = [
        col("timestamp") > some.timestamp,
        col("timestamp") <= some.timestamp,
        (col("timestamp") >= some.timestamp) & (col("partition") == 2),
        col("partition").isin(1, 3),
        col("queue") == queues[1],
        col("queue").startswith(queues[0][:5]),
        col("message_id") == some.message_id,
        col("message_id").isin([row.message_id for row in rows[:3]]),
        col("message_id").isin(some.message_id, None),
        col("partition").isin(1, None),
        col("message_id") > some.message_id,
        (col("partition") == 1) & (col("partition") == 2),
        col("body") == some.body,
        col("key").isNull(),
    ]
    judged = spark.createDataFrame(rows, plain.schema).select("message_id", *conditions).collect()
    for number, condition in enumerate(conditions, 1):
        wanted = sorted(row[0] for row in judged if row[number])
        assert sorted(row.message_id for row in pushing.filter(condition).collect()) == wanted


@on_both_stores
def test_spans_begin_and_end_where_the_options_say(spark: SparkSession, running: RunningServer, client: Client) -> None:
    queue = fill(client, partitions=2, messages=10)
    ids = {number: [id_ for n, id_, _ in by_time(client, queue) if n == number] for number in (1, 2)}
    middle = MessageId.parse(ids[2][4])

    def found(**options: Any) -> list[tuple[int, str]]:
        return sorted(
            (row.partition, row.message_id) for row in read(spark, running, subscribe=queue, **options).collect()
        )

    start = json.dumps({queue: {"1": ids[1][6], "2": "latest"}})
    end = json.dumps({queue: {"1": ids[1][2]}})
    micros = (middle.ticks - EPOCH_TICKS) // 10
    moment = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)).isoformat()

    def before(number: int) -> list[str]:
        return [id_ for id_ in ids[number] if (MessageId.parse(id_).ticks - EPOCH_TICKS) // 10 < micros]

    both = sorted((number, id_) for number in (1, 2) for id_ in ids[number])
    assert found() == both
    assert found(startingOffsets=start) == sorted((1, id_) for id_ in ids[1][7:])
    assert found(endingOffsets=end) == sorted([*((1, id_) for id_ in ids[1][:3]), *((2, id_) for id_ in ids[2])])
    early = sorted((number, id_) for number in (1, 2) for id_ in before(number))
    assert found(endingTimestamp=moment) == early
    assert found(startingTimestamp=moment) == sorted(set(both) - set(early))
    assert found(startingOffsets="latest") == []


def by_time(client: Client, queue: str) -> list[tuple[int, str, bytes]]:
    return [(message.partition, message.id.hex, message.body) for message in client.iterate(queue)]


@on_both_stores_if_drawn
def test_large_spans_are_cut_and_small_ones_packed(spark: SparkSession, running: RunningServer, client: Client) -> None:
    queue = fill(client, partitions=2, messages=3000)
    small = [fill(client, partitions=20, messages=2) for _ in range(3)]

    cut = read(spark, running, subscribe=queue, minPartitions="5")
    limited = read(spark, running, subscribe=queue, maxRecordsPerPartition="2000")
    packed = read(spark, running, subscribe=",".join(small))

    assert (cut.rdd.getNumPartitions(), cut.select("message_id").distinct().count()) == (6, 6000)
    assert (limited.rdd.getNumPartitions(), limited.count()) == (4, 6000)
    assert (packed.rdd.getNumPartitions(), packed.count()) == (1, 120)


def test_on_one_machine_a_read_has_hardly_more_tasks_than_cores(
    spark: SparkSession, running: RunningServer, client: Client
) -> None:
    queue = fill(client, partitions=8, messages=3)

    assert spark.sparkContext.defaultParallelism == 2
    found = read(spark, running, subscribe=queue)
    assert (found.rdd.getNumPartitions(), found.select("message_id").distinct().count()) == (4, 24)


def test_queues_are_found_by_pattern_or_assigned(spark: SparkSession, running: RunningServer, client: Client) -> None:
    stem = new_name()
    for name in (f"{stem}.a", f"{stem}.b", f"{stem}-c"):
        client.create_queue(name, partitions=2)
        client.append_batch(name, [NewMessage(name, partition=number) for number in (1, 2)])

    by_pattern = read(spark, running, subscribePattern=rf"{stem}\..*")
    assigned = read(spark, running, assign=json.dumps({f"{stem}-c": [2]}))

    assert sorted(row.queue for row in by_pattern.collect()) == [f"{stem}.a"] * 2 + [f"{stem}.b"] * 2
    assert [(row.queue, row.partition) for row in assigned.collect()] == [(f"{stem}-c", 2)]


@on_both_stores
def test_an_empty_queue_has_no_rows_and_a_million_bytes_come_whole(
    spark: SparkSession, running: RunningServer, client: Client
) -> None:
    empty, large = new_name(), new_name()
    for name in (empty, large):
        client.create_queue(name)
    bodies = {bytes([letter]) * (1 << 20) for letter in b"abc"}
    append(client, large, *bodies)

    assert read(spark, running, subscribe=empty).collect() == []
    assert {bytes(row.body) for row in read(spark, running, subscribe=large).collect()} == bodies


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "nobody-made-this"}, "there is no queue nobody-made-this"),
        ({"subscribe": "x", "token": "wrong"}, "InvalidApplicationKey"),
        ({"subscribe": "x", "maxOfsetsPerTrigger": "1"}, "none of the format queuey"),
        ({"subscribe": "x", "columns": "size"}, "no column 'size'"),
        ({"subscribe": "x", "columns": "body,"}, "option columns: 'body,' has an empty name"),
        ({"subscribe": "x", "bodyType": "text"}, "option bodyType: 'text' is not binary or string"),
        ({"subscribe": "x", "url": "http://127.0.0.1:9", "retries": "0"}, "no server answers"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_sentence(
    spark: SparkSession, running: RunningServer, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException, match=said):
        read(spark, running, **options).collect()


@pytest.mark.parametrize(
    ("options", "said"),
    [({"columns": "body"}, "option columns: the schema"), ({"bodyType": "string"}, "option bodyType: the schema")],
)
def test_a_schema_and_options_that_say_something_else_are_refused(
    spark: SparkSession, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException, match=said):
        spark.read.format("queuey").schema("queue string, body binary").options(subscribe="x", **options).load().count()


def test_a_filter_on_queues_may_leave_out_a_queue_that_the_offsets_name(
    spark: SparkSession, running: RunningServer, client: Client
) -> None:
    first, other = fill(client, messages=2), fill(client, messages=2)
    begin = json.dumps({name: {"1": "earliest"} for name in (first, other)})

    found = read(
        spark,
        running,
        subscribe=f"{first},{other}",
        startingOffsets=begin,
        endingOffsets=begin.replace("earliest", "latest"),
    )

    assert found.where(f"queue = '{first}'").count() == 4


def test_what_is_gone_can_be_passed_over(spark: SparkSession, running: RunningServer, client: Client) -> None:
    queue = fill(client)

    rows = read(spark, running, subscribe=f"{queue},nobody-made-this", failOnDataLoss="false").collect()

    assert len(rows) == 20


def test_workers_that_are_killed_while_they_read_are_replaced(
    spark: SparkSession, running: RunningServer, client: Client
) -> None:
    queue = fill(client, partitions=2, messages=1_000, size=2_000)
    killed: list[int] = []
    sent = partial(counted, running, "queuey_messages_delivered_total", way=ARROW)
    before = sent()

    def kill() -> None:
        eventually(lambda: sent() > before, seconds=90)  # and it takes seconds to arrive
        for pid in python_workers():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    with Proxy(lambda: ("127.0.0.1", running.port)) as proxy:
        proxy.throttle(1 << 20)
        killing = threading.Thread(target=kill)
        killing.start()
        rows = read(spark, running, subscribe=queue, url=proxy.url).collect()
        killing.join()

    assert killed
    assert sorted((row.partition, row.message_id, bytes(row.body)) for row in rows) == by_rest(client, queue)


def python_workers() -> list[int]:
    """Processes that run tasks of this process's Spark: children of its daemon."""
    parents: dict[int, int] = {}
    daemons: set[int] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if b"pyspark.daemon" in (folder / "cmdline").read_bytes():
                daemons.add(int(folder.name))

    def is_ours(pid: int) -> bool:
        return pid == os.getpid() or (pid in parents and is_ours(parents[pid]))

    return [pid for pid in daemons if parents[pid] in daemons and is_ours(pid)]


def test_the_secret_is_in_no_plan_and_in_no_event(spark: SparkSession, running: RunningServer, client: Client) -> None:
    """All that Spark's pages show is made of its events: of all tests that ran before, too."""
    queue = fill(client)
    frame = read(spark, running, subscribe=queue)
    given = {"url": running.url, "application": APPLICATION, "token": KEY}
    frame.select("body").write.format("queuey").options(queue=queue, **given).mode("append").save()
    streamed = spark.readStream.format("queuey").options(subscribe=queue, startingOffsets="earliest", **given).load()
    query = streamed.select("body").writeStream.format("memory").queryName("seen").trigger(availableNow=True).start()
    assert query.awaitTermination(60)

    plans = [frame._jdf.queryExecution().toString(), query._jsq.explainInternal(True)]
    folder = Path(str(spark.conf.get("spark.eventLog.dir")).removeprefix("file:"))
    events = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]

    assert all("queuey" in plan and KEY not in plan for plan in plans)
    assert any(b"queuey" in each for each in events)
    assert not any(KEY.encode() in each for each in events)


def test_without_install_spark_finds_the_format_by_itself(
    spark: SparkSession, running: RunningServer, client: Client
) -> None:
    import pyspark_queuey

    queue = fill(client)
    spark.dataSource.register(pyspark_queuey.DefaultSource)
    try:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
        assert read(spark, running, subscribe=queue).filter("partition = 1").count() == 10
    finally:
        import qdo.pipeline

        qdo.pipeline.install(spark)
