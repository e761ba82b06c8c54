"""Where a job's results go: Parquet in a folder that was not there before."""

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
    """Before the work, not behind it.

    :raises ConfigurationError: something is there, or no file system of Spark's knows the name.
    """
    if Folder(spark, folder).is_there():
        raise ConfigurationError(f"{folder} is there already: name a new folder for the results")


def write_results(folder: str, tables: Mapping[str, DataFrame]) -> None:
    """Each as Parquet, in a folder of its name."""
    for name, table in tables.items():
        table.write.parquet(f"{folder.rstrip('/')}/{name}")


def printable(row: Mapping[str, Any]) -> dict[str, Any]:
    """As commands print it: times as RFC 3339, shares with six digits."""
    return {name: _printable(value) for name, value in row.items()}


def _printable(value: Any) -> Any:
    if isinstance(value, datetime):
        return utc(value).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return round(value, 6) if isinstance(value, float) else value
