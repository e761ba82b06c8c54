"""G5: pages joined by cursors have no gap and no repeat, whatever their size, while the queue grows and shrinks."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from qdo.client import Client, NewMessage
from qdo.measure import duplicates, loss
from tests.support.effects import Place, place_of
from tests.support.figures import Figures
from tests.support.node import Node, wait_for_more
from tests.support.readers import Pages

PARTITIONS = 3
SETTINGS = "[limits]\nmax_answer_bytes = 2048\n"
"""Less than many bodies: such a page has one message."""


@dataclass
class Producer:
    """Appends bodies of all sizes, and deletes some of its messages soon after."""

    chance: random.Random
    kept: list[Place] = field(default_factory=list)
    numbers: count[int] = field(default_factory=count)

    def step(self, client: Client) -> None:
        sizes = [self.chance.choice((1, 50, 700, 5000)) for _ in range(self.chance.randint(1, 20))]
        placed = client.append_batch("q", [NewMessage(b"%d" % next(self.numbers) + b"." * size) for size in sizes])
        doomed = [where for where in placed if self.chance.random() < 0.2]
        if doomed:
            client.delete("q", doomed)
        self.kept += [place_of(where) for where in placed if where not in doomed]


def ways() -> list[Pages]:
    return [Pages(1), Pages(7), Pages(1000), Pages(7, newest_first=True), Pages(1000, newest_first=True)]


def test_pages_join_without_gap_or_repeat_while_a_producer_runs(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    producer, readers = Producer(chance), ways()
    with Node(tmp_path, settings=SETTINGS) as node:
        node.client().create_queue("q", partitions=PARTITIONS)
        with node.busy(producer.step, *(reader.step for reader in readers)):
            wait_for_more(lambda: len(producer.kept), len(rounds(500)), seconds=100)
        client = node.client()
        for reader in readers:
            reader.finish(client)

    gaps = sum(len(loss(producer.kept, reader.places)) for reader in readers)
    repeats = sum(len(duplicates(reader.places)) for reader in readers)
    figures(
        "G5", spans=sum(reader.spans for reader in readers), messages=len(producer.kept), gaps=gaps, repeats=repeats
    )
    assert (gaps, repeats) == (0, 0)
    assert [reader.out_of_order for reader in readers] == [0] * len(readers)


@pytest.mark.parametrize("limit", [3, 1000])
def test_a_span_below_the_watermark_reads_the_same_again(
    tmp_path: Path, rounds: Callable[[int], range], chance: random.Random, figures: Figures, limit: int
) -> None:
    producer, differing, seen = Producer(chance), 0, 0
    with Node(tmp_path, settings=SETTINGS) as node:
        client = node.client()
        client.create_queue("q", partitions=PARTITIONS)
        with node.busy(producer.step):
            for _ in rounds(8):
                begin = client.read("q", partitions=[1]).watermark
                wait_for_more(lambda: len(producer.kept), 100)
                pages = list(client.pages("q", since=begin, limit=limit))
                with client.stream_ndjson("q", since=begin, until=pages[0].watermark) as stream:
                    again = {place_of(message): message for message in stream}
                first = {place_of(message): message for page in pages for message in page.messages}
                kept = set(producer.kept)
                differing += sum(first.get(place) != again.get(place) for place in kept & {*first, *again})
                seen += len(kept & first.keys())

    figures("G5", sealed_spans=len(rounds(8)), messages=seen, differing=differing)
    assert seen
    assert differing == 0
