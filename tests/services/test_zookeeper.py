"""ZooKeeper, real: one server by itself, and three."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from tests.support.servers import eventually
from tests.support.services.fixtures import Reached
from tests.support.services.zookeeper import ZooKeeper, ZooKeeperNode


@contextmanager
def client(hosts: str) -> Iterator[Any]:
    client = KazooClient(hosts)
    try:
        client.start(timeout=60)
        yield client
    finally:
        client.stop()
        client.close()


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("three") / "zookeeper", nodes=3) as three:
        yield three


def test_the_shared_server_keeps_what_it_is_given(zookeeper: Reached) -> None:
    with client(zookeeper.hosts) as one:
        path = one.create("/kept-", b"value", sequence=True)
        with client(zookeeper.hosts) as other:
            assert other.get(path)[0] == b"value"


def test_killed_and_started_again_it_has_its_data(tmp_path: Path) -> None:
    with ZooKeeper(tmp_path / "zookeeper") as zookeeper:
        (node,) = zookeeper.nodes
        with client(zookeeper.hosts) as one:
            one.create("/kept", b"value")
        node.kill()
        assert not node.answers()

        node.start()
        zookeeper.wait_until_up(0)

        assert node.mode == "standalone"
        with client(zookeeper.hosts) as one:
            assert one.get("/kept")[0] == b"value"
    assert not zookeeper.folder.exists()


def test_through_its_proxy_it_can_be_cut_off(tmp_path: Path) -> None:
    with ZooKeeper(tmp_path / "zookeeper", proxied=True) as zookeeper:
        (proxy,) = zookeeper.proxies
        assert zookeeper.hosts == f"127.0.1.1:{zookeeper.port}"
        with client(zookeeper.hosts) as one:
            one.create("/kept", b"value")

        proxy.cut()

        assert zookeeper.nodes[0].answers()
        with pytest.raises(KazooTimeoutError):
            KazooClient(zookeeper.hosts).start(timeout=1)
        proxy.heal()
        with client(zookeeper.hosts) as one:
            assert one.get("/kept")[0] == b"value"


def leader(zookeeper: ZooKeeper) -> ZooKeeperNode:
    (found,) = (node for node in zookeeper.nodes if node.mode == "leader")
    return found


def test_three_go_on_without_their_leader(three: ZooKeeper) -> None:
    with client(three.hosts) as one:
        path = one.create("/kept-", b"before", sequence=True)
        dead = leader(three)

        dead.kill()

        one.retry(one.set, path, b"after")
        assert leader(three).name != dead.name
    dead.start()
    dead.wait_until_up()
    with client(f"{dead.address}:{dead.port}") as one:
        one.sync(path)
        assert one.get(path)[0] == b"after"


def test_a_paused_one_does_not_answer_and_comes_back(three: ZooKeeper) -> None:
    node = three.nodes[0]

    node.pause()

    assert not node.answers()
    node.resume()
    three.wait_until_up(0)


def test_without_most_of_them_nobody_serves(three: ZooKeeper) -> None:
    one, two, three_ = three.nodes
    one.kill()
    two.kill()

    eventually(lambda: not three_.answers(), seconds=90)
    three.start()

    assert sorted(str(node.mode) for node in three.nodes) == ["follower", "follower", "leader"]
