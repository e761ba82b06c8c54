"""How far behind a query is, seen by a listener of a real query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from qdo.client import Client, NewMessage
from qdo.pipeline.progress import LagListener, QueryLag
from tests.support.pipeline import APPLICATION, KEY, fill
from tests.support.servers import RunningServer, eventually


def test_a_listener_tells_how_far_behind_a_query_is(
    spark: SparkSession, running: RunningServer, client: Client, tmp_path: Path
) -> None:
    queue = fill(client, partitions=2, messages=40)
    told: list[QueryLag] = []
    given: dict[str, Any] = {"url": running.url, "application": APPLICATION, "token": KEY}
    listener = LagListener(say=told.append, every_seconds=0, **given)
    spark.streams.addListener(listener)
    try:
        frame = (
            spark.readStream.format("queuey")
            .options(subscribe=queue, startingOffsets="earliest", maxOffsetsPerTrigger="30", **given)
            .load()
        )
        writer = frame.writeStream.format("noop").queryName("slow").option("checkpointLocation", str(tmp_path))
        query = writer.trigger(processingTime="200 milliseconds").start()
        try:
            eventually(lambda: told and told[-1].max_offsets_behind_latest == 0, seconds=90)
            families = {family.name: family for family in text_string_to_metric_families(listener.metrics())}
            client.append_batch(queue, [NewMessage("x", partition=1)] * 5)
        finally:
            query.stop()
    finally:
        spark.streams.removeListener(listener)

    first = told[0]
    assert (first.query, first.batch) == ("slow", 0)
    assert (first.avg_offsets_behind_latest, first.max_offsets_behind_latest) == (25, 25)
    assert [lag.max_offsets_behind_latest for lag in told[:3]] == [25, 10, 0]
    (sample,) = families["qdo_pipeline_max_offsets_behind_latest"].samples
    assert (sample.labels, sample.value) == ({"query": "slow"}, 0)
