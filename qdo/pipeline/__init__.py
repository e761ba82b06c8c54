"""Queuey as a data source of Spark: ``qdo.pipeline.install(spark)``, then ``spark.read.format("queuey")``.

It speaks HTTP alone: it needs no JAR, goes through the server, and has the permissions of any other client. Where the
package itself is installed, Spark finds the format without ``install``, by :mod:`pyspark_queuey`; then no filters are
pushed down.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["install"]


def install(spark: SparkSession) -> SparkSession:
    """Make the format ``queuey`` known to a session. The server applies filters where it can.

    :returns: the session.
    """
    from qdo.pipeline.source import QueueySource

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(QueueySource.knowing(pushes_filters=True, cores=cores_of(spark)))
    return spark


def cores_of(spark: SparkSession) -> int | None:
    """How many tasks run at once; None on a cluster, whose executors come and go."""
    try:
        context = spark.sparkContext
    except Exception:  # noqa: BLE001 - a client of Spark Connect has none, and each version says so in its own way
        return None
    return int(context.defaultParallelism) if is_one_process(context.master or "") else None


def is_one_process(master: str) -> bool:
    """Whether Spark does all of its work in one process of this machine."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None
