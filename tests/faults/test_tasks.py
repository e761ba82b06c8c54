"""G18: tasks of queues go on after each death of their server."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.figures import Figures
from tests.support.node import Node

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
