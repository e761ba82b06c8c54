"""Streaming queries: catching up, small micro-batches once a second, and none at all."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, Protocol

from pyspark.sql import DataFrame
from pyspark.sql import Row as SparkRow
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from qdo.client import Client
from qdo.client.values import NewMessage
from tests.bench import arrival
from tests.bench.measure import BenchFailed, alternate, percentile, ratios, spread, until
from tests.bench.servers import APPLICATION, KEY, ROOT
from tests.bench.spark.plan import PARTITIONS, ROWS_OF_A_TRIGGER, SparkPlan, body
from tests.bench.spark.processes import cpu_seconds_of, jvm_of
from tests.bench.spark.stage import QUEUE, SEALED, Stage, seconds
from tests.bench.table import Row, number

TRIGGER = "1 second"
DELAY_SECONDS = 0.0
"""The embedded store shows a message as soon as it is acknowledged."""
_PATIENCE_SECONDS = 120
_WARM_UP_TRIGGERS = 3
_WARM_UP_SECONDS = 5


def available_now(stage: Stage) -> Iterator[Row]:
    """Everything that is there: in one micro-batch, and in batches of a tenth."""
    for queue, which, goal in ((QUEUE, "", "ratio >= 1.1"), (SEALED, ", sealed", "ratio >= 1.6")):
        if queue == SEALED:
            stage.seal()
        else:
            stage.unseal()
        for how, options in _batches(stage.plan).items():
            kafka = stage.stream_from_kafka(startingOffsets="earliest", **options)
            ours = stage.stream_from_queuey(queue, startingOffsets="earliest", **options)
            below, above = alternate(
                lambda frame=kafka: _caught_up(stage, frame),  # type: ignore[misc]
                lambda frame=ours: _caught_up(stage, frame),  # type: ignore[misc]
                stage.plan.rounds,
            )
            yield Row(
                f"availableNow, {stage.plan.messages:,} messages {how}{which}",
                f"{number(median(below))} rows/s by Spark's Kafka source",
                f"{number(median(above))} rows/s",
                ratios(above, below),
                goal=goal,
            )


def _batches(plan: SparkPlan) -> dict[str, dict[str, str]]:
    """How to read a stream, and the options for it."""
    return {"whole": {}, f"in batches of {plan.in_a_batch:,}": {"maxOffsetsPerTrigger": str(plan.in_a_batch)}}


def _caught_up(stage: Stage, frame: DataFrame) -> float:
    """Rows a second, from the start of a query until it has ended by itself."""
    queries = []

    def catch_up() -> None:
        query = _thrown_away(stage, frame).trigger(availableNow=True).start()
        queries.append(query)
        if not query.awaitTermination(_PATIENCE_SECONDS):
            raise BenchFailed(f"{query.lastProgress} is not the end")

    took = seconds(catch_up)
    rows = sum(progress["numInputRows"] for progress in queries[0].recentProgress)
    if rows != stage.plan.messages:
        raise BenchFailed(f"a query that ended had {rows} of {stage.plan.messages} rows")
    return stage.plan.messages / took


def _thrown_away(stage: Stage, frame: DataFrame) -> DataStreamWriter:
    checkpoint = str(stage.plan.fresh("checkpoint"))
    return frame.writeStream.format("noop").option("checkpointLocation", checkpoint)


class Feeder(Protocol):
    """Appends rows, evenly to all partitions, and returns when they are acknowledged."""

    def __call__(self, rows: int) -> None: ...


def small_batches(stage: Stage) -> Iterator[Row]:
    """500 rows of eight partitions between two triggers; then none."""
    topic, queue = stage.fresh_topic(), stage.fresh_queue()
    kafka = _running(stage, stage.stream_from_kafka(topic, startingOffsets="earliest"))
    try:
        below = _triggers(stage, kafka, _KafkaFeeder(stage, topic))
    finally:
        kafka.stop()
    ours = _running(stage, stage.stream_from_queuey(queue, startingOffsets="earliest"))
    try:
        with Client(stage.server.url, APPLICATION, KEY) as client:
            above = _triggers(stage, ours, _feeder(client, queue))
        yield _trigger_row(below, above)
        yield _idle(stage, ours)
    finally:
        ours.stop()


def _trigger_row(below: list[float], above: list[float]) -> Row:
    ratio = median(above) / median(below)
    return Row(
        f"1 s trigger, {ROWS_OF_A_TRIGGER} rows of {PARTITIONS} partitions, whole trigger",
        f"p50 {median(below):.0f} ms, p99 {percentile(below, 0.99):.0f} ms by Spark's Kafka source",
        f"p50 {median(above):.0f} ms, p99 {percentile(above, 0.99):.0f} ms",
        spread([ratio]),
        goal="ratio <= 1.1",
    )


def _running(stage: Stage, frame: DataFrame) -> StreamingQuery:
    return _thrown_away(stage, frame).trigger(processingTime=TRIGGER).start()


def _triggers(stage: Stage, query: StreamingQuery, feed: Feeder) -> list[float]:
    """Milliseconds of each trigger that had the rows of one feeding.

    They are appended half-way between two triggers, which Spark begins with the second of the clock.
    """
    wanted = _WARM_UP_TRIGGERS + stage.plan.triggers
    for turn in range(1, wanted + 1):
        time.sleep((1.5 - time.time() % 1) % 1)
        feed(ROWS_OF_A_TRIGGER)
        until(lambda turn=turn: _rows(query) >= turn * ROWS_OF_A_TRIGGER, _PATIENCE_SECONDS, f"trigger {turn}")  # type: ignore[misc]
    full = [found for found in query.recentProgress if found["numInputRows"] == ROWS_OF_A_TRIGGER]
    if len(full) < wanted - _WARM_UP_TRIGGERS:
        raise BenchFailed(f"{len(full)} of {wanted} triggers had the rows of one feeding")
    return [float(found["durationMs"]["triggerExecution"]) for found in full[_WARM_UP_TRIGGERS:]]


def _rows(query: StreamingQuery) -> int:
    if failed := query.exception():
        raise BenchFailed(f"a query failed: {failed}")
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def _idle(stage: Stage, query: StreamingQuery) -> Row:
    """A query that has had everything."""
    context, jvm = stage.spark.sparkContext, jvm_of(stage.spark)

    def state() -> tuple[int, int, float]:
        # Spark reports every ten seconds without a batch, too.
        batches = sum("addBatch" in progress["durationMs"] for progress in query.recentProgress)
        jobs = context.statusTracker().getJobIdsForGroup(str(query.runId))
        return batches, len(jobs), cpu_seconds_of(jvm)

    stage.server.settle()
    (batches, jobs, cpu), began = state(), time.perf_counter()
    of_server = stage.server.cpu_seconds()
    time.sleep(stage.plan.triggers)
    now, took = state(), time.perf_counter() - began
    share = 100 * (now[2] - cpu) / took
    share_of_server = 100 * (stage.server.cpu_seconds() - of_server) / took
    return Row(
        f"1 s trigger, nothing new, {took:.0f} s",
        "",
        f"{now[0] - batches} batches, {now[1] - jobs} jobs, {share:.1f} % of a core; {share_of_server:.1f} % of the server",
        goal="batches <= 0, jobs <= 0, cpu <= 5 %",
        figures={"batches": now[0] - batches, "jobs": now[1] - jobs, "cpu": share},
    )


def _feeder(client: Client, queue: str) -> Feeder:
    def feed(rows: int) -> None:
        client.append_batch(queue, [NewMessage(body(at), partition=at % PARTITIONS + 1) for at in range(rows)])

    return feed


class _KafkaFeeder:
    """Kafka's own producer, in Spark's JVM, where its classes are."""

    def __init__(self, stage: Stage, topic: str) -> None:
        jvm: Any = stage.spark.sparkContext._jvm
        settings = jvm.java.util.HashMap()
        serializer = "org.apache.kafka.common.serialization.ByteArraySerializer"
        named = {"bootstrap.servers": stage.kafka.bootstrap_servers, "key.serializer": serializer}
        for name, value in {**named, "value.serializer": serializer}.items():
            settings.put(name, value)
        self._producer = jvm.org.apache.kafka.clients.producer.KafkaProducer(settings)
        record = jvm.org.apache.kafka.clients.producer.ProducerRecord
        self._records = [record(topic, at % PARTITIONS, None, bytearray(body(at))) for at in range(ROWS_OF_A_TRIGGER)]

    def __call__(self, rows: int) -> None:
        for record in self._records[:rows]:
            self._producer.send(record)
        self._producer.flush()


def latency(stage: Stage) -> Iterator[Row]:
    """From the sending of an append to its row in a ``foreachBatch``, 200 appends a second."""
    seen: list[tuple[int, float]] = []
    stage.server.create(arrival.QUEUE, PARTITIONS)
    rows = stage.stream_from_queuey(arrival.QUEUE, startingOffsets="earliest").select("body").writeStream
    query = rows.foreachBatch(_noting(seen)).option("checkpointLocation", str(stage.plan.fresh("checkpoint")))
    count = arrival.RATE * (_WARM_UP_SECONDS + stage.plan.triggers)
    writer = [sys.executable, "-m", "tests.bench.arrival", str(stage.server.port), str(count)]
    running = query.trigger(processingTime=TRIGGER).start()
    try:
        with subprocess.Popen(writer, cwd=ROOT):
            until(lambda: _rows(running) >= count, _PATIENCE_SECONDS, f"{count} messages")
    finally:
        running.stop()
    took = [after for turn, after in seen if turn >= arrival.RATE * _WARM_UP_SECONDS]
    p50, p99 = percentile(took, 0.5), percentile(took, 0.99)
    yield Row(
        f"append to its row in a foreachBatch, 1 s trigger, {arrival.RATE} appends/s",
        "",
        f"p50 {p50:.2f} s, p99 {p99:.2f} s, worst {max(took):.2f} s",
        goal=f"p99 <= {DELAY_SECONDS + 1.3:g} s",
        figures={"p99": p99},
    )


def _noting(seen: list[tuple[int, float]]) -> Callable[[DataFrame, int], None]:
    """Number and age in seconds of each message, when its row is there."""

    def note(batch: DataFrame, _number: int) -> None:
        rows: list[SparkRow] = batch.collect()
        now = time.monotonic_ns()
        for row in rows:
            turn, sent, _ = bytes(row.body).split(b" ")
            seen.append((int(turn), (now - int(sent)) / 1e9))

    return note
