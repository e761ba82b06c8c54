"""JSON bodies as columns."""

from __future__ import annotations

from pyspark.sql import SparkSession

from qdo.pipeline.bodies import json_bodies


def test_bodies_become_columns_and_what_does_not_fit_is_told(spark: SparkSession) -> None:
    bodies = [b'{"sku": "a", "price": 1.5, "more": 1}', b'{"sku": "b"}', b"no json", b'{"price": "dear"}']
    frame = spark.createDataFrame([(bytearray(body),) for body in bodies], "body binary")

    rows = json_bodies(frame, "sku string, price double").collect()

    assert [row.data and (row.data.sku, row.data.price) for row in rows] == [("a", 1.5), ("b", None), None, None]
    assert [row.error for row in rows] == [None, None, "no json", '{"price": "dear"}']
