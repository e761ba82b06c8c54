"""G3: whoever was served up to a watermark was given every acknowledged message up to it.

Writers append while the server is stopped, killed, and its wall clock stepped to and fro; readers
follow by cursor and by watermark. The same run with a fault planted in the server must find skips,
or it proves nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from qdo.client import Client, NewMessage
from qdo.measure import skipped
from queuey.ids import MessageId
from tests.support.effects import Effects
from tests.support.figures import Figures
from tests.support.node import Node, wait_for_more
from tests.support.readers import CursorReader, Reader, SpanReader
from tests.support.skewed import program
from tests.support.wall_clock import Offset

PARTITIONS = range(1, 3)
STEPS = (-5.0, -1.0, -0.01, 0.0, 0.01, 1.0, 5.0)
"""Seconds by which the wall clock is stepped while a server runs."""
BETWEEN = (-8.0, -5.0, -1.0)
"""And between two servers: back, so that the next one has to know how far the one before had got."""
MOST_LIVES = 100
"""In which a faulty server has to lead to a skip; mostly the first one does."""


@dataclass
class Run:
    """Writers and readers of one queue, on one server after the other."""

    node: Node
    offset: Offset
    chance: random.Random
    effects: list[Effects] = field(default_factory=lambda: [Effects() for _ in range(3)])
    cursors: list[CursorReader] = field(
        default_factory=lambda: [CursorReader(PARTITIONS, limit=limit) for limit in (50, 1000)]
    )
    spans: SpanReader = field(default_factory=lambda: SpanReader(PARTITIONS))
    stops: int = 0
    steps: int = 0

    @property
    def readers(self) -> list[Reader]:
        return [*self.cursors, self.spans]

    @property
    def acknowledged(self) -> dict[int, list[MessageId]]:
        places = [place for effects in self.effects for place in effects.values]
        return {
            number: [message_id for partition, message_id in places if partition == number] for number in PARTITIONS
        }

    def life(self) -> None:
        """One life of the server: busy, stopped and stepped now and then, ended by kill -9."""
        node, chance = self.node, self.chance
        node.start()
        writers = [self._writer(effects, chance.randint(1, 30)) for effects in self.effects]
        with node.busy(*writers, *(reader.step for reader in self.cursors), self.spans.step):
            for _ in range(chance.randint(2, 5)):
                wait_for_more(self.acknowledgements, chance.randint(5, 60))
                self._disturb()
            wait_for_more(self.acknowledgements, 1)
            node.kill()
        self.offset.step(chance.choice(BETWEEN))

    def _writer(self, effects: Effects, size: int) -> Callable[[Client], object]:
        """Some messages are due a moment later, which may be before their commit is done."""
        delays = [self.chance.choice((None, None, 0.0005, 0.003, 0.02)) for _ in range(size)]
        new = [NewMessage(b"x", delay_seconds=delay) for delay in delays]
        return lambda client: effects.append([b"x"] * size, lambda: client.append_batch("q", new))

    def acknowledgements(self) -> int:
        return sum(effects.ok for effects in self.effects)

    def _disturb(self) -> None:
        if self.chance.random() < 0.5:
            self.stops += 1
            with self.node.stopped():
                self.offset.step(self.chance.choice(STEPS))
        else:
            self.offset.step(self.chance.choice(STEPS))
        self.steps += 1

    def catch_up(self) -> None:
        """Let every reader come to the end of what there is."""
        with self.node as node:
            client = node.client()
            for reader in self.cursors:
                while not reader.caught_up(client):
                    pass
            self.spans.step(client)


def begun(folder: Path, chance: random.Random, fault: str = "none") -> Run:
    """A queue, and nobody at work on it yet."""
    offset = Offset(folder / "offset")
    made = Run(Node(folder, program=program(offset, fault)), offset, chance)
    with made.node as node:
        node.client().create_queue("q", partitions=len(PARTITIONS))
        node.kill()
    return made


def skips(found: Run) -> int:
    by_reader = [skipped(found.acknowledged, reader.served) for reader in found.readers]
    return sum(len(ids) for missing in by_reader for ids in missing.values())


def test_no_reader_skips_an_acknowledged_message(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    lives = rounds(6)
    found = begun(tmp_path, chance)
    for _ in lives:
        found.life()
    found.catch_up()

    fell = sum(reader.fell for reader in found.readers)
    figures(
        "G3",
        acked=sum(len(ids) for ids in found.acknowledged.values()),
        skipped=skips(found),
        watermark_fell=fell,
        answers=sum(len(reader.watermarks) for reader in found.readers),
        kills=len(lives),
        stops=found.stops,
        clock_steps=found.steps,
        unknown=sum(effects.unknown for effects in found.effects),
    )
    assert all(effects.ok for effects in found.effects)
    assert skips(found) == 0
    assert fell == 0


@pytest.mark.parametrize("fault", ["naive", "forgetful"])
def test_the_same_run_finds_the_skips_of_a_faulty_server(
    tmp_path: Path, chance: random.Random, figures: Figures, fault: str
) -> None:
    found = begun(tmp_path, chance, fault)
    for _ in range(MOST_LIVES):
        found.life()
        if skips(found):
            break

    figures("G3", control=fault, acked=sum(len(ids) for ids in found.acknowledged.values()), skipped=skips(found))
    assert skips(found) > 0
