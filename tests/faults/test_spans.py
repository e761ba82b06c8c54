"""G5: pages joined by cursors have no gap and no repeat, whatever their size, while the queue grows and shrinks."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path

import pytest

from qdo.client import Client, Message, NewMessage
from qdo.measure import duplicates, loss
from tests.conftest import Figures
from tests.support.effects import Place, place_of
from tests.support.node import Node, wait_for_more

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


@dataclass
class Pages:
    """One way to read a queue from end to end; what it was given, answer after answer."""

    limit: int
    newest_first: bool = False
    since: str | None = None
    """Where all of it begins; None is the beginning of the queue."""
    got: list[Message] = field(default_factory=list)
    spans: int = 0
    cursor: str | None = None
    caught_up: bool = False

    def step(self, client: Client) -> None:
        """One page; newest first, one whole way from here down."""
        if self.newest_first:
            self.got = []
            for page in client.pages("q", until=self.since, limit=self.limit, newest_first=True):
                self.got += page.messages
                self.spans += 1
            return
        page = client.read("q", since=self.since if self.cursor is None else None, cursor=self.cursor, limit=self.limit)
        self.cursor, self.caught_up = page.cursor, not page.more
        self.got += page.messages
        self.spans += 1

    def finish(self, client: Client) -> None:
        """Read to the end of a queue that grows no more."""
        self.step(client)
        while not self.newest_first and not self.caught_up:
            self.step(client)

    @property
    def places(self) -> list[Place]:
        return [place_of(message) for message in self.got]

    @property
    def out_of_order(self) -> int:
        """Neighbours in a partition that do not rise, or fall newest first."""
        one_way = [place for number in range(1, PARTITIONS + 1) for place in self.places if place[0] == number]
        rising = reversed(one_way) if self.newest_first else one_way
        return sum(a[0] == b[0] and a[1] >= b[1] for a, b in pairwise(rising))


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
