"""Reads stay flat: what was read and deleted before costs a reader of the head next to nothing.

What a read costs is counted, not timed: the queries it takes, and the rows and tombstones that the nodes step over for
them, as their own traces tell. (``tests/bench/on_cassandra/deleted.py`` has the time.) One way is the store's, the other
has a fault planted: nobody notes where the head is. There each read steps over all tombstones, or the comparison proves
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from queuey.clock import SystemClock
from queuey.ids import MAX_ID, ZERO_ID, IdGenerator, MessageId
from queuey.model import AppendRequest, Location, Queue, ReadRequest, Span
from queuey.storage.cassandra import allocation as cassandra_fills
from queuey.storage.cassandra import deleting as cassandra_deleting
from queuey.storage.cassandra.buckets import FINEST, Bucket
from queuey.storage.cassandra.messages import CassandraMessages
from queuey.storage.cassandra.server import Timing
from queuey.storage.cassandra.session import CassandraSession
from queuey.storage.contract.common import STRONG, done, draft
from tests.support.cassandra_stores import messages_of

PAGE = 100
BATCH = 1000
AT_ONCE = Timing(write_budget_seconds=0.0, read_delay_seconds=0.0)
"""One server, and a reader that asks once the writer was answered."""
MORE_QUERIES = 2
"""Where the last that were deleted, behind the head that was noted, lie in buckets of their own."""
STEPS = re.compile(r"Read (\d+) live rows and (\d+) tombstone cells")


@contextmanager
def server(session: CassandraSession) -> Iterator[CassandraMessages]:
    """A store whose background work has ended with it."""
    clock = SystemClock()
    store = messages_of(session, clock, IdGenerator(clock), AT_ONCE)
    try:
        yield store
    finally:
        store.close()


class Cost(NamedTuple):
    """What a read costs a cluster."""

    queries: int
    stepped_over: int
    """Tombstones, and rows that are not of the page: marks of buckets."""


class Line:
    """One partition of a queue of its own, read from its beginning."""

    def __init__(self) -> None:
        self.queue = Queue("app", "flat", uuid4(), SystemClock().now_ticks(), 1)

    def add(self, store: CassandraMessages, count: int) -> set[int]:
        """Append; the levels of the buckets."""
        levels = set[int]()
        for sent in range(0, count, BATCH):
            request = AppendRequest(self.queue, [draft(b"x" * 256)] * min(count - sent, BATCH))
            levels |= {Bucket.of(place.id).level for place in done(store.append(request)).placed}
        return levels

    def consume(self, store: CassandraMessages) -> None:
        """Read page after page, and delete each message of it."""
        after = ZERO_ID
        while True:
            page = done(store.read(ReadRequest(self.queue.partition(1), Span(after, MAX_ID), BATCH), now_ticks=0))
            if not page.messages:
                return
            after = page.messages[-1].id
            wanted = [Location(1, message.id) for message in page.messages]
            for some in range(0, len(wanted), PAGE):
                done(store.delete(self.queue, wanted[some : some + PAGE]))

    def read(self, store: CassandraMessages) -> None:
        """A page of the head."""
        now = store.watermark(STRONG)
        span = Span(upto=MessageId.last_of(now))
        page = done(store.read(ReadRequest(self.queue.partition(1), span, PAGE), now_ticks=now, consistency=STRONG))
        assert len(page.messages) == PAGE

    def cost(self, store: CassandraMessages) -> Cost:
        """Of such a page, for a reader that was there before."""
        self.read(store)
        with traced(store.appender.session) as asked:
            self.read(store)
        return Cost(len(asked), sum(map(stepped_over, asked)) - PAGE)


@contextmanager
def traced(session: CassandraSession) -> Iterator[list[Any]]:
    """The driver's futures of all queries meanwhile, which the nodes trace."""
    asked: list[Any] = []

    def seen(future: Any) -> None:
        future.message.tracing = True
        asked.append(future)

    session.driver.add_request_init_listener(seen)
    try:
        yield asked
    finally:
        session.driver.remove_request_init_listener(seen)


def stepped_over(future: Any) -> int:
    """Rows and tombstones of one query to the one node there is."""
    (trace,) = future.get_all_query_traces(max_wait_per=30.0)
    told = [STEPS.match(event.description) for event in trace.events]
    counts = [int(live) + int(dead) for live, dead in (one.groups() for one in told if one)]
    assert counts, f"the node does not tell what it read: {[event.description for event in trace.events]}"
    return sum(counts)


def costs_after(session: CassandraSession, consumed: int) -> tuple[Cost, Cost]:
    """What the head of a queue costs after messages were read and deleted, and what a new queue's head costs."""
    old, new = Line(), Line()
    with server(session) as store:
        assert old.add(store, consumed) == set(range(FINEST + 1))
        old.consume(store)
    with server(session) as store:
        for line in (old, new):
            line.add(store, PAGE)
        return old.cost(store), new.cost(store)


@pytest.fixture
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few messages, and yet buckets of all widths."""
    monkeypatch.setattr(cassandra_fills, "FULL_ROWS", 500)


def check(session: CassandraSession, consumed: int) -> None:
    old, new = costs_after(session, consumed)
    print(f"the head after {consumed:,} messages: {old}; of a new queue: {new}")
    assert old.queries <= new.queries + MORE_QUERIES
    assert old.stepped_over - new.stepped_over <= cassandra_deleting._DELETES_PER_HEAD


@pytest.mark.usefixtures("small_buckets")
@pytest.mark.parametrize("consumed", [8_000, 8_500])
def test_the_head_costs_no_more_after_many_were_read_and_deleted(session: CassandraSession, consumed: int) -> None:
    """Also where buckets of all widths were in use."""
    check(session, consumed)


@pytest.mark.long
def test_the_head_costs_no_more_after_a_million(session: CassandraSession) -> None:
    check(session, 1_000_000)


@pytest.mark.usefixtures("small_buckets")
def test_without_a_note_of_the_head_it_costs_more(session: CassandraSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault."""
    monkeypatch.setattr(cassandra_deleting, "_DELETES_PER_HEAD", inf)
    old, new = costs_after(session, 8_000)
    assert old.stepped_over - new.stepped_over >= 8_000
