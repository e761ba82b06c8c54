"""Where the results of a job go: Parquet in a new folder."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from qdo.pipeline.jobs.folder import Folder
from qdo.pipeline.jobs.pages import utc
from queuey.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["demand_new", "printable", "write_results"]


def demand_new(spark: SparkSession, folder: str) -> None:
    """Check the folder before the work begins, not after it.

    :raises ConfigurationError: something exists there, or none of Spark's file systems knows the path.
    """
    if Folder(spark, folder).is_there():
        raise ConfigurationError(f"{folder} is there already: name a new folder for the results")


def write_results(folder: str, tables: Mapping[str, DataFrame]) -> None:
    """Write each table as Parquet, in a folder of its name."""
    for name, table in tables.items():
        table.write.parquet(f"{folder.rstrip('/')}/{name}")


def printable(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as commands print it: times as RFC 3339, shares with six digits."""
    return {name: _printable(value) for name, value in row.items()}


def _printable(value: Any) -> Any:
    if isinstance(value, datetime):
        return utc(value).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return round(value, 6) if isinstance(value, float) else value
