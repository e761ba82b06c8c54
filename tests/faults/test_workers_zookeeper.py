"""G15: three workers that share a ZooKeeper never own a partition twice, nor forget one, while they and ZooKeeper itself are killed and stopped."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Figures
from tests.faults.crew import Crew
from tests.faults.node import Node
from tests.services.zookeeper import ZooKeeper


def test_workers_are_killed_stopped_and_expired(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    with (
        ZooKeeper(tmp_path / "zookeeper") as zookeeper,
        Node(tmp_path) as node,
        Crew(node.door, tmp_path, chance, zookeeper=zookeeper.hosts) as crew,
    ):
        with crew.at_work(figures, "zookeeper"):
            for _ in rounds(1):
                crew.lose_one()
                crew.expire()
                crew.wait_until_owned()
                crew.wait_until_refused()
                crew.storm()
                crew.wait_until_owned()


def test_zookeeper_is_stopped_and_killed(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    """Without it nothing begins; with it all goes on."""
    with (
        ZooKeeper(tmp_path / "zookeeper") as zookeeper,
        Node(tmp_path) as node,
        Crew(node.door, tmp_path, chance, zookeeper=zookeeper.hosts) as crew,
    ):
        (server,) = zookeeper.nodes
        with crew.at_work(figures, "zookeeper-away"):
            for _ in rounds(1):
                server.pause()
                crew.wait_until_idle()
                server.resume()
                crew.wait_until_owned()
                server.kill()
                crew.wait_until_idle()
                server.start()
                crew.wait_until_owned()
                crew.relieve()


@pytest.mark.long
def test_an_ensemble_loses_its_leader_and_all_of_it(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    with (
        ZooKeeper(tmp_path / "zookeeper", nodes=3) as zookeeper,
        Node(tmp_path) as node,
        Crew(node.door, tmp_path, chance, zookeeper=zookeeper.hosts) as crew,
    ):
        with crew.at_work(figures, "ensemble"):
            for _ in rounds(1):
                (leader,) = (server for server in zookeeper.nodes if server.mode == "leader")
                leader.kill()
                crew.wait_until_owned()
                crew.kill()
                crew.start()
                crew.wait_until_owned()
                zookeeper.start()
                zookeeper.kill()
                crew.wait_until_idle()
                zookeeper.start()
                crew.wait_until_owned()
                crew.relieve()
