"""Reads stay flat: what was read and deleted before costs a reader of the head next to nothing.

One way is the store's, the other has a fault planted: nobody notes where the head is. There each read steps over all
tombstones, or the comparison proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from statistics import median
from time import perf_counter
from uuid import uuid4

import pytest

from queuey.clock import SystemClock
from queuey.ids import MAX_ID, ZERO_ID, IdGenerator, MessageId
from queuey.model import AppendRequest, Queue, Span
from queuey.storage import cassandra_fills, cassandra_messages
from queuey.storage.cassandra_buckets import FINEST, Bucket
from queuey.storage.cassandra_messages import CassandraMessages, Timing
from queuey.storage.cassandra_session import CassandraSession
from queuey.storage.contract.common import STRONG, done, draft

MOST = 1.5
"""Times the cost of a new queue's head."""
PAGE = 100
BATCH = 1000
TURNS = 40
ROUNDS = 5
AT_ONCE = Timing(write_budget_seconds=0.0, read_delay_seconds=0.0)
"""One server, and a reader who asks once the writer was answered."""


@pytest.fixture
def store(session: CassandraSession) -> Iterator[CassandraMessages]:
    clock = SystemClock()
    store = CassandraMessages(session, clock, IdGenerator(clock), timing=AT_ONCE, guard=None)
    yield store
    store.close()


class Line:
    """One partition of a queue of its own, read from its beginning."""

    def __init__(self, store: CassandraMessages) -> None:
        self.store = store
        self.queue = Queue("app", "flat", uuid4(), store.clock.now_ticks(), 1)

    def add(self, count: int) -> set[int]:
        """Append; the levels of the buckets."""
        levels = set[int]()
        request = AppendRequest(self.queue, [draft(b"x" * 256)] * min(count, BATCH))
        for _ in range(0, count, BATCH):
            levels |= {Bucket.of(place.id).level for place in done(self.store.append(request)).placed}
        return levels

    def consume(self) -> None:
        """Read page after page, and delete each message of it."""
        after = ZERO_ID
        while True:
            page = done(self.store.read(self.queue.partition(1), Span(after, MAX_ID), limit=BATCH, now_ticks=0))
            if not page.messages:
                return
            after = page.messages[-1].id
            wanted = [(1, message.id) for message in page.messages]
            for some in range(0, len(wanted), PAGE):
                done(self.store.delete(self.queue, wanted[some : some + PAGE]))

    def read_seconds(self) -> float:
        """How long the head takes."""
        now = self.store.watermark(STRONG)
        span, began = Span(upto=MessageId.last_of(now)), perf_counter()
        page = done(self.store.read(self.queue.partition(1), span, limit=PAGE, now_ticks=now, consistency=STRONG))
        took = perf_counter() - began
        assert len(page.messages) == PAGE
        return took


def times_as_much(old: Line, new: Line) -> float:
    """How much the head of one costs, compared with that of the other; in the calmest of some rounds."""
    found = []
    for _ in range(ROUNDS):
        turns = [(old.read_seconds(), new.read_seconds()) for _ in range(TURNS)]
        found.append(median(one for one, _ in turns) / median(other for _, other in turns))
    return min(found)


@pytest.mark.parametrize(
    ("consumed", "full_rows"),
    [
        (8_000, 500),
        pytest.param(1_000_000, cassandra_fills.FULL_ROWS, marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    ],
)
def test_the_head_costs_no_more_after_many_were_read_and_deleted(
    store: CassandraMessages, monkeypatch: pytest.MonkeyPatch, consumed: int, full_rows: int
) -> None:
    """Also where buckets of all widths were in use."""
    monkeypatch.setattr(cassandra_fills, "FULL_ROWS", full_rows)
    new, old = Line(store), Line(store)
    assert old.add(consumed) == set(range(FINEST + 1))

    old.consume()
    for line in (old, new):
        line.add(PAGE)

    costs = times_as_much(old, new)
    print(f"the head after {consumed:,} messages costs {costs:.2f} times that of a new queue")
    assert costs <= MOST


def test_without_a_note_of_the_head_it_costs_more(store: CassandraMessages, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault."""
    monkeypatch.setattr(cassandra_messages, "_DELETES_PER_HEAD", inf)
    new, old = Line(store), Line(store)
    old.add(8_000)

    old.consume()
    for line in (old, new):
        line.add(PAGE)

    assert times_as_much(old, new) > MOST
