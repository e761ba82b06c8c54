"""G1: kill -9 of servers and of nodes loses nothing acknowledged, and tears no acknowledged batch (G2)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from qdo.client import Client
from qdo.measure import duplicates, torn
from tests.support.effects import everything, place_of
from tests.support.figures import Figures
from tests.support.fleet import LOOKS, Fleet, wait_until_readable
from tests.support.node import PAUSE_SECONDS, busy, wait_for_more
from tests.support.services.cassandra import Cassandra
from tests.support.traffic import Traffic
from tests.support.writers import Singles

PARTITIONS = range(1, 9)


class Killer:
    """Ends servers and nodes, and starts them again, while the others go on."""

    def __init__(self, fleet: Fleet, cassandra: Cassandra, chance: random.Random) -> None:
        self._fleet = fleet
        self._cassandra = cassandra
        self._chance = chance
        self.servers = self.nodes = 0
        self.reopened: list[float] = []

    def a_server(self, before_it_starts: Callable[[], object] = lambda: None) -> None:
        server = self._chance.choice(self._fleet.nodes)
        server.kill()
        before_it_starts()
        self.reopened.append(server.start())
        self.servers += 1

    def a_node(self) -> None:
        """A quorum is left: a server that starts meanwhile finds what it needs."""
        self._chance.choice(self._cassandra.nodes).kill()
        self.nodes += 1
        self.a_server()
        self._cassandra.mend()

    def two_nodes(self) -> None:
        """No quorum is left: nothing is acknowledged, and no server starts, until one is back."""
        with ThreadPoolExecutor() as at_once:
            list(at_once.map(lambda node: node.kill(), self._chance.sample(self._cassandra.nodes, 2)))
        self.nodes += 2
        self.a_server(before_it_starts=self._cassandra.mend)


def change(client: Client, singles: Singles) -> None:
    singles.step(client)
    time.sleep(PAUSE_SECONDS)


@pytest.mark.parametrize("lethal", ["a_node", pytest.param("two_nodes", marks=pytest.mark.long)])
def test_kill_9_of_servers_and_nodes_loses_nothing_acknowledged(
    tmp_path: Path,
    cassandra_cluster: Cassandra,
    rounds: Callable[[int], range],
    chance: random.Random,
    figures: Figures,
    lethal: str,
) -> None:
    with Fleet(tmp_path, cassandra_cluster) as fleet:
        traffic, killer = Traffic(fleet, PARTITIONS, chance), Killer(fleet, cassandra_cluster, chance)
        singles = [Singles(chance, name) for name in ("one", "two", "three")]
        changing = [partial(change, client, one) for client, one in zip(fleet.clients(), singles, strict=True)]
        with traffic.flowing(), busy(*changing):
            for _ in rounds(1):
                wait_for_more(traffic.appends, 100, seconds=60)
                getattr(killer, lethal)()
                killer.a_server()
            wait_for_more(traffic.appends, 100, seconds=60)
        traffic.catch_up()
        client = fleet.client(0, retries=LOOKS)
        wait_until_readable(client, "q", max(place[1] for one in singles for place in one.effects.values))
        views = [everything(fleet.client(index, retries=LOOKS), "q") for index in range(len(fleet.nodes))]
        queues = [queue.name for queue in client.queues()]

    stored = views[0]
    effects = [writer.effects for writer in traffic.writers] + [one.effects for one in singles]
    names = [f"{name} ".encode() for name in [each.name for each in traffic.writers] + [one.name for one in singles]]
    verdicts = [
        each.judge([message for message in stored if name in message.body])
        for each, name in zip(effects, names, strict=True)
    ]
    lost = [missing for verdict in verdicts for missing in verdict.lost]
    again = duplicates(message.body for message in stored)
    figures(
        "G1",
        rounds=len(rounds(1)),
        servers_killed=killer.servers,
        nodes_killed=killer.nodes,
        acked=sum(len(each.certain) for each in effects),
        stored=len(stored),
        lost=len(lost),
        unknown=sum(each.unknown for each in effects),
        unacked_but_stored=sum(len(verdict.unacknowledged) for verdict in verdicts),
        reopen_max_s=max(killer.reopened),
    )
    places = [place_of(message) for message in stored]
    batches = [batch for writer in traffic.writers for batch in writer.batches if len(batch) > 1]
    unsure = [batch for writer in traffic.writers for batch in writer.unsure if len(batch) > 1]
    torn_acked = torn(batches, places)
    torn_unknown = torn(unsure, [message.body for message in stored])
    figures("G2", batches=len(batches), torn_acked=len(torn_acked), unknown=len(unsure), torn_unknown=len(torn_unknown))
    assert all(each.ok for each in effects)
    assert batches
    assert all(view == stored for view in views)
    assert lost == []
    assert [verdict.wrong + verdict.from_nowhere for verdict in verdicts] == [[]] * len(verdicts)
    assert torn_acked == []
    assert again == []
    assert {name for one in singles for name in one.made} <= set(queues)
