"""G15: three workers that share a ZooKeeper never own a partition twice, nor forget one, while they and ZooKeeper itself are killed and stopped."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.figures import Figures
from tests.support.node import Node
from tests.support.servers import eventually
from tests.support.services.proxy import BOTH, Way
from tests.support.services.zookeeper import ZooKeeper
from tests.support.workers import SlotWorkers, Workers

SLOW_SECONDS = 0.15
"""Each way: a claim takes more than a second then, and trust is renewed six times in a session of two."""
LOST_SHARE = 0.1
MOST_COMING = 30
"""The most that come, one after the other, until one of them holds a false belief while a job is under way; mostly the first does."""
MOST_LOST = 10
"""Broken connections with the answers that were in them."""


@pytest.mark.drawn
def test_workers_are_killed_stopped_and_expired(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    with (
        ZooKeeper(tmp_path / "zookeeper") as zookeeper,
        Node(tmp_path) as node,
        Workers(node.running, tmp_path, chance, zookeeper=zookeeper.hosts) as workers,
    ):
        with workers.at_work(figures, "zookeeper"):
            for _ in rounds(1):
                workers.lose_one()
                workers.expire()
                workers.wait_until_owned()
                workers.wait_until_refused()
                workers.storm()
                workers.wait_until_owned()


@pytest.mark.long
def test_workers_of_many_small_queues_are_killed_and_stopped(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    """What they divide are slots; each queue in them is taken over, worked on and let go of again and again."""
    with (
        ZooKeeper(tmp_path / "zookeeper") as zookeeper,
        Node(tmp_path) as node,
        SlotWorkers(node.running, tmp_path, chance, zookeeper=zookeeper.hosts) as workers,
    ):
        with workers.at_work(figures, "slots"):
            for _ in rounds(1):
                workers.lose_one()
                workers.expire()
                workers.grow()
                workers.wait_until_owned()
                workers.relieve()


@pytest.mark.parametrize("kind", [Workers, pytest.param(SlotWorkers, marks=pytest.mark.long)])
@pytest.mark.drawn
def test_zookeeper_is_stopped_and_killed(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures, kind: type[Workers]
) -> None:
    """Without it nothing begins; with it all goes on."""
    with (
        ZooKeeper(tmp_path / "zookeeper") as zookeeper,
        Node(tmp_path) as node,
        kind(node.running, tmp_path, chance, zookeeper=zookeeper.hosts) as workers,
    ):
        (server,) = zookeeper.nodes
        with workers.at_work(figures, f"zookeeper-away-{kind.__name__}"):
            for _ in rounds(1):
                server.pause()
                workers.wait_until_idle()
                server.resume()
                workers.wait_until_owned()
                server.kill()
                workers.wait_until_idle()
                server.start()
                workers.wait_until_owned()
                workers.relieve()


@pytest.mark.drawn
def test_zookeeper_answers_late_or_never(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    """It does what it was asked: it carries out claims, commits and releases, and answers nobody; some come long after they were asked for."""
    with (
        ZooKeeper(tmp_path / "zookeeper", proxied=True) as zookeeper,
        Node(tmp_path) as node,
        Workers(node.running, tmp_path, chance, zookeeper=zookeeper.hosts) as workers,
    ):
        (proxy,) = zookeeper.proxies
        with workers.at_work(figures, "zookeeper-slow"):
            for _ in rounds(1):
                proxy.delay(SLOW_SECONDS)
                workers.lose_one()
                proxy.heal()
                workers.start()
                proxy.drop([chance.choice(BOTH)])
                workers.wait_until_idle()
                proxy.heal()
                workers.wait_until_owned()
                workers.leave(1)
                workers.wait_until_owned()
                lost = proxy.lost(Way.BACK)
                proxy.lose(LOST_SHARE, [Way.BACK])
                workers.storm()
                eventually(lambda: proxy.lost(Way.BACK) > lost + MOST_LOST, seconds=90)  # noqa: B023 - called at once
                proxy.heal()
                workers.wait_until_owned()
                workers.relieve()


@pytest.mark.drawn
def test_a_no_that_is_taken_for_a_yes_is_found(tmp_path: Path, chance: random.Random) -> None:
    """G15: a newcomer believes to own what its owner has not given back yet."""
    with (
        ZooKeeper(tmp_path / "zookeeper") as zookeeper,
        Node(tmp_path) as node,
        Workers(
            node.running, tmp_path, chance, zookeeper=zookeeper.hosts, job_seconds=0.5, fault="believing"
        ) as workers,
    ):
        workers.start(2)
        with workers.under_load():
            for _ in range(MOST_COMING):
                workers.wait_until_owned()
                workers.start()
                with suppress(AssertionError):
                    eventually(lambda: workers.log().overlaps([], 0), seconds=8)
                    break
                workers.leave(1)
        assert workers.log().overlaps([], 0)


def test_a_late_write_that_nobody_checks_is_found(tmp_path: Path, chance: random.Random) -> None:
    """G14: it overwrites what the new owner has recorded."""
    with (
        ZooKeeper(tmp_path / "zookeeper") as zookeeper,
        Node(tmp_path) as node,
        Workers(node.running, tmp_path, chance, zookeeper=zookeeper.hosts, fault="unchecked") as workers,
    ):
        workers.start(2)
        with workers.under_load():
            workers.wait_until_owned()
            workers.start()
            eventually(lambda: workers.log().accepted_stale(), seconds=90)
            eventually(lambda: workers.watcher.regressions, seconds=90)


@pytest.mark.long
def test_an_ensemble_loses_its_leader_and_all_of_it(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    with (
        ZooKeeper(tmp_path / "zookeeper", nodes=3) as zookeeper,
        Node(tmp_path) as node,
        Workers(node.running, tmp_path, chance, zookeeper=zookeeper.hosts) as workers,
    ):
        with workers.at_work(figures, "ensemble"):
            for _ in rounds(1):
                (leader,) = (server for server in zookeeper.nodes if server.mode == "leader")
                leader.kill()
                workers.wait_until_owned()
                workers.kill()
                workers.start()
                workers.wait_until_owned()
                zookeeper.start()
                zookeeper.kill()
                workers.wait_until_idle()
                zookeeper.start()
                workers.wait_until_owned()
                workers.relieve()
