"""Reads and writes of everything there is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from uuid import uuid4

from pyspark.sql import DataFrame, DataFrameWriter

from qdo.pipeline.jobs.archive import Archive, archive
from qdo.pipeline.jobs.staging import StagingSource
from tests.bench.measure import BenchFailed, alternate, fetch_memory, ratios
from tests.bench.plan import BODY_BYTES
from tests.bench.spark.plan import CORES
from tests.bench.spark.stage import QUEUE, SEALED, Stage, check_rows, seconds, thrown_away
from tests.bench.table import Row, number

NARROW = "message_id string, timestamp timestamp"


def read(stage: Stage) -> Iterator[Row]:
    """All columns, against Kafka; as JSON; and of two columns only."""
    stage.unseal()
    ours, kafka = stage.from_queuey(), stage.from_kafka()
    check_rows("queuey", ours, "body", stage.plan.messages)
    check_rows("Kafka", kafka, "value", stage.plan.messages)
    yield _compared(stage, "read, all columns, fresh rows", "by Spark's Kafka source", kafka, ours, goal="ratio >= 1.2")
    yield Row(
        "processor time of a row read",
        stage.spent(lambda: thrown_away(kafka)),
        stage.spent(lambda: thrown_away(ours)),
    )
    narrow = stage.from_queuey(schema=NARROW)
    yield _compared(stage, "read of message_id and timestamp only", "of all columns", ours, narrow, goal="ratio >= 2")
    yield _compared(stage, "read over JSON", "over Arrow", ours, stage.from_queuey(transport="json"))


def parquet(stage: Stage) -> Iterator[Row]:
    """What an archive's tasks do, against the same read without writing; and the job that they are a part of."""
    stage.unseal()
    ours, than = stage.from_queuey(), "read without writing"
    folders = iter([str(stage.plan.fresh("archive") / uuid4().hex) for _ in range(2 * stage.plan.rounds)])
    read_alone = partial(stage.rate, ours)
    staged, whole = (lambda: _staged(stage, next(folders))), (lambda: _archived(stage, next(folders)))
    yield _rates(stage, "archive to Parquet (snappy)", than, read_alone, staged, goal="ratio >= 0.5")
    yield _rates(stage, "`qdo pipeline archive`, whole: begun, written, read back, moved", than, read_alone, whole)


def sealed(stage: Stage) -> Iterator[Row]:
    """Messages that came a few at a time: read for the first time, and once they are in segments."""
    first = stage.rate(stage.from_queuey(SEALED))
    yield Row("read of messages that came ten at a time, the first time", "", f"{number(first)} rows/s")
    stage.seal()
    ours = stage.from_queuey(SEALED)
    check_rows("queuey, sealed", ours, "body", stage.plan.messages)
    archive = str(stage.plan.fresh("archive") / "rows.parquet")
    ours.write.option("compression", "snappy").parquet(archive)
    written, what = stage.spark.read.parquet(archive), "read, all columns, sealed"
    yield Row("processor time of a row read, sealed", "", stage.spent(lambda: thrown_away(ours)))
    yield _compared(stage, what, "of the same rows from Parquet (snappy)", written, ours, goal="ratio >= 0.7")
    yield _compared(stage, what, "by Spark's Kafka source", stage.from_kafka(), ours, goal="ratio >= 3.2")


def _staged(stage: Stage, folder: str) -> float:
    source = StagingSource.knowing(folder=folder, cores=CORES)
    stage.spark.dataSource.register(source)
    reader = stage.spark.read.format(source.name()).options(**stage.of_queuey(subscribe=QUEUE))
    rate = stage.plan.messages / seconds(reader.load().collect)
    check_rows("what was staged", stage.spark.read.parquet(folder), "body", stage.plan.messages)
    return rate


def _archived(stage: Stage, folder: str) -> float:
    given = stage.of_queuey(subscribe=QUEUE)
    rate = stage.plan.messages / seconds(lambda: archive(stage.spark, folder, options=given))
    check_rows("the archive", Archive(stage.spark, folder).read(), "body", stage.plan.messages)
    return rate


def write(stage: Stage) -> Iterator[Row]:
    """Stored and acknowledged, against Kafka's sink, which waits for the node: once not for its disk, as shipped, once for that too."""
    yield _written(stage, "batch write", "acks=all", first="ratio >= 0.6", goal="ratio >= 1.0")
    yield _written(
        stage,
        "batch write, on disk with both",
        "acks=all, to a topic that flushes, batches as the producer ships them",
        flushes=True,
    )
    yield Row("processor time of a row written", _spent(stage, _kafka_sink(stage)), _spent(stage, _queuey_sink(stage)))


def _written(stage: Stage, what: str, how: str, *, flushes: bool = False, first: str = "", goal: str = "") -> Row:
    below, above = alternate(lambda: _to_kafka(stage, flushes=flushes), lambda: _to_queuey(stage), stage.plan.rounds)
    than = f"{number(median(below))} rows/s by Spark's Kafka sink, {how}"
    return Row(what, than, f"{number(median(above))} rows/s, on disk", ratios(above, below), first=first, goal=goal)


def _to_kafka(stage: Stage, *, flushes: bool) -> float:
    topic = stage.fresh_topic(flushes=flushes)
    return _stored(stage, _kafka_sink(stage, topic).save, lambda: stage.from_kafka(topic))


def _kafka_sink(stage: Stage, topic: str = "") -> DataFrameWriter:
    events = stage.spark.read.parquet(str(stage.events)).selectExpr("body as value", "slot as partition")
    options = stage.of_kafka(**{"topic": topic or stage.fresh_topic(), "kafka.acks": "all"})
    return events.write.format("kafka").options(**options)


def _to_queuey(stage: Stage) -> float:
    queue = stage.fresh_queue()
    return _stored(stage, _queuey_sink(stage, queue).save, lambda: stage.from_queuey(queue))


def _queuey_sink(stage: Stage, queue: str = "") -> DataFrameWriter:
    events = stage.spark.read.parquet(str(stage.events)).selectExpr("body", "slot + 1 as partition")
    options = stage.of_queuey(queue=queue or stage.fresh_queue())
    return events.write.format("queuey").mode("append").options(**options)


def _spent(stage: Stage, sink: DataFrameWriter) -> str:
    _calm(stage)
    return stage.spent(sink.save)


def _calm(stage: Stage) -> None:
    """What was written before is on disk, and memory is there for what is written now, on its ways to the disk."""
    os.sync()
    fetch_memory(8 * stage.plan.messages * BODY_BYTES)


def _stored(stage: Stage, save: Callable[[], object], stored: Callable[[], DataFrame]) -> float:
    _calm(stage)
    rate = stage.plan.messages / seconds(save)
    stage.server.settle()
    if (count := stored().count()) != stage.plan.messages:
        raise BenchFailed(f"{count} of {stage.plan.messages} rows are stored")
    return rate


def _compared(stage: Stage, what: str, than: str, baseline: DataFrame, subject: DataFrame, *, goal: str = "") -> Row:
    return _rates(stage, what, than, partial(stage.rate, baseline), partial(stage.rate, subject), goal=goal)


def _rates(
    stage: Stage, what: str, than: str, baseline: Callable[[], float], subject: Callable[[], float], *, goal: str = ""
) -> Row:
    below, above = alternate(baseline, subject, stage.plan.rounds)
    return Row(
        what,
        f"{number(median(below))} rows/s {than}",
        f"{number(median(above))} rows/s",
        ratios(above, below),
        goal=goal,
    )
