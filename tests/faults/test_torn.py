"""G2: a batch that was killed on its way is there whole, or not at all."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count
from pathlib import Path

from qdo.client import Client, NewMessage
from qdo.measure import loss, torn
from queuey.errors import OutcomeUnknown, StorageUnavailable
from tests.support.effects import everything
from tests.support.figures import Figures
from tests.support.node import Node, wait_for_more

PARTITIONS = 8
WRITERS = 4
Batch = list[bytes]


class Batches:
    """Sends batches that are spread over all partitions and take a while to store, and notes how each ended."""

    def __init__(self, chance: random.Random) -> None:
        self.acknowledged: list[Batch] = []
        self.unknown: list[Batch] = []
        self._chance = chance
        self._numbers = count()

    def step(self, client: Client) -> None:
        number = next(self._numbers)
        size = self._chance.choice((2, 50, 2000))
        bodies = [b"%d/%d/" % (number, index) + b"." * self._chance.randint(0, 400) for index in range(size)]
        messages = [NewMessage(body, partition=1 + index % PARTITIONS) for index, body in enumerate(bodies)]
        try:
            client.append_batch("q", messages)
        except OutcomeUnknown:
            self.unknown.append(bodies)
        except StorageUnavailable:
            return
        else:
            self.acknowledged.append(bodies)


def test_batches_cut_by_kill_9_are_whole_or_absent(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    batches = Batches(chance)
    with Node(tmp_path) as node:
        node.client().create_queue("q", partitions=PARTITIONS)
        for _ in rounds(6):
            with node.busy(*[batches.step] * WRITERS):
                wait_for_more(lambda: len(batches.acknowledged), chance.randint(1, 12))
                node.kill_in_commit()
            node.start()

        found = [message.body for message in everything(node.client(), "q")]

    there = set(found)
    whole = [batch for batch in batches.unknown if there.issuperset(batch)]
    torn_acked = torn(batches.acknowledged, found)
    torn_unknown = torn(batches.unknown, found)
    figures(
        "G2",
        batches=len(batches.acknowledged),
        unknown=len(batches.unknown),
        unknown_but_whole=len(whole),
        torn_acked=len(torn_acked),
        torn_unknown=len(torn_unknown),
    )
    assert batches.acknowledged
    assert batches.unknown
    assert (torn_acked, torn_unknown) == ([], [])
    assert loss([body for batch in batches.acknowledged for body in batch], found) == []
