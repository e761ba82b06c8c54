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
from typing import NamedTuple

import pytest

from qdo.client import Client, NewMessage
from qdo.measure import duplicates, loss
from queuey.clock import SystemClock
from queuey.ids import MessageId, format_timestamp
from queuey.storage.cassandra.allocation import FULL_ROWS
from queuey.storage.cassandra.buckets import FINEST, Bucket
from tests.support.effects import Place, place_of
from tests.support.figures import Figures
from tests.support.fleet import LOOKS, Fleet, wait_until_readable
from tests.support.node import busy
from tests.support.readers import Pages
from tests.support.servers import eventually
from tests.support.services.fixtures import Reached
from tests.support.traffic import plainly

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
    # Twice what fills them: meanwhile the time of a wider bucket may end, and the next one has to be filled.
    for _ in range(0, 2 * FINEST * FULL_ROWS, BATCH):
        last = plainly(client, "q", bodies)[-1].id
        if Bucket.of(last).level == FINEST:
            return last
    raise AssertionError("the server did not turn to the finest buckets")


def start_of(client: Client, last: MessageId) -> str:
    """Where the spans of the test begin: behind what filled the buckets."""
    wait_until_readable(client, "q", last)
    return format_timestamp(last.ticks + 1)


class Run(NamedTuple):
    """The producers, and the readers that read meanwhile."""

    producers: list[Producer]
    readers: list[Pages]


def read_while_appended(fleet: Fleet, chance: random.Random, buckets: int, seconds: float) -> Run | None:
    """Append to a queue whose wider buckets are full, and read it, until what is kept lies in this number of buckets.

    :returns: None if the ten-minute bucket ended before that: then the servers go on with the next one, which has room.
    """
    client = fleet.client(0)
    client.create_queue("q", partitions=3)
    filled = fill(client)
    run = Run(
        [Producer(each, chance) for each in fleet.clients()],
        [Pages(limit, newest_first, since=start_of(client, filled)) for limit, newest_first in WAYS],
    )

    def over() -> bool:
        return Bucket.at(FINEST - 1, SystemClock().now_ticks()) != Bucket.at(FINEST - 1, filled.ticks)

    steps = [partial(reader.step, chance.choice(fleet.clients())) for reader in run.readers]
    with busy(*(producer.step for producer in run.producers), *steps):
        eventually(lambda: len(buckets_of(run.producers)) >= buckets or over(), seconds=seconds)
    if len(buckets_of(run.producers)) >= buckets:
        return run
    client.delete_queue("q")
    return None


@pytest.mark.drawn
def test_pages_join_over_the_edges_of_buckets(
    tmp_path: Path, cassandra_node: Reached, rounds: Callable[[int], range], chance: random.Random, figures: Figures
) -> None:
    with Fleet(tmp_path, cassandra_node, servers=2, replication=1) as fleet:
        buckets, seconds = len(rounds(BUCKETS)), 150 * len(rounds(1))
        run = read_while_appended(fleet, chance, buckets, seconds) or read_while_appended(
            fleet, chance, buckets, seconds
        )
        assert run is not None  # there are not two such ends within the time of a test
        producers, readers = run
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
