"""G1, G22, G25: tasks of queues go on after each death of their server, and a redrive moves each letter once."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from qdo.client import Reject, Settle
from queuey.errors import QueueyError
from tests.support.figures import Figures
from tests.support.node import Node, busy, wait_for_all, wait_for_more
from tests.support.skewed import program
from tests.support.wall_clock import Offset

QUEUE, GROUP = "jobs", "workers"


def test_a_purge_goes_on_after_each_death_of_its_server(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    kills = len(rounds(3))
    with Node(tmp_path) as node:
        client = node.client()
        client.create_queue(QUEUE, partitions=2)
        number = 4_000 * kills
        for start in range(0, number, 1000):
            client.append_batch(QUEUE, [f"{at}" for at in range(start, start + 1000)])  # packs
        for at in range(300):
            client.append(QUEUE, f"loose {at}")
        held = client.receive(QUEUE, GROUP, 100, visibility=600)
        task = client.purge(QUEUE)
        client.append(QUEUE, "stays")
        for _ in range(kills):
            time.sleep(chance.uniform(0, 0.05))
            node.kill_in_commit()
            node.start()
        client = node.client()
        *_, found = client.watch_task(QUEUE, "purge")
        left = [message.body for message in client.stream_ndjson(QUEUE, partitions="all")]
        info = client.queue_info(QUEUE)
        group = client.lease_group(QUEUE, GROUP)

    figures("G1", kills=kills, purged=number + 300, left=len(left))
    assert (found.id, found.state) == (task.id, "done")
    assert (left, info.depth, info.bytes) == ([b"stays"], 1, len(b"stays"))
    assert held
    assert [part.held for part in group.partitions] == [0, 0]


def test_a_redrive_moves_each_letter_once_though_its_server_dies(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    kills = len(rounds(4))
    with Node(tmp_path) as node:
        client = node.client()
        client.create_queue(QUEUE, partitions=3)
        number = 300 * kills
        for start in range(0, number, 100):
            client.append_batch(QUEUE, [f"{at}" for at in range(start, start + 100)])
        while some := client.receive(QUEUE, GROUP, 1000, visibility=600):
            client.settle(QUEUE, GROUP, Settle(reject=[Reject(one, "so") for one in some]))
        wait_for_all(lambda: client.queue_info(f"{QUEUE}-dead").depth, number)
        client.purge(QUEUE)
        assert [task.state for task in client.watch_task(QUEUE, "purge")][-1] == "done"
        task = client.redrive(QUEUE, GROUP, rate=1000)
        for _ in range(kills):
            time.sleep(chance.uniform(0.05, 0.3))
            node.kill_in_commit()
            node.start()
        client = node.client()
        *_, found = client.watch_task(QUEUE, task.name)
        back = Counter(message.body for message in client.stream_ndjson(QUEUE, partitions="all"))
        left = client.queue_info(f"{QUEUE}-dead").depth

    figures("G25", kills=kills, letters=number, back=back.total(), twice=back.total() - len(back), left=left)
    assert (found.id, found.state, found.failed, left) == (task.id, "done", 0, 0)
    assert back == Counter({b"%d" % at: 1 for at in range(number)})


class Retained:
    """Receivers of a queue whose messages go once they are settled, while its server is killed.

    They acknowledge half of what they get; the rest comes to them again.
    """

    def __init__(self, node: Node, number: int, chance: random.Random) -> None:
        self.node, self.chance, self.number = node, chance, number
        self.handed, self.acknowledged, self.early = set[bytes](), set[bytes](), set[bytes]()
        """Messages that were received, that were asked to be settled, and that went without."""
        client = node.client()
        client.create_queue(QUEUE, retention="acknowledged")
        for start in range(0, number, 500):
            client.append_batch(QUEUE, [f"{at}" for at in range(start, start + 500)])

    def work(self) -> None:
        try:
            client = self.node.client()
            some = client.receive(QUEUE, GROUP, 50, visibility=1)
            self.handed.update(one.body for one in some)
            settled = some[::2]
            self.acknowledged.update(one.body for one in settled)
            client.settle(QUEUE, GROUP, Settle(acknowledge=settled))
        except QueueyError:
            time.sleep(0.02)

    def run(self, kills: int) -> None:
        with busy(self.work, self.work):
            for _ in range(kills):
                time.sleep(self.chance.uniform(0.2, 0.6))
                self.node.kill_in_commit()
                self.node.start()
                self.look()
            wait_for_all(lambda: len(self.handed), self.number)
        self.look()

    def look(self) -> None:
        """What is gone now had been acknowledged."""
        there = {message.body for message in self.node.client().stream_ndjson(QUEUE, partitions="all")}
        self.early |= {b"%d" % at for at in range(self.number)} - there - self.acknowledged


def test_what_is_not_settled_stays_though_the_server_dies(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    kills = len(rounds(3))
    with Node(tmp_path) as node:
        found = Retained(node, 500 * kills, chance)
        found.run(kills)
        client = node.client()
        while some := client.receive(QUEUE, GROUP, 1000, wait=1.5):
            client.settle(QUEUE, GROUP, Settle(acknowledge=some))
        wait_for_all(lambda: found.number - client.queue_info(QUEUE).depth, found.number)

    never = found.number - len(found.handed)
    figures("G22", kills=kills, messages=found.number, never_handed_out=never, removed_unsettled=len(found.early))
    assert (never, found.early) == (0, set())


def test_the_same_run_finds_a_server_that_removes_what_was_handed_out(tmp_path: Path, chance: random.Random) -> None:
    with Node(tmp_path, program=program(Offset(tmp_path / "offset"), "hasty")) as node:
        found = Retained(node, 1000, chance)
        with busy(found.work, found.work):
            wait_for_more(lambda: found.number - node.client().queue_info(QUEUE).depth, 500)
        found.look()
    assert found.early
