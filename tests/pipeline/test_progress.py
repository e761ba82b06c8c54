"""How far behind a query is, seen by a listener of a real query."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from qdo.client import Client, NewMessage
from qdo.pipeline.checkpoint import QueueOffset, to_json
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
            assert [*listener.lags] == ["slow"]
        finally:
            query.stop()
        eventually(lambda: not listener.lags, seconds=90)  # a query that has ended, and has a name
        assert "slow" not in listener.metrics()
    finally:
        spark.streams.removeListener(listener)

    first = told[0]
    assert (first.query, first.batch) == ("slow", 0)
    assert (first.avg_offsets_behind_latest, first.max_offsets_behind_latest) == (25, 25)
    assert [lag.max_offsets_behind_latest for lag in told[:3]] == [25, 10, 0]
    (sample,) = families["qdo_pipeline_max_offsets_behind_latest"].samples
    assert (sample.labels, sample.value) == ({"query": "slow"}, 0)


def test_a_queue_that_is_gone_hides_no_lag_of_the_others(running: RunningServer, client: Client) -> None:
    there, gone, anew = (fill(client, partitions=1, messages=5) for _ in range(3))
    offsets = {queue: QueueOffset(client.survey(queue).incarnation, {}) for queue in (there, gone, anew)}
    for queue in (gone, anew):
        client.delete_queue(queue)
    client.create_queue(anew, partitions=1)
    told: list[QueryLag] = []
    listener = LagListener(
        say=told.append,
        every_seconds=0.1,
        clock=lambda: 4 / 7,  # as floats, from 0.1 before it to then is less than 0.1
        url=running.url,
        application=APPLICATION,
        token=KEY,
    )
    sources = [SimpleNamespace(endOffset=json.dumps(to_json({queue: offset}))) for queue, offset in offsets.items()]
    progress = SimpleNamespace(id="1", name="joined", batchId=7, sources=sources)

    listener.onQueryProgress(SimpleNamespace(progress=progress))  # type: ignore[arg-type]

    assert [(lag.query, lag.batch, lag.max_offsets_behind_latest) for lag in told] == [("joined", 7, 5)]
