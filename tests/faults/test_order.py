"""G4: within a partition ids are unique and every reader sees one order; a writer that appends twice in a row sees ids rise.

Under a stepped clock and kill -9, and with messages that are due at the very same tick.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from qdo.client import Client, Message, NewMessage
from qdo.measure import disorder, loss
from queuey.errors import OutcomeUnknown, StorageUnavailable
from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND, MessageId, format_timestamp
from tests.support.effects import everything
from tests.support.figures import Figures
from tests.support.node import PAUSE_SECONDS, Node, busy, wait_for_more
from tests.support.order import same_id, ties
from tests.support.servers import eventually
from tests.support.skewed import program
from tests.support.wall_clock import Offset

PARTITIONS = 3
STEPS = (-5.0, -0.001, 0.0, 0.001, 2.0)


@dataclass
class Producer:
    """Appends its numbers one after the other, alone or a few at a time, all to one partition."""

    name: int
    chance: random.Random
    deliver_at: str | None = None
    acknowledged: list[tuple[int, MessageId]] = field(default_factory=list)
    numbers: count[int] = field(default_factory=count)

    @property
    def partition(self) -> int:
        return self.name % PARTITIONS + 1

    def step(self, client: Client) -> None:
        some = [next(self.numbers) for _ in range(self.chance.choice((1, 1, 7)))]
        messages = [
            NewMessage(f"{self.name} {number}", partition=self.partition, deliver_at=self.deliver_at) for number in some
        ]
        try:
            placed = client.append_batch("q", messages) if len(some) > 1 else [client.append("q", messages[0])]
        except (OutcomeUnknown, StorageUnavailable):
            return
        self.acknowledged += zip(some, [where.id for where in placed], strict=True)

    def read_back(self, stored: list[Message]) -> list[int]:
        """This producer's numbers as a reader gets them."""
        split = [message.text.split() for message in stored]
        return [int(number) for name, number in split if name == str(self.name)]


def misplaced(producers: list[Producer], stored: list[Message]) -> float:
    """The largest share out of order, of ids as they were acknowledged and of numbers as they are read."""
    shares = [disorder([message_id for _, message_id in producer.acknowledged])[0] for producer in producers]
    return max(shares + [disorder(producer.read_back(stored))[0] for producer in producers])


def acknowledged(producers: list[Producer]) -> int:
    return sum(len(producer.acknowledged) for producer in producers)


def keep_going(node: Node, producers: list[Producer], more: int) -> None:
    """Let all producers append until ``more`` appends are acknowledged, then kill -9 the server."""
    with node.busy(*(producer.step for producer in producers)):
        wait_for_more(lambda: acknowledged(producers), more)
        node.kill()


def jitter(offset: Offset, chance: random.Random) -> None:
    offset.step(chance.choice((-0.0001, 0.0001)))
    time.sleep(PAUSE_SECONDS)


def test_producers_see_rising_ids_while_the_clock_is_stepped_and_servers_die(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    offset, producers = Offset(tmp_path / "offset"), [Producer(name, chance) for name in range(4)]
    with Node(tmp_path, program=program(offset)) as node:
        node.client().create_queue("q", partitions=PARTITIONS)
        for _ in rounds(4):
            with busy(lambda: jitter(offset, chance)):
                keep_going(node, producers, 300)
            offset.step(chance.choice(STEPS))
            node.start()
        client = node.client()
        once, again = everything(client, "q"), everything(client, "q")
        backwards = list(client.iterate("q", newest_first=True))

    figures(
        "G4",
        producers=len(producers),
        acked=acknowledged(producers),
        disorder=misplaced(producers, once),
        ties=ties(once),
        duplicates_of_id=len(same_id(once)),
    )
    assert all(producer.acknowledged for producer in producers)
    assert misplaced(producers, once) == 0
    assert same_id(once) == []
    assert again == once
    assert sorted(backwards, key=lambda message: message.partition) == [
        message for number in range(1, PARTITIONS + 1) for message in reversed(once) if message.partition == number
    ]
    ids = [message.id for message in once]
    assert loss([message_id for one in producers for _, message_id in one.acknowledged], ids) == []


def test_messages_due_at_the_same_tick_keep_the_order_of_their_appends(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    offset = Offset(tmp_path / "offset")
    with Node(tmp_path, program=program(offset)) as node:
        client = node.client()
        client.create_queue("q", partitions=PARTITIONS)
        now = EPOCH_TICKS + int(float(client.read("q").watermark) * TICKS_PER_SECOND)
        due = format_timestamp(now + 3600 * TICKS_PER_SECOND)
        producers = [Producer(name, chance, due) for name in range(6)]
        for producer in producers:
            for _ in rounds(20):
                producer.step(client)
        offset.step(7200)
        stored = eventually(lambda: everything(client, "q"))

    figures(
        "G4",
        producers=len(producers),
        due_at_one_tick=len(stored),
        disorder=misplaced(producers, stored),
        ties=ties(stored),
        duplicates_of_id=len(same_id(stored)),
    )
    assert ties(stored) == len(stored) - PARTITIONS
    assert misplaced(producers, stored) == 0
    assert same_id(stored) == []
