"""A Spark in this process, which ends with the tests that use it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from py4j.clientserver import FinalizerWorker  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.sql import SparkSession

import qdo.pipeline
from qdo.pipeline.jobs.session import lean_home

MASTER = "local[2,4]"
"""Two cores, and a task that fails is tried again: plain ``local[2]`` never does that."""
_END_SECONDS = 60


@contextmanager
def local_spark(folder: Path) -> Iterator[SparkSession]:
    """A session with its files in a folder. No other one may be in this process; after it there may."""
    (folder / "events").mkdir()
    builder = (
        SparkSession.builder.master(MASTER)
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", (folder / "events").as_uri())
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.log.level", "ERROR")
    )
    with lean_home(MASTER):
        session = builder.getOrCreate()
    qdo.pipeline.install(session)
    try:
        yield session
    finally:
        _end(session)


def _end(session: SparkSession) -> None:
    """End the virtual machine too, and the thread that tells it of each object that Python has forgotten.

    With the machine gone, that thread would connect once for each of hundreds of objects, in the middle of later tests.
    """
    gateway = SparkContext._gateway
    assert gateway is not None
    session.stop()
    gateway.shutdown()
    for thread in threading.enumerate():
        if isinstance(thread, FinalizerWorker):
            thread.join(_END_SECONDS)
    gateway.proc.stdin.close()
    gateway.proc.wait(_END_SECONDS)
    SparkContext._gateway = SparkContext._jvm = None
