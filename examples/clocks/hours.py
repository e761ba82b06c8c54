"""The streams: changes by hour, and an archive of all events as Parquet, from one queue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import qdo.pipeline
from qdo.pipeline.bodies import json_bodies
from qdo.pipeline.jobs.session import session

EVENT = "zone string, at timestamp, offset int, summer boolean, letters string"
QUEUE = "clocks"


def run(folder: Path, *, events: int) -> list[tuple[str, int]]:
    """Stream until all events are in the archive.

    :param folder: gets ``archive``, ``hours`` and the checkpoints of both streams.
    :param events: how many these are.
    :returns: the busiest hours of history, UTC, with the number of zones whose clocks were changed.
    """
    spark = qdo.pipeline.install(session("clocks"))
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    (folder / "archive").mkdir(parents=True, exist_ok=True)

    def keep_hours(frame: Any, _number: int) -> None:
        frame.write.mode("overwrite").parquet(str(folder / "hours"))

    source = spark.readStream.format("queuey").options(subscribe=QUEUE, startingOffsets="earliest").load()
    archive = (
        source.writeStream.format("parquet")
        .option("path", str(folder / "archive"))
        .option("checkpointLocation", str(folder / "checkpoints" / "archive"))
        .trigger(processingTime="1 second")
        .start()
    )
    hourly = (
        json_bodies(source, EVENT)
        .where("error is null")
        .groupBy(_expr("date_trunc('hour', data.at) as hour"))
        .count()
        .writeStream.outputMode("complete")
        .foreachBatch(keep_hours)
        .option("checkpointLocation", str(folder / "checkpoints" / "hours"))
        .trigger(processingTime="1 second")
        .start()
    )
    archived = spark.read.schema(source.schema)
    try:
        while archived.parquet(str(folder / "archive")).count() < events:
            archive.awaitTermination(1)
        hourly.processAllAvailable()
    finally:
        archive.stop()
        hourly.stop()
    top = spark.read.parquet(str(folder / "hours")).orderBy("count", "hour", ascending=[False, True]).limit(5).collect()
    spark.stop()
    return [(row["hour"].isoformat(sep=" "), row["count"]) for row in top]


def _expr(text: str) -> Any:
    from pyspark.sql.functions import expr

    return expr(text)
