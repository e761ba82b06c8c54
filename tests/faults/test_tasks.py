"""G18, G25: tasks of queues go on after each death of their server, and a redrive moves each letter once."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from qdo.client import Reject, Settle
from tests.support.figures import Figures
from tests.support.node import Node, wait_for_more

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

    figures("G18", kills=kills, purged=found.done, left=len(left))
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
        wait_for_more(
            lambda: client.queue_info(f"{QUEUE}-dead").depth, number - client.queue_info(f"{QUEUE}-dead").depth
        )
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
