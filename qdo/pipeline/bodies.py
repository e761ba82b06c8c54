"""Bodies that are JSON, as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["json_bodies"]


def json_bodies(frame: DataFrame, schema: str, *, data: str = "data", error: str = "error") -> DataFrame:
    """The frame with its bodies decoded by a schema, and what is wrong with those that do not fit it.

    A member that is not in the schema is left out, one that is missing is null.

    :param frame: with a column ``body``, binary or string.
    :param schema: of the JSON objects, in Spark's words: ``sku string, price double``.
    :param data: the new column with what was decoded, a struct; null where there is an error.
    :param error: the new column with the body as text where it is no JSON object of this schema, null elsewhere.
    """
    from pyspark.sql.functions import col, from_json, when

    corrupt = "_not_of_the_schema"
    text = col("body").cast("string")
    found = from_json(text, f"{schema}, {corrupt} string", {"columnNameOfCorruptRecord": corrupt, "mode": "PERMISSIVE"})
    decoded = frame.withColumn(data, found).withColumn(error, col(f"{data}.{corrupt}"))
    return decoded.withColumn(data, when(col(error).isNull(), col(data).dropFields(corrupt)))
