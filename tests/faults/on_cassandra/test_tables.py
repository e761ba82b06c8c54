"""G1: tables that several make at once, and where a node is away."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from uuid import uuid4

import pytest

from queuey.clock import ManualClock
from queuey.errors import StorageUnavailable
from queuey.ids import IdGenerator
from queuey.storage.cassandra.cluster import Options
from queuey.storage.cassandra.schema import make_tables
from queuey.storage.cassandra.session import CassandraSession
from queuey.storage.contract.common import QueueLog
from tests.support.cassandra_stores import CassandraStores
from tests.support.services.cassandra import Cassandra
from tests.support.services.fixtures import TIMEOUT_SECONDS


@pytest.fixture
def options(cassandra_cluster: Cassandra) -> Options:
    return Options(
        hosts=cassandra_cluster.contact_points,
        port=cassandra_cluster.port,
        keyspace=f"t_{uuid4().hex[:12]}",
        timeout_seconds=TIMEOUT_SECONDS,
    )


def test_a_server_starts_beside_a_node_that_was_away_when_the_tables_were_made(
    cassandra_cluster: Cassandra, options: Options
) -> None:
    """The node learns of them some seconds later than others learn that it is back."""
    away = cassandra_cluster.nodes[-1]
    away.kill()
    make_tables(options, "3")
    away.start()
    away.wait_until_up()

    make_tables(options, "3")
    CassandraSession(replace(options, hosts=options.hosts[-1:])).close()


def test_tables_that_several_make_at_once_are_whole_after_another_init(options: Options) -> None:
    """Two nodes may make one table, each with an id of its own, and a copy of the other fails for a moment."""

    def make(host: str) -> None:
        make_tables(replace(options, hosts=[host]), "3")

    with ThreadPoolExecutor(3) as threads:
        outcomes = [threads.submit(make, host) for host in options.hosts]
    problems = [problem for outcome in outcomes if (problem := outcome.exception()) is not None]
    assert all(isinstance(problem, StorageUnavailable) for problem in problems)
    make_tables(options, "3")
    clock = ManualClock()
    for host in options.hosts:
        with (
            closing(CassandraSession(replace(options, hosts=[host]))) as session,
            closing(CassandraStores(session, clock, IdGenerator(clock))) as stores,
        ):
            log = QueueLog(stores.messages, clock)
            log.add(b"x")
            clock.advance(10.0)
            assert log.bodies() == [b"x"]
