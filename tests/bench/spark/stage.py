"""What the topics of the pipeline share: a server and a Kafka with the same messages, and one Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

import apsw
from pyspark.sql import DataFrame, SparkSession

from qdo.pipeline.jobs.session import session as jobs_session
from queuey.model import AppendRequest, Draft
from tests.bench.measure import BenchFailed
from tests.bench.plan import TTL_SECONDS
from tests.bench.servers import APPLICATION, KEY, Server, cpu_seconds, queuey
from tests.bench.spark.plan import BODY_IN_SQL, CORES, PARTITIONS, SparkPlan, body
from tests.bench.spark.processes import cpu_seconds_of, jvm_of
from tests.bench.store import make_queue, open_store, pour
from tests.support.services.kafka import Kafka
from tests.support.services.spark import kafka_jars

QUEUE = "events"
"""Filled as the pipeline's writer fills it: ten thousand messages a request, so they lie in packs from the start."""
SEALED = "sealed"
"""The same messages, appended ten at a time: rows, which are packed, and copied into cached_runs, when they are read."""
ALONE, ALONE_FEW = "alone", "alone-few"
"""The queues of one partition."""
_AT_ONCE, _FEW_AT_ONCE = 10_000, 10
_READS, _MOST = 8, 0.97
"""What is read while the keeper is not done with an earlier read is to be read again; what is left at the end of a partition may fill no segment."""
RAISED = {
    # At the end of a partition the consumer asks for what is not there yet, and Spark's next question to the broker
    # waits behind that one: half a second a task, with the setting as shipped.
    "kafka.fetch.max.wait.ms": "10",
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(4 << 20),
}
"""Settings with which Spark's Kafka source is at its fastest."""

Options = dict[str, str]


@dataclass
class Stage:
    """A source or sink of either kind is an options dictionary away."""

    plan: SparkPlan
    spark: SparkSession
    kafka: Kafka
    folder: Path
    """Of the store."""
    events: Path
    """The messages as Parquet, as they were before anybody stored them."""

    def __post_init__(self) -> None:
        self._numbers = count()
        self._serving = ExitStack()
        self.server = self._serve(segments=False)

    def _serve(self, *, segments: bool) -> Server:
        """A server that knows fresh messages only, or makes segments of what is read more than once."""
        self._serving.close()
        self.has_segments = segments
        variables = {} if segments else {"QUEUEY_STORAGE_SEGMENTS_MB": "0"}
        server = self._serving.enter_context(queuey(self.folder, variables))
        server.settle()
        return server

    def close(self) -> None:
        self._serving.close()

    def fresh_queue(self) -> str:
        """The name of an empty one."""
        name = f"fresh{next(self._numbers)}"
        self.server.create(name, PARTITIONS)
        return name

    def fresh_topic(self, *, flushes: bool = False) -> str:
        """The name of an empty one, of as many partitions."""
        name = f"fresh{next(self._numbers)}"
        self.kafka.create_topic(name, PARTITIONS, flushes=flushes)
        return name

    def of_queuey(self, **options: str) -> Options:
        return {**where(self.server.url), **options}

    def of_kafka(self, **options: str) -> Options:
        return {"kafka.bootstrap.servers": self.kafka.bootstrap_servers, **options}

    def from_queuey(self, queue: str = QUEUE, *, schema: str | None = None, **options: str) -> DataFrame:
        reader = self.spark.read.format("queuey").options(**self.of_queuey(subscribe=queue, **options))
        return (reader if schema is None else reader.schema(schema)).load()

    def from_kafka(self, topic: str = QUEUE, **options: str) -> DataFrame:
        reader = self.spark.read.format("kafka")
        return reader.options(**self.of_kafka(**{"subscribe": topic, **RAISED, **options})).load()

    def stream_from_queuey(self, queue: str = QUEUE, **options: str) -> DataFrame:
        reader = self.spark.readStream.format("queuey")
        return reader.options(**self.of_queuey(subscribe=queue, **options)).load()

    def stream_from_kafka(self, topic: str = QUEUE, **options: str) -> DataFrame:
        reader = self.spark.readStream.format("kafka")
        return reader.options(**self.of_kafka(**{"subscribe": topic, **RAISED, **options})).load()

    def unseal(self) -> None:
        """From here on all messages are as their writer left them, or as the first reader of all."""
        if self.has_segments:
            self.server = self._serve(segments=False)

    def seal(self) -> None:
        """From here on the messages of :data:`SEALED` are in segments: they are read until they are, and what follows is waited for."""
        if not self.has_segments:
            self.server = self._serve(segments=True)
        for _ in range(_READS):
            thrown_away(self.from_queuey(SEALED))
            self.server.settle()
            if (copied := self._copied()) >= _MOST * self.plan.messages:
                return
        raise BenchFailed(f"{copied} of {self.plan.messages} messages are in segments after {_READS} reads")

    def _copied(self) -> int:
        """Messages in segments."""
        with closing(apsw.Connection(str(self.folder / "queuey.db"), flags=apsw.SQLITE_OPEN_READONLY)) as file:
            rows: list[tuple[Any, ...]] = file.execute("select total(messages) from cached_runs").fetchall()
        return int(rows[0][0])

    def rate(self, frame: DataFrame) -> float:
        """Rows a second of a frame with all messages."""
        return self.plan.messages / seconds(lambda: thrown_away(frame))

    def spent(self, work: Callable[[], object]) -> str:
        """Microseconds of processor time that a message costs, by the process that spends them."""
        jvm = jvm_of(self.spark)
        looks: dict[str, Callable[[], float]] = {
            "server": self.server.cpu_seconds,
            "Kafka": lambda: cpu_seconds_of(self.kafka.nodes[0].pid or 0),
            "Python": lambda: cpu_seconds_of(jvm) - cpu_seconds(jvm),
            "JVM": lambda: cpu_seconds(jvm),
        }
        before = {who: look() for who, look in looks.items()}
        work()
        took = {who: 1e6 * (look() - before[who]) / self.plan.messages for who, look in looks.items()}
        return ", ".join(f"{who} {micros:.2f} µs" for who, micros in took.items() if micros >= 0.01)


