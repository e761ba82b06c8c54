"""G5: pages join where buckets end, without gap or repeat, while a queue so busy that a bucket lasts ten seconds goes on.

One server has filled the wider buckets and writes to those of ten seconds; the other has just come and fills the
widest. Both take deletions.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

from qdo.client import Client, NewMessage
from qdo.measure import duplicates, loss
from queuey.ids import MessageId, format_timestamp
from queuey.storage.cassandra_buckets import FINEST, Bucket
from queuey.storage.cassandra_fills import FULL_ROWS
from tests.conftest import Figures
from tests.faults.effects import Place, place_of
from tests.faults.node import busy, wait_for_more
from tests.faults.on_cassandra.fleet import LOOKS, Fleet, wait_until_readable
from tests.faults.on_cassandra.traffic import plainly
from tests.faults.test_spans import Pages
from tests.services.fixtures import Reached

BATCH = 5000
WAYS = ((1, False), (7, False), (1000, False), (7, True), (1000, True))
"""Limits, and whether newest first."""
BUCKETS = 3
"""The widest, and ten-second ones: so their ends are passed while readers read."""
REST_SECONDS = 0.1
"""Between two appends of a producer: the reader of single messages is to come to the end as well."""


@dataclass
class Producer:
    """Appends a few messages at a time, some of them due at the edge of the next bucket, and deletes some soon after."""

    client: Client
    chance: random.Random
    kept: list[Place] = field(default_factory=list)
    numbers: count[int] = field(default_factory=count)

    def step(self) -> None:
        delays = [self.chance.choice((None, None, 0.001, 1.0)) for _ in range(self.chance.randint(1, 6))]
        new = [NewMessage(str(next(self.numbers)), partition=1, delay_seconds=delay) for delay in delays]
        placed = plainly(self.client, "q", new)
        doomed = [where for where in placed if self.chance.random() < 0.2]
        if doomed:
            self.client.delete("q", doomed)
        self.kept += [place_of(where) for where in placed if where not in doomed]
        time.sleep(REST_SECONDS)


def buckets_of(producers: Sequence[Producer]) -> set[Bucket]:
    """Where messages lie that were kept."""
    return {Bucket.of(message_id) for producer in producers for _, message_id in list(producer.kept)}


def fill(client: Client) -> MessageId:
    """Append until the server has turned to the finest buckets; the last id."""
    bodies = [NewMessage("x", partition=1)] * BATCH
    for _ in range(0, FINEST * FULL_ROWS, BATCH):
        last = plainly(client, "q", bodies)[-1].id
    assert Bucket.of(plainly(client, "q", bodies[:1])[0].id).level == FINEST
    return last


def start_of(client: Client, last: MessageId) -> str:
    """Where the spans of the test begin: behind what filled the buckets."""
    wait_until_readable(client, "q", last)
    return format_timestamp(last.ticks + 1)


def test_pages_join_over_the_edges_of_buckets(
    tmp_path: Path, cassandra_node: Reached, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    with Fleet(tmp_path, cassandra_node, servers=2, replication=1) as fleet:
        fleet.client(0).create_queue("q", partitions=3)
        since = start_of(fleet.client(0), fill(fleet.client(0)))
        producers = [Producer(client, chance) for client in fleet.clients()]
        readers = [Pages(limit, newest_first, since=since) for limit, newest_first in WAYS]
        steps = [partial(reader.step, chance.choice(fleet.clients())) for reader in readers]
        with busy(*(producer.step for producer in producers), *steps):
            wait_for_more(lambda: len(buckets_of(producers)), len(rounds(BUCKETS)), seconds=150 * len(rounds(1)))
        last = max(place[1] for producer in producers for place in producer.kept)
        client = fleet.client(0, retries=LOOKS)
        wait_until_readable(client, "q", last)
        for reader in readers:
            reader.finish(client)

    kept = [place for producer in producers for place in producer.kept]
    gaps = sum(len(loss(kept, reader.places)) for reader in readers)
    repeats = sum(len(duplicates(reader.places)) for reader in readers)
    levels = {Bucket.of(message_id).level for _, message_id in kept}
    figures(
        "G5",
        spans=sum(reader.spans for reader in readers),
        messages=len(kept),
        buckets=len(buckets_of(producers)),
        gaps=gaps,
        repeats=repeats,
    )
    assert {0, FINEST} <= levels
    assert (gaps, repeats) == (0, 0)
    assert [reader.out_of_order for reader in readers] == [0] * len(readers)
