"""The pipeline on Spark, against Spark's own Kafka source and sink, and against Parquet, in the same run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyspark

from tests.bench.spark import batch, memory, streams
from tests.bench.spark.plan import FULL, QUICK, SparkPlan
from tests.bench.spark.stage import Stage, staged
from tests.bench.table import Row
from tests.support.services import kafka

__all__ = ["FULL", "QUICK", "TOPICS", "SparkPlan", "Stage", "staged", "versions"]

TOPICS: dict[str, Callable[[Stage], Iterator[Row]]] = {
    "read": batch.read,
    "sealed": batch.sealed,
    "parquet": batch.parquet,
    "write": batch.write,
    "available": streams.available_now,
    "trigger": streams.small_batches,
    "latency": streams.latency,
    "memory": memory.measure,
}


def versions() -> str:
    """What the figures depend on beside the machine."""
    return f"PySpark {pyspark.__version__}, PyArrow {pa.__version__}, Kafka {kafka.version()}"
