"""G1: tables that several make at once, and where a node is away."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from uuid import uuid4

from queuey.clock import ManualClock
from queuey.ids import IdGenerator
from queuey.storage.cassandra.cluster import Options
from queuey.storage.cassandra.schema import make_tables
from queuey.storage.cassandra.session import CassandraSession
from queuey.storage.contract.common import QueueLog
from tests.support.cassandra_stores import CassandraStores
from tests.support.services.cassandra import Cassandra
from tests.support.services.fixtures import TIMEOUT_SECONDS


def test_tables_that_each_server_makes_at_once_are_the_same(cassandra_cluster: Cassandra) -> None:
    options = Options(
        hosts=cassandra_cluster.contact_points,
        port=cassandra_cluster.port,
        keyspace=f"t_{uuid4().hex[:12]}",
        timeout_seconds=TIMEOUT_SECONDS,
    )

    def make(host: str) -> None:
        make_tables(replace(options, hosts=[host]), "3")

    with ThreadPoolExecutor(3) as threads:
        outcomes = [threads.submit(make, host) for host in options.hosts]
    problems = [problem for outcome in outcomes if (problem := outcome.exception()) is not None]
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
    assert not problems
