"""The delivery report on Spark, beside a plain sort of the receipts that it judges."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import perf_counter

from pyspark.sql import DataFrame, SparkSession

from qdo.pipeline.jobs.report import report
from qdo.pipeline.jobs.session import session
from tests.bench.measure import BenchFailed, alternate, ratios
from tests.bench.plan import Plan
from tests.bench.spark.plan import CORES
from tests.bench.spark.processes import below
from tests.bench.table import Row, number

QUEUES = 1000
MOST_ROUNDS = 3
_SENT = (
    "concat('queue-', id % {queues}) queue",
    "id div {queues} sequence",
    "crc32(cast(id as string)) checksum",
    "timestamp_micros(1795273096000000 + id * 20) sent",
    "timestamp_micros(1795273096000000 + id * 20 + 1500) acknowledged",
)
_RECEIVED = (
    *_SENT[:2],
    # One of 10,000 is corrupt, one of 1,000 missing, one of 100 comes twice, up to 20 ms late.
    "crc32(cast(if(id % 10000 = 5, -1, id) as string)) checksum",
    "timestamp_micros(1795273096000000 + id * 20 + 2000 + cast(rand(7) * 20000 as bigint)) received",
)


def measure(plan: Plan) -> Iterator[Row]:
    """Every part of the report is worked out; the sort ends in Spark's ``noop``."""
    folder = plan.fresh("report")
    conf = {"spark.local.dir": str(folder / "spark")}
    spark = session("bench report", f"local[{CORES}]", driver_memory="4g", conf=conf)
    try:
        yield _row(plan, spark, folder, QUEUES, goal="ratio <= 3, peak <= 24 GiB")
        yield _row(plan, spark, folder, 1, goal="")
    finally:
        spark.stop()


def _row(plan: Plan, spark: SparkSession, folder: Path, queues: int, goal: str) -> Row:
    sent, received = _logs(spark, str(folder / str(queues)), plan.deliveries, queues)

    def judged() -> float:
        began = perf_counter()
        found = report(sent, received)
        took = perf_counter() - began
        found.close()
        told = [found.total[name] for name in ("sent", "missing", "corrupt", "duplicates")]
        if told != [plan.deliveries, *(-(-plan.deliveries // share) for share in (1000, 10_000, 100))]:
            raise BenchFailed(f"the report says {found.total}")
        return took

    sorts, reports = alternate(lambda: _sorted(received), judged, min(plan.rounds, MOST_ROUNDS))
    peak = _peak_gib()
    return Row(
        f"delivery report, {plan.deliveries:,} messages of {queues:,} queue{'s' * (queues > 1)}",
        f"a sort of the receipts, {number(min(sorts))} s",
        f"{number(min(reports))} s, at most {peak:.1f} GiB",
        ratios(reports, sorts),
        goal=goal,
        figures={"peak": peak},
    )


def _logs(spark: SparkSession, folder: str, messages: int, queues: int) -> tuple[DataFrame, DataFrame]:
    """Of senders and receivers, as Parquet."""
    sent = spark.range(messages)
    got = sent.where("id % 1000 != 3")
    got = got.unionAll(sent.where("id % 100 = 7"))
    for name, ids, columns in (("sent", sent, _SENT), ("received", got, _RECEIVED)):
        ids.selectExpr(*(column.format(queues=queues) for column in columns)).write.parquet(f"{folder}/{name}")
    return spark.read.parquet(f"{folder}/sent"), spark.read.parquet(f"{folder}/received")


def _sorted(received: DataFrame) -> float:
    began = perf_counter()
    received.sort("queue", "received").write.format("noop").mode("overwrite").save()
    return perf_counter() - began


def _peak_gib() -> float:
    """The most that each of Spark's processes has had, of those that live, in all."""
    peak = 0
    for pid in below(os.getpid()):
        with suppress(FileNotFoundError, ProcessLookupError):
            found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
            peak += int(found[1]) if found else 0
    return peak / 2**20
