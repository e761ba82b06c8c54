"""A real Spark, one for the tests of a process, and real servers for it to read from.

A test that asks for a ``door`` meets the embedded store; one that is marked :data:`on_both_stores` meets Cassandra as well,
behind the read delay: there what was stored is waited for, by :func:`settle`, which :func:`append` and :func:`fill` do.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Iterator
from decimal import Decimal

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

import qdo.pipeline
from qdo.client import Appended, Client, NewMessage
from qdo.pipeline.jobs.session import lean_home
from tests.support import on_cassandra, servers
from tests.support.client import new_name
from tests.support.servers import APPLICATIONS, Door, eventually
from tests.support.services.fixtures import Keyspaces, Reached

APPLICATION = "queuey"
KEY = APPLICATIONS[APPLICATION][0]
MASTER = "local[2,4]"
SHOWN_SECONDS = 90
"""A deadline: a message is shown after the read delay, unless the machine is slow."""
BEHIND = "write_budget_ms = 500\nclock_error_ms = 200\nread_delay_ms = 900\ncache_ms = 100\n"
"""Lines of ``[cassandra]``: every promise as with the usual delay of two seconds, and less to wait for."""

# PySpark's loggers give each handler a JSON format, pytest's handler for all later tests among them.
del PySparkLogger.addHandler

on_both_stores = pytest.mark.parametrize("door", ["embedded", "cassandra"], indirect=True)
"""For what may differ with the store: how it counts and cuts spans, what expires, how far readers stay behind the clock."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two cores, and a task that fails is tried again: plain ``local[2]`` never does that."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    folder = tmp_path_factory.mktemp("spark")
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
    yield session
    session.stop()


@pytest.fixture(scope="session")
def embedded_door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """The shipped server over the embedded store; it makes tokens."""
    settings = f"[tokens]\nkeys = {secrets.token_hex(32)}\n"
    with servers.shipped(tmp_path_factory.mktemp("shipped"), settings=settings, name="pipeline") as door:
        yield door


@pytest.fixture(scope="session")
def cassandra_door(
    tmp_path_factory: pytest.TempPathFactory, cassandra_node: Reached, keyspaces: Keyspaces
) -> Iterator[Door]:
    """The shipped server over Cassandra, whose readers stay behind the clock."""
    with keyspaces() as name:
        on_cassandra.init(cassandra_node, name)
        settings = on_cassandra.settings(cassandra_node, name, BEHIND)
        with servers.shipped(tmp_path_factory.mktemp("cassandra"), settings=settings, name="pipeline") as door:
            yield door


@pytest.fixture
def door(request: pytest.FixtureRequest) -> Door:
    """A server over the store that the test names, else the embedded one."""
    found = request.getfixturevalue(f"{getattr(request, 'param', 'embedded')}_door")
    assert isinstance(found, Door)
    return found


@pytest.fixture
def client(door: Door) -> Iterator[Client]:
    with Client(door.url, APPLICATION, KEY) as client:
        yield client


def append(client: Client, queue: str, *messages: NewMessage | bytes | str) -> list[Appended]:
    """Store messages, and come back when readers see them."""
    stored = client.append_batch(queue, messages)
    settle(client, queue)
    return stored


def settle(client: Client, queue: str) -> None:
    """Come back when readers see all that is stored by now, however far behind the clock the server keeps them."""
    # Of many messages at once ids are ahead of the clock, by a tick each.
    now = Decimal(time.time()) + Decimal("0.02")
    eventually(lambda: Decimal(client.survey(queue).watermark) >= now, seconds=SHOWN_SECONDS)


def fill(client: Client, *, partitions: int = 2, messages: int = 10, size: int = 0) -> str:
    """A new queue with so many messages in each partition, of bodies ``<partition>-<number>``, filled up to a size."""
    queue = new_name()
    client.create_queue(queue, partitions=partitions)
    for partition in range(1, partitions + 1):
        bodies = [f"{partition}-{number}".ljust(size) for number in range(messages)]
        for first in range(0, messages, 500):
            client.append_batch(queue, [NewMessage(body, partition=partition) for body in bodies[first : first + 500]])
    settle(client, queue)
    return queue


def counted(door: Door, name: str, **labels: str) -> float:
    """A server's metric, summed over all labels but these."""
    text = requests.get(f"{door.url}/metrics", timeout=60).text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return sum(each.value for each in samples if each.name == name and labels.items() <= each.labels.items())
