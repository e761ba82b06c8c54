"""Two streaming queries in a process of their own, to be killed: one into Parquet, one into another queue.

``python -m tests.support.spark_query URL FOLDER [drain]`` prints a line for each batch; ``drain`` reads what is there and ends.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import qdo.pipeline

SOURCE, TARGET = "source", "target"


def main(url: str, folder: str, mode: str = "") -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": f"{folder}/local",
        "spark.log.level": "ERROR",
        "spark.python.unix.domain.socket.enabled": "true",
    }
    builder: SparkSession.Builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = qdo.pipeline.install(builder.getOrCreate())
    queries = [start(spark, url, Path(folder), sink, drain=mode == "drain") for sink in ("parquet", "queuey")]
    for query in queries:
        if mode == "drain":
            query.awaitTermination()
    seen: dict[str, int] = {}
    while mode != "drain":
        for query in queries:
            query.awaitTermination(1)  # raises what ended it
            progress = query.lastProgress
            if progress is not None and seen.get(query.id) != progress["batchId"]:
                seen[query.id] = progress["batchId"]
                print("batch", progress["batchId"], flush=True)


def start(spark: SparkSession, url: str, folder: Path, sink: str, *, drain: bool) -> StreamingQuery:
    given: dict[str, Any] = {"url": url, "application": "demo", "token": os.environ["QUEUEY_KEY"]}
    frame = spark.readStream.format("queuey").options(subscribe=SOURCE, startingOffsets="earliest", **given).load()
    trigger: dict[str, Any] = {"availableNow": True} if drain else {"processingTime": "200 milliseconds"}
    if sink == "parquet":
        writer = frame.writeStream.format("parquet").option("path", str(folder / "out"))
    else:
        rows = frame.selectExpr("message_id as key", "body")
        writer = rows.writeStream.format("queuey").options(queue=TARGET, batchSize="50", **given)
    return writer.option("checkpointLocation", str(folder / f"checkpoint-{sink}")).trigger(**trigger).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
