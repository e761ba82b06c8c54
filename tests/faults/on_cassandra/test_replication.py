"""G1: an operator raises the number of copies, one at a time and with repairs, while servers go on."""

from __future__ import annotations

from contextlib import closing
from uuid import uuid4

from queuey.clock import ManualClock
from queuey.ids import IdGenerator
from queuey.storage.cassandra.cluster import Options
from queuey.storage.cassandra.schema import make_tables
from queuey.storage.cassandra.session import CassandraSession
from queuey.storage.contract.common import QueueLog, draft
from tests.support.cassandra_stores import CassandraStores
from tests.support.figures import Figures
from tests.support.services.cassandra import Cassandra
from tests.support.services.fixtures import TIMEOUT_SECONDS

PARTITIONS = range(1, 31)


def missing(options: Options, log: QueueLog) -> int:
    """Partitions of which a server that starts now does not always show the message that was acknowledged.

    One that runs asks the nodes that had a copy before, and each of these reads its own.
    """
    with (
        closing(CassandraSession(options)) as session,
        closing(CassandraStores(session, log.clock, IdGenerator(log.clock))) as stores,
    ):
        started = QueueLog(stores.messages, log.clock)
        started.queue = log.queue
        return sum(any(len(started.bodies(number)) != 1 for _ in range(4)) for number in PARTITIONS)


def filled(stores: CassandraStores, clock: ManualClock) -> QueueLog:
    log = QueueLog(stores.messages, clock, partitions=len(PARTITIONS))
    for number in PARTITIONS:
        log.append(draft(b"x", number))
    clock.advance(10.0)
    return log


def test_copies_are_added_one_at_a_time(cassandra_cluster: Cassandra, figures: Figures) -> None:
    """From one to three at once, two copies without anything are a quorum: that is the planted fault."""
    hidden = {}
    for steps in ((3,), (2, 3)):
        options = Options(
            hosts=cassandra_cluster.contact_points,
            port=cassandra_cluster.port,
            keyspace=f"t_{uuid4().hex[:12]}",
            timeout_seconds=TIMEOUT_SECONDS,
        )
        make_tables(options, "1")
        clock = ManualClock()
        with (
            closing(CassandraSession(options)) as session,
            closing(CassandraStores(session, clock, IdGenerator(clock))) as stores,
        ):
            log, most = filled(stores, clock), 0
            for copies in steps:
                # By the data centre's name: 'replication_factor' leaves the centres alone that have copies.
                replication = f"{{'class': 'NetworkTopologyStrategy', 'datacenter1': {copies}}}"
                session.driver.execute(f"alter keyspace {options.keyspace} with replication = {replication}")
                most = max(most, missing(options, log))
                for node in cassandra_cluster.nodes:
                    node.tool("repair", "-full", options.keyspace, "messages", "buckets")
                assert missing(options, log) == 0
            hidden[steps] = most
    figures("G1", at_once=hidden[3,], one_at_a_time=hidden[2, 3], of=len(PARTITIONS))
    assert hidden[2, 3] == 0
    assert hidden[3,], "two new copies are a quorum"
