"""Cassandra, real: one node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.services.cassandra import PROTOCOL, Cassandra, make_table, session
from tests.support.services.fixtures import Keyspaces, Reached, drop
from tests.support.services.proxy import Way
from tests.support.services.service import NotUp


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cassandra]:
    """A node that these tests may break, with a table ``mine.kept``."""
    with Cassandra(tmp_path_factory.mktemp("mine") / "cassandra", proxied=True) as cassandra:
        with session(cassandra.nodes[0].address, cassandra.port) as node:
            make_table(node, "mine")
        yield cassandra


def test_the_shared_node_has_keyspaces_for_each_test(
    cassandra_node: Reached, keyspace: str, keyspaces: Keyspaces
) -> None:
    with session(cassandra_node.address, cassandra_node.port) as node, keyspaces() as other:
        for name in (keyspace, other):
            make_table(node, name)
        drop(cassandra_node, other)

        there = {row.keyspace_name for row in node.execute("SELECT keyspace_name FROM system_schema.keyspaces")}
    assert keyspace in there
    assert other not in there


@pytest.mark.drawn
def test_what_was_acknowledged_survives_kill_9(mine: Cassandra) -> None:
    (node,) = mine.nodes
    with session(node.address, node.port) as open_session:
        for number in range(50):
            open_session.execute("INSERT INTO mine.kept (id, body) VALUES (%s, 'acknowledged')", [number])
        node.kill()
    assert not node.answers()

    node.start()
    mine.wait_until_up(0)

    with session(node.address, node.port) as open_session:
        assert len(list(open_session.execute("SELECT id FROM mine.kept"))) == 50


@pytest.mark.drawn
def test_paused_it_does_not_answer_and_resumed_it_does(mine: Cassandra) -> None:
    (node,) = mine.nodes

    node.pause()

    assert node.paused
    with pytest.raises(NotUp, match=r"cassandra-1 does not answer, see .*log\.txt, after 0 s"):
        node.wait_until_up(seconds=0)
    node.resume()
    mine.wait_until_up(0)


@pytest.mark.drawn
def test_clients_know_it_by_its_proxy(mine: Cassandra) -> None:
    from cassandra import OperationTimedOut
    from cassandra.cluster import Cluster, NoHostAvailable

    (proxy,) = mine.proxies
    cluster = Cluster(mine.contact_points, port=mine.port, protocol_version=PROTOCOL)
    try:
        client = cluster.connect()
        assert [host.broadcast_rpc_address for host in cluster.metadata.all_hosts()] == mine.contact_points
        proxy.drop([Way.BACK])
        with pytest.raises(OperationTimedOut):
            client.execute("SELECT * FROM mine.kept", timeout=0.5)
        proxy.heal()
        client.execute("SELECT * FROM mine.kept")
        proxy.cut()
        with pytest.raises(NoHostAvailable):
            client.execute("SELECT * FROM mine.kept")
    finally:
        proxy.heal()
        cluster.shutdown()


@pytest.mark.drawn
def test_nodetool_reaches_it(mine: Cassandra) -> None:
    (node,) = mine.nodes
    with session(node.address, node.port) as open_session:
        open_session.execute("INSERT INTO mine.kept (id, body) VALUES (-1, 'flushed')")

    node.tool("flush", "mine")

    assert "\nUN  127.0.0.1" in node.tool("status")
    assert list((node.folder / "data" / "mine").glob("kept-*/*-Data.db"))


def test_one_that_cannot_start_says_why(tmp_path: Path) -> None:
    cassandra = Cassandra(tmp_path / "cassandra")
    settings = cassandra.nodes[0].folder / "cassandra.yaml"
    settings.write_text(settings.read_text() + "\nno_such_setting: 1\n")

    with pytest.raises(NotUp, match=r"cassandra-1 ended instead of serving(?s:.)*no_such_setting"):
        cassandra.__enter__()

    assert not cassandra.folder.exists()


def test_a_folder_is_not_used_for_something_else(tmp_path: Path) -> None:
    Cassandra(tmp_path / "cassandra", port=12345)

    with pytest.raises(FileExistsError, match="made with other settings"):
        Cassandra(tmp_path / "cassandra", port=12346)
    with pytest.raises(ValueError, match="cassandra has 1 or 3 nodes here, not 2"):
        Cassandra(tmp_path / "two", nodes=2)