def where(url: str) -> Options:
    return {"url": url, "application": APPLICATION, "token": KEY}


def thrown_away(frame: DataFrame) -> None:
    """Every column of every row is handed over to Spark."""
    frame.write.format("noop").mode("overwrite").save()


def seconds(work: Callable[[], object]) -> float:
    began = perf_counter()
    work()
    return perf_counter() - began


@contextmanager
def staged(plan: SparkPlan) -> Iterator[Stage]:
    """Everything filled and warm."""
    with ExitStack() as running:
        plan.tell("starting Kafka and Spark")
        kafka = running.enter_context(Kafka(plan.fresh("kafka") / "kafka"))
        spark = running.enter_context(session(plan.fresh("spark"), jars=kafka_jars()))
        folder = plan.fresh("queuey")
        plan.tell(f"storing {plan.messages:,} messages, three times")
        fill(folder, plan)
        found = Stage(plan, spark, kafka, folder, plan.fresh("events") / "events.parquet")
        running.callback(found.close)
        _fill_kafka(found)
        yield found


@contextmanager
def session(folder: Path, **settings: str) -> Iterator[SparkSession]:
    """As the jobs have theirs, on two cores of this machine."""
    places = {"spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.local.dir": str(folder / "local")}
    named = {f"spark.{name}": value for name, value in settings.items()}
    spark = jobs_session("bench", f"local[{CORES}]", conf={**places, **named})
    try:
        yield spark
    finally:
        spark.stop()


def fill(folder: Path, plan: SparkPlan) -> None:
    """The queues of eight partitions, and those of one: with all messages, and with few."""
    with open_store(folder) as store:
        for name, partitions, messages, at_once in (
            (QUEUE, PARTITIONS, plan.messages, _AT_ONCE),
            (SEALED, PARTITIONS, plan.messages, _FEW_AT_ONCE),
            (ALONE, 1, plan.messages, _AT_ONCE),
            (ALONE_FEW, 1, plan.few, _AT_ONCE),
        ):
            queue = make_queue(store, name, partitions)
            starts = range(0, messages, at_once)
            requests = (AppendRequest(queue, _drafts(start, at_once, partitions, messages)) for start in starts)
            pour(store, requests, at_once=4 * _AT_ONCE // at_once)


def _drafts(start: int, at_once: int, partitions: int, messages: int) -> list[Draft]:
    numbers = range(start, min(start + at_once, messages))
    return [Draft(number % partitions + 1, body(number), TTL_SECONDS) for number in numbers]


def _fill_kafka(found: Stage) -> None:
    """By way of Parquet, which is also what the writers are given."""
    numbers = found.spark.range(0, found.plan.messages, numPartitions=PARTITIONS)
    columns = numbers.selectExpr(f"{BODY_IN_SQL} as body", f"cast(id % {PARTITIONS} as int) as slot")
    columns.write.parquet(str(found.events))
    found.kafka.create_topic(QUEUE, PARTITIONS)
    events = found.spark.read.parquet(str(found.events))
    sink = events.selectExpr("body as value", "slot as partition").write.format("kafka")
    sink.options(**found.of_kafka(topic=QUEUE)).save()


def check_rows(what: str, frame: DataFrame, body_column: str, messages: int) -> None:
    """Each message is there, once; also what warms a source up.

    :raises BenchFailed: one is missing, or there twice.
    """
    counted = frame.selectExpr("count(*) as rows", f"count(distinct {body_column}) as bodies").first()
    if counted is None or (counted.rows, counted.bodies) != (messages, messages):
        raise BenchFailed(f"{what}: {counted} instead of {messages} rows")
