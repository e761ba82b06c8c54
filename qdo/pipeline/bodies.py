"""Bodies that are JSON, as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["json_bodies"]


def json_bodies(frame: DataFrame, schema: str, *, data: str = "data", error: str = "error") -> DataFrame:
    """Decode bodies by a schema, and say which bodies do not fit it.

    A member that is not in the schema is left out. A missing member is null.

    :param frame: with a column ``body``, binary or string.
    :param schema: of the JSON objects, in Spark's syntax: ``sku string, price double``.
    :param data: name of the new column with the decoded struct; null where there is an error.
    :param error: name of the new column with the body as text, if it is no JSON object of this schema; otherwise null.
    """
    from pyspark.sql.functions import col, from_json, when

    corrupt = "_not_of_the_schema"
    text = col("body").cast("string")
    found = from_json(text, f"{schema}, {corrupt} string", {"columnNameOfCorruptRecord": corrupt, "mode": "PERMISSIVE"})
    decoded = frame.withColumn(data, found).withColumn(error, col(f"{data}.{corrupt}"))
    return decoded.withColumn(data, when(col(error).isNull(), col(data).dropFields(corrupt)))
