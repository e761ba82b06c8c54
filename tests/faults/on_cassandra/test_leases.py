"""G21, G22: messages that three servers hand out over three nodes, while a server and a node die."""

from __future__ import annotations

import random
import secrets
import shutil
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest

from queuey.errors import OutcomeUnknown, StorageUnavailable
from queuey.model import Consistency
from queuey.storage.cassandra.cluster import Options
from queuey.storage.cassandra.schema import make_tables
from queuey.storage.cassandra.session import CassandraSession
from queuey.storage.contract.common import draft
from tests.support.figures import Figures
from tests.support.fleet import READ_DELAY, Fleet
from tests.support.lease_log import LeaseLog
from tests.support.lease_receiver import GROUP, QUEUE, Receiver, Worker, fill, hand_out_the_rest
from tests.support.lease_servers import servers_over
from tests.support.node import Node, busy, wait_for_more
from tests.support.services.cassandra import Cassandra

T = TypeVar("T")

RECEIVERS = 16
VISIBILITY = 4.0
MESSAGES = 200
"""At first; more come all the time."""


def _append_more(node: Node, ids: list[str]) -> None:
    answer = node.call("POST", QUEUE, json={"messages": [{"body": "later"}] * 10})
    if answer.status_code == 201:
        ids += [one["key"] for one in answer.json()["messages"]]
    time.sleep(0.3)


def _lose(cassandra: Cassandra, number: int, keyspace: str) -> None:
    """Take from a node that is down all that it had stored in a keyspace."""
    home = cassandra.folder / f"cassandra-{number + 1}"
    shutil.rmtree(home / "commitlog")
    shutil.rmtree(home / "data" / keyspace)


def _again(ask: Callable[[], T]) -> T:
    """What is answered once the driver has noticed that nodes are gone."""
    until = time.monotonic() + 60
    while True:
        try:
            return ask()
        except (StorageUnavailable, OutcomeUnknown):
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


@pytest.mark.parametrize("exact", [pytest.param(True, id="exact"), pytest.param(False, id="weak")])
def test_nobody_has_what_another_has_while_a_server_and_a_node_die(
    tmp_path: Path,
    cassandra_cluster: Cassandra,
    rounds: Callable[[int], range],
    chance: random.Random,
    figures: Figures,
    exact: bool,
) -> None:
    """A weak group loses what one replica had, and no message. It is the planted fault: two receivers have one message."""
    log, kills = LeaseLog(), len(rounds(1))

    def wait_for_answers(number: int) -> None:
        wait_for_more(lambda: len(log.acknowledged), number, seconds=120)

    with Fleet(tmp_path, cassandra_cluster) as fleet:
        fleet.client(0).create_queue(QUEUE, partitions=3)
        fleet.client(0).set_lease_group(QUEUE, GROUP, exact=exact, k=1)
        ids = fill(fleet.nodes[0], MESSAGES)
        time.sleep(READ_DELAY)
        workers = [
            Worker(fleet.nodes[number % 3], log, f"w{number}", random.Random(chance.random()), VISIBILITY)
            for number in range(RECEIVERS)
        ]
        with busy(lambda: _append_more(fleet.nodes[0], ids), *(worker.step for worker in workers)):
            for _ in range(kills):
                wait_for_answers(60)
                down = chance.randrange(3)
                cassandra_cluster.nodes[down].kill()
                wait_for_answers(30)
                if not exact:
                    _lose(cassandra_cluster, down, fleet.keyspace)
                server = chance.choice(fleet.nodes[1:])
                server.kill()
                server.start()
                cassandra_cluster.mend()
                wait_for_answers(60)
        time.sleep(VISIBILITY)
        hand_out_the_rest(Receiver(fleet.nodes[0], "last"), log)
        transactions = fleet.counted("queuey_lease_transactions_total")
        handed_over = fleet.counted("queuey_lease_steps_handed_over_total")

    verdict = log.judge(ids)
    for guarantee in ("G21", "G22") if exact else ("G22",):
        figures(
            guarantee,
            group="exact" if exact else "weak",
            servers=3,
            nodes=3,
            receivers=RECEIVERS,
            kills=2 * kills,
            messages=len(ids),
            transactions=transactions,
            handed_over=handed_over,
            held_by_two=len(verdict.held_by_two),
            after_acknowledgement=len(verdict.handed_after_acknowledgement),
            never_handed=len(verdict.never_handed),
        )
    assert verdict.never_handed == set()
    if exact:
        assert handed_over, "servers that meet have a home"
        assert (verdict.held_by_two, verdict.handed_after_acknowledgement) == ([], [])
    else:
        assert verdict.held_by_two, "the judge sees what two receivers have"


