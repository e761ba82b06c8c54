"""G1, G3, G21, G22, G25: a node leaves the cluster and comes again, or another one takes its place, while servers go on."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from qdo.client import Client, NewMessage
from queuey.model.dead_letters import STORY_HEADER, Story, story_to_header
from tests.support.effects import everything
from tests.support.figures import Figures
from tests.support.fleet import LOOKS, READ_DELAY, Fleet
from tests.support.lease_log import LeaseLog
from tests.support.lease_receiver import GROUP, QUEUE, Receiver, Worker, fill, hand_out_the_rest
from tests.support.node import Node, busy, wait_for_more
from tests.support.services.cassandra import Cassandra
from tests.support.traffic import Traffic

PARTITIONS = range(1, 4)
RECEIVERS, MESSAGES = 6, 500
VISIBILITY = 10.0
LETTERS, RATE, DEAD, BACK = 400, 10, "dead", "back"


def append_more(node: Node, ids: list[str]) -> None:
    answer = node.call("POST", QUEUE, json={"messages": [{"body": "later"}] * 20})
    if answer.status_code == 201:
        ids += [one["key"] for one in answer.json()["messages"]]
    time.sleep(0.5)


def bury(client: Client) -> None:
    """Store dead letters as a server does."""
    headers = {STORY_HEADER: story_to_header(Story(BACK, 1, "0" * 32, GROUP, 3, "so"))}
    for name in (BACK, DEAD):
        client.create_queue(name)
    client.set_lease_group(BACK, GROUP, dead_letter_queue=DEAD)
    client.append_batch(DEAD, [NewMessage(f"{number}", headers=headers) for number in range(LETTERS)])


def leave_and_come_again(cassandra: Cassandra, fleet: Fleet, traffic: Traffic) -> None:
    """Three copies do not fit two nodes, so Cassandra wants it by force. A node that has left comes again as a new one."""
    node = cassandra.nodes[2]
    node.tool("decommission", "--force")
    node.stop()
    wait_for_more(traffic.appends, 100, seconds=60)
    for server in fleet.nodes:
        answer = server.get("/__heartbeat__")
        assert (answer.status_code, answer.headers.get("Queuey-Warnings")) == (200, None)
    node.forget()
    with node.joining():
        cassandra.mend()


def be_replaced(cassandra: Cassandra, fleet: Fleet, traffic: Traffic) -> None:
    """A node is gone with its disk, and another one takes its address and its place."""
    node = cassandra.nodes[2]
    node.kill()
    node.forget()
    wait_for_more(traffic.appends, 100, seconds=60)
    with node.joining(replaces=True):
        cassandra.mend()


@pytest.mark.parametrize(
    ("change", "exact"),
    [
        pytest.param(leave_and_come_again, True, id="leaves"),
        pytest.param(leave_and_come_again, False, id="leaves, weak group"),
        pytest.param(be_replaced, True, id="is replaced"),
    ],
)
def test_servers_go_on_while_a_node(
    tmp_path: Path, cassandra_cluster: Cassandra, chance: random.Random, figures: Figures, change: object, exact: bool
) -> None:
    log = LeaseLog()
    with Fleet(tmp_path, cassandra_cluster) as fleet:
        traffic, client = Traffic(fleet, PARTITIONS, chance), fleet.client(0, retries=LOOKS)
        client.create_queue(QUEUE, partitions=3)
        client.set_lease_group(QUEUE, GROUP, exact=exact)
        bury(client)
        ids = fill(fleet.nodes[0], MESSAGES)
        time.sleep(READ_DELAY)
        task = client.redrive(BACK, GROUP, rate=RATE)
        workers = [
            Worker(fleet.nodes[number % 3], log, f"w{number}", random.Random(chance.random()), VISIBILITY, away=0.0)
            for number in range(RECEIVERS)
        ]
        with (
            traffic.flowing(),
            busy(lambda: append_more(fleet.nodes[0], ids), *(worker.step for worker in workers)),
        ):
            wait_for_more(traffic.appends, 100, seconds=60)
            change(cassandra_cluster, fleet, traffic)  # type: ignore[operator]
            wait_for_more(traffic.appends, 100, seconds=60)
            wait_for_more(lambda: len(log.acknowledged), 20, seconds=120)
        traffic.catch_up()
        hand_out_the_rest(Receiver(fleet.nodes[0], "last"), log)
        *_, redriven = client.watch_task(BACK, task.name)
        time.sleep(READ_DELAY)
        stored, back = everything(client, "q"), everything(client, BACK)

    effects = {f"{writer.name} ".encode(): writer.effects for writer in traffic.writers}
    lost = [one.judge([message for message in stored if name in message.body]).lost for name, one in effects.items()]
    verdict, letters = log.judge(ids), Counter(message.body for message in back)
    acknowledged, skips = sum(len(one.certain) for one in effects.values()), traffic.skips()
    figures("G1", change=change.__name__, acked=acknowledged, lost=sum(map(len, lost)))  # type: ignore[attr-defined]
    figures("G3", skipped=skips, unknown=sum(one.unknown for one in effects.values()))
    figures(
        "G21",
        group="exact" if exact else "weak",
        messages=len(ids),
        held_by_two=len(verdict.held_by_two),
        after_acknowledgement=len(verdict.handed_after_acknowledgement),
        never_handed=len(verdict.never_handed),
    )
    figures("G25", letters=LETTERS, back=letters.total(), twice=letters.total() - len(letters))
    assert lost == [[]] * len(lost)
    assert skips == 0
    assert verdict.never_handed == set()
    assert not exact or (verdict.held_by_two, verdict.handed_after_acknowledgement) == ([], [])
    assert (redriven.state, redriven.failed) == ("done", 0)
    assert letters == Counter(b"%d" % number for number in range(LETTERS))
