"""Batch reads by a real Spark of a real server."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from qdo.client import Client
from tests.functional.servers import Door
from tests.pipeline.conftest import APPLICATION, KEY, fill


def read(spark: SparkSession, door: Door, **options: Any) -> DataFrame:
    given = {"url": door.url, "application": APPLICATION, "token": KEY} | options
    return spark.read.format("queuey").options(**given).load()


def test_every_column_of_every_message_is_as_by_rest(spark: SparkSession, door: Door, client: Client) -> None:
    queue = fill(client, partitions=3, messages=50)

    rows = read(spark, door, subscribe=queue).collect()

    assert len(rows) == 150
    print(rows[0])
