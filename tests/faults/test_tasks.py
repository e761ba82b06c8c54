"""G18, G22, G25: tasks of queues go on after each death of their server, and a redrive moves each letter once."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from qdo.client import Reject, Settle
from queuey.errors import QueueyError
from tests.support.figures import Figures
from tests.support.node import Node, busy, wait_for_more

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


def test_what_is_not_settled_stays_though_the_server_dies(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    kills = len(rounds(4))
    with Node(tmp_path) as node:
        node.client().create_queue(QUEUE, retention="acknowledged")
        number, seen = 1000 * kills, set[bytes]()
        for start in range(0, number, 500):
            node.client().append_batch(QUEUE, [f"{at}" for at in range(start, start + 500)])

        def work() -> None:
            try:
                client = node.client()
                some = client.receive(QUEUE, GROUP, 50, visibility=2)
                seen.update(one.body for one in some)
                client.settle(QUEUE, GROUP, Settle(acknowledge=some))
            except QueueyError:
                time.sleep(0.02)

        with busy(work, work):
            for _ in range(kills):
                time.sleep(chance.uniform(0.2, 0.6))
                node.kill_in_commit()
                node.start()
            wait_for_more(lambda: len(seen), number - len(seen))
            wait_for_more(lambda: number - node.client().queue_info(QUEUE).depth, node.client().queue_info(QUEUE).depth)

    figures("G22", kills=kills, messages=number, never_handed_out=number - len(seen))
    assert len(seen) == number
