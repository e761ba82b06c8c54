"""Queuey as a data source of Spark: ``qdo.pipeline.install(spark)``, then ``spark.read.format("queuey")``.

It speaks HTTP alone: no JAR, no way around the server, the permissions of any other client. A helper needs no
``install`` where the package itself is installed: Spark finds :mod:`pyspark_queuey`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["install"]


def install(spark: SparkSession) -> SparkSession:
    """Make the format ``queuey`` known to a session."""
    return spark
