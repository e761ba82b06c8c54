"""Three real Cassandra nodes, each behind a proxy: what the long runs stand on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cassandra import ConsistencyLevel, DriverException, Unavailable, WriteTimeout
from cassandra.cluster import Cluster, NoHostAvailable
from cassandra.query import SimpleStatement

from qdo.client import Client
from tests.support import on_cassandra, servers
from tests.support.servers import FIRST_KEY, eventually
from tests.support.services.cassandra import PROTOCOL, Cassandra, make_table, session
from tests.support.services.fixtures import Reached

pytestmark = pytest.mark.long


@pytest.fixture
def three(cassandra_cluster: Cassandra) -> Cassandra:
    """With a table ``ours.kept`` that has a row 0."""
    with session(cassandra_cluster.nodes[0].address, cassandra_cluster.port) as node:
        make_table(node, "ours", replicas=3)
        write(node, 0, ConsistencyLevel.ALL)
    return cassandra_cluster


@contextmanager
def client(three: Cassandra) -> Iterator[Any]:
    """A client that knows the contact points and nothing else."""
    cluster = Cluster(three.contact_points, port=three.port, protocol_version=PROTOCOL)
    try:
        yield cluster.connect()
    finally:
        cluster.shutdown()


def write(node: Any, number: int, level: int = ConsistencyLevel.QUORUM) -> None:
    statement = "INSERT INTO ours.kept (id, body) VALUES (%s, 'acknowledged')"
    node.execute(SimpleStatement(statement, consistency_level=level, is_idempotent=True), [number])


def writes(node: Any, number: int) -> bool:
    try:
        write(node, number)
    except (DriverException, NoHostAvailable):
        return False
    return True


def test_clients_find_all_nodes_and_only_their_proxies(three: Cassandra) -> None:
    with client(three) as through:
        hosts = through.cluster.metadata.all_hosts()

        assert sorted(host.endpoint.address for host in hosts) == three.contact_points
        for proxy in three.proxies:
            proxy.cut()
        with pytest.raises(NoHostAvailable):
            write(through, 1)
        assert all(node.answers() for node in three.nodes)
        for proxy in three.proxies:
            proxy.heal()
        eventually(lambda: writes(through, 1), seconds=90)


def test_one_contact_point_leads_to_the_others(three: Cassandra) -> None:
    with client(three) as through:
        three.proxies[0].cut()

        eventually(lambda: writes(through, 1), seconds=90)


def test_two_of_three_are_enough_while_one_is_dead(three: Cassandra) -> None:
    dead = three.nodes[2]
    with client(three) as through:
        dead.kill()
        eventually(lambda: writes(through, 1), seconds=90)

    three.mend()

    with session(dead.address, dead.port) as node:
        everywhere = SimpleStatement("SELECT body FROM ours.kept WHERE id = 1", consistency_level=ConsistencyLevel.ALL)
        assert node.execute(everywhere).one().body == "acknowledged"


def test_one_of_three_is_not(three: Cassandra) -> None:
    alone, *others = three.nodes
    with session(alone.address, alone.port) as node:
        for other in others:
            other.pause()

        with pytest.raises((WriteTimeout, Unavailable)):
            write(node, 1)


def test_mended_it_is_whole(three: Cassandra) -> None:
    dead, paused, _ = three.nodes
    dead.kill()
    paused.pause()
    three.proxies[2].cut()

    three.mend()

    assert all(node.sees_all() for node in three.nodes)
    with client(three) as through:
        write(through, 1, ConsistencyLevel.ALL)


def test_stopped_and_started_the_cluster_has_its_data(three: Cassandra) -> None:
    three.stop()
    assert [node.pid for node in three.nodes] == [None, None, None]

    three.start()

    with client(three) as through:
        assert through.execute("SELECT body FROM ours.kept WHERE id = 0").one().body == "acknowledged"


def test_a_queuey_server_needs_one_contact_point_and_keeps_to_the_proxies(three: Cassandra, tmp_path: Path) -> None:
    known = Reached(three.contact_points[0], three.port)
    settings = on_cassandra.settings(known, "queuey")
    on_cassandra.init(known, "queuey", replication="3")
    with servers.shipped(tmp_path, settings=settings) as running, Client(running.url, "demo", FIRST_KEY) as queuey:
        queuey.create_queue("q")
        three.proxies[0].cut()
        queuey.append("q", "through the others")

        for proxy in three.proxies:
            proxy.cut()

        eventually(lambda: not running.beats(), seconds=90)
        assert all(node.answers() for node in three.nodes)
        for proxy in three.proxies:
            proxy.heal()
        eventually(running.beats, seconds=90)
        eventually(lambda: [message.text for message in queuey.read("q").messages] == ["through the others"])