def test_a_home_that_stands_still_holds_up_the_others_for_a_moment_only(
    tmp_path: Path, cassandra_cluster: Cassandra, chance: random.Random, figures: Figures
) -> None:
    """The servers hand their steps over to it when it stops; what it has begun it finishes when it goes on."""
    log = LeaseLog()
    with Fleet(tmp_path, cassandra_cluster) as fleet:
        fleet.client(0).create_queue(QUEUE, partitions=3)
        ids = fill(fleet.nodes[0], 20 * MESSAGES)
        time.sleep(READ_DELAY)
        workers = [
            Worker(fleet.nodes[number % 3], log, f"w{number}", random.Random(chance.random()), VISIBILITY)
            for number in range(RECEIVERS)
        ]
        with busy(*(worker.step for worker in workers)):
            wait_for_more(lambda: len(log.acknowledged), 300, seconds=120)
            home = _home(fleet)
            assert home is not None, "servers that meet have a home"
            with home.stopped():
                wait_for_more(lambda: len(log.acknowledged), 100, seconds=120)
            wait_for_more(lambda: len(log.acknowledged), 100, seconds=120)
        time.sleep(VISIBILITY)
        hand_out_the_rest(Receiver(fleet.nodes[0], "last"), log)

    verdict = log.judge(ids)
    figures(
        "G21",
        group="exact",
        servers=3,
        stopped="home",
        messages=len(ids),
        held_by_two=len(verdict.held_by_two),
        after_acknowledgement=len(verdict.handed_after_acknowledgement),
        never_handed=len(verdict.never_handed),
    )
    assert verdict.never_handed == set()
    assert (verdict.held_by_two, verdict.handed_after_acknowledgement) == ([], [])


def _home(fleet: Fleet) -> Node | None:
    """The only server that hands nothing over."""
    handing = [node.get("/metrics").text.count("queuey_lease_steps_handed_over_total{") for node in fleet.nodes]
    homes = [node for node, number in zip(fleet.nodes, handing, strict=True) if not number]
    return homes[0] if len(homes) == 1 else None


def test_a_weak_group_of_a_weak_queue_serves_while_one_replica_answers(
    cassandra_cluster: Cassandra, figures: Figures
) -> None:
    options = Options(
        hosts=cassandra_cluster.contact_points, port=cassandra_cluster.port, keyspace=f"t_{secrets.token_hex(6)}"
    )
    make_tables(options, "3")
    with closing(CassandraSession(options)) as session, servers_over(session) as servers:
        first, second = servers.another(), servers.another()
        first.log.queue = first.log.queue._replace(consistency=Consistency.WEAK)
        first.log.append(*[draft(b"%d" % number) for number in range(200)])
        here, there = first.jobs(exact=False), second.jobs(first, exact=False)
        handed = here.receive(10)
        for node in cassandra_cluster.nodes[1:]:
            node.kill()
        for jobs in (here, there, here):
            _again(lambda handed=handed: here.settle(handed[-1]))  # type: ignore[misc]
            handed = _again(lambda jobs=jobs: jobs.receive(40))  # type: ignore[misc]
            assert len(handed) == 40
        cassandra_cluster.mend()
    figures("G22", group="weak", nodes=3, nodes_killed=2, handed=130)
