"""A real Spark, one for the tests of a process, and a real server for it to read from."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import qdo.pipeline
from qdo.client import Client, NewMessage
from tests.functional import servers
from tests.functional.client import new_name
from tests.functional.servers import APPLICATIONS, Door

APPLICATION = "queuey"
KEY = APPLICATIONS[APPLICATION][0]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two cores, and a task that fails is tried again: plain ``local[2]`` never does that."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    folder = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2,4]")
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    qdo.pipeline.install(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """The shipped server over the embedded store."""
    with servers.shipped(tmp_path_factory.mktemp("shipped"), name="pipeline") as door:
        yield door


@pytest.fixture
def client(door: Door) -> Iterator[Client]:
    with Client(door.url, APPLICATION, KEY) as client:
        yield client


def fill(client: Client, *, partitions: int = 2, messages: int = 10, size: int = 0) -> str:
    """A new queue with so many messages in each partition, of bodies ``<partition>-<number>``, filled up to a size."""
    queue = new_name()
    client.create_queue(queue, partitions=partitions)
    for partition in range(1, partitions + 1):
        bodies = [f"{partition}-{number}".ljust(size) for number in range(messages)]
        for first in range(0, messages, 500):
            client.append_batch(queue, [NewMessage(body, partition=partition) for body in bodies[first : first + 500]])
    return queue
