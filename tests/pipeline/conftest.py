"""A real Spark, one for these tests in a process, and real servers for it to read from.

A test that asks for a ``running`` meets the embedded store; one that is marked ``on_both_stores`` meets Cassandra as well,
behind the read delay: there ``settle`` of :mod:`tests.support.pipeline` waits for what was stored, also in ``append`` and ``fill``.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator

import pytest
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from qdo.client import Client
from tests.support import on_cassandra, servers
from tests.support.local_spark import local_spark
from tests.support.pipeline import APPLICATION, KEY
from tests.support.servers import RunningServer
from tests.support.services.fixtures import Keyspaces, Reached

BEHIND = "write_budget_ms = 500\nclock_error_ms = 200\nread_delay_ms = 900\ncache_ms = 100\n"
"""Lines of ``[cassandra]``: every promise as with the usual delay of two seconds, and less to wait for."""

# PySpark's loggers give each handler a JSON format, pytest's handler for all later tests among them.
del PySparkLogger.addHandler


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """It ends with the last of these tests that a process runs."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with local_spark(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="session")
def embedded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """The shipped server over the embedded store; it makes tokens, and checks no signatures of SQS clients."""
    settings = f"[tokens]\nkeys = {secrets.token_hex(32)}\n\n[sqs]\nauth = open\n"
    with servers.shipped(tmp_path_factory.mktemp("shipped"), settings=settings, name="pipeline") as running:
        yield running


@pytest.fixture(scope="session")
def cassandra_server(
    tmp_path_factory: pytest.TempPathFactory, cassandra_node: Reached, keyspaces: Keyspaces
) -> Iterator[RunningServer]:
    """The shipped server over Cassandra, whose readers stay behind the clock."""
    with keyspaces() as name:
        on_cassandra.init(cassandra_node, name)
        settings = on_cassandra.settings(cassandra_node, name, BEHIND)
        with servers.shipped(tmp_path_factory.mktemp("cassandra"), settings=settings, name="pipeline") as running:
            yield running


@pytest.fixture
def running(request: pytest.FixtureRequest) -> RunningServer:
    """A server over the store that the test names, else the embedded one."""
    found = request.getfixturevalue(f"{getattr(request, 'param', 'embedded')}_server")
    assert isinstance(found, RunningServer)
    return found


@pytest.fixture
def client(running: RunningServer) -> Iterator[Client]:
    with Client(running.url, APPLICATION, KEY) as client:
        yield client
