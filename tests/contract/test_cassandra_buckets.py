"""The Cassandra store where everything is small: buckets of a row, two marks a query, a head after every third deletion.

So spans, pages and histories of a few messages cross the edges that others meet once in ten thousand messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any
from uuid import uuid4

import pytest
from cassandra import ConsistencyLevel

from queuey.clock import ManualClock
from queuey.future import Future, start
from queuey.ids import MAX_ID, TICKS_PER_SECOND, ZERO_ID, IdGenerator, MessageId
from queuey.model import AppendRequest, Consistency, Draft, Location, Overwrite, Queue, ReadRequest, Span
from queuey.storage import MessageStore
from queuey.storage.cassandra import allocation as cassandra_fills
from queuey.storage.cassandra import bucket_scan as cassandra_walk
from queuey.storage.cassandra import deleting as cassandra_deleting
from queuey.storage.cassandra import pages as cassandra_pages
from queuey.storage.cassandra.buckets import FINEST, WIDTHS, Bucket
from queuey.storage.cassandra.large_answers import LARGE_BYTES
from queuey.storage.cassandra.messages import CassandraMessages
from queuey.storage.cassandra.session import CassandraSession, Rows
from queuey.storage.contract import PartitionHistory
from queuey.storage.contract.common import QueueLog, done, draft, drive_histories
from queuey.storage.contract.reading import CountingSpans, Fetching, Reading
from tests.support.cassandra_stores import CassandraStores, messages_of
from tests.support.servers import eventually


@pytest.fixture
def stores(
    session: CassandraSession, clock: ManualClock, ids: IdGenerator, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CassandraStores]:
    monkeypatch.setattr(cassandra_fills, "FULL_ROWS", 1)
    monkeypatch.setattr(cassandra_walk, "_MARKS", 2)
    monkeypatch.setattr(cassandra_pages, "_FIRST_ROWS", 2)
    monkeypatch.setattr(cassandra_deleting, "_DELETES_PER_HEAD", 3)
    stores = CassandraStores(session, clock, ids)
    yield stores
    stores.close()


def _rows_read(session: CassandraSession, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of each query for messages, from now on."""
    asks, found = session.ask, list[int]()

    async def counted(name: str, *values: Any, **how: Any) -> Rows:
        rows = await asks(name, *values, **how)
        if name.startswith("read_"):
            found.append(len(rows))
        return rows

    monkeypatch.setattr(session, "ask", lambda *values, **how: start(counted(*values, **how)))
    return found


def to_the_edge(clock: ManualClock) -> None:
    """Let time pass until a batch of 600 begins in one ten-second bucket and ends in the next."""
    width = WIDTHS[FINEST]
    clock.advance(1.0)
    clock.advance((width - clock.now_ticks() % width - 300) / TICKS_PER_SECOND)


def test_marks_of_a_weak_queue_are_written_again_once_it_is_stronger(
    session: CassandraSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers of a quorum passed its later messages where one replica alone had the mark."""
    tell, levels = session.tell_together, list[int]()

    def tells(name: str, rows: Sequence[Sequence[Any]], level: int) -> Future[Rows]:
        levels.append(level)
        return tell(name, rows, level)

    monkeypatch.setattr(session, "tell_together", tells)
    clock, uuid = ManualClock(), uuid4()
    stores = CassandraStores(session, clock, IdGenerator(clock))
    for consistency in (Consistency.WEAK, Consistency.WEAK, Consistency.STRONG, Consistency.STRONG):
        queue = Queue("app", "q", uuid, 0, consistency=consistency)
        done(stores.messages.append(AppendRequest(queue, [Draft(1, b"one", 60)])))
    stores.close()

    assert levels == [ConsistencyLevel.ONE, ConsistencyLevel.QUORUM]


class TestSmallBuckets(Reading, Fetching, CountingSpans):
    """Reading as in every store, and what is about edges."""

    histories = 6

    def test_any_history_reads_as_the_model_says(self, store: MessageStore, clock: ManualClock) -> None:
        drive_histories(lambda: PartitionHistory(store, clock), self.histories)

    def test_pages_join_over_the_edges_of_all_buckets(self, store: CassandraMessages, clock: ManualClock) -> None:
        log, kept, crossed = QueueLog(store, clock), list[MessageId](), 0
        for _ in range(6):
            kept += log.add(b"one", b"two", b"three", b"four")
            to_the_edge(clock)
            crossing = [place.id for place in log.append(*[draft() for _ in range(600)]).placed]
            kept += crossing[::40]
            crossed += len({Bucket.of(one) for one in crossing}) > 1
            log.delete(*[(1, one) for at, one in enumerate(crossing) if at % 40])

        for newest_first, limit in product((False, True), (1, 7, 1000)):
            got, low, high, more = list[MessageId](), ZERO_ID, MAX_ID, True
            while more:
                page = log.read(1, low, high, limit=limit, newest_first=newest_first)
                got += [message.id for message in page.messages]
                low, high, more = (low, got[-1].before(), page.more) if newest_first else (got[-1], high, page.more)
            assert got == sorted(kept, reverse=newest_first), limit
        assert {Bucket.of(one).level for one in kept} == set(range(FINEST + 1))
        assert crossed == 6

    def test_what_another_server_puts_below_a_head_that_is_remembered_is_read(
        self, store: CassandraMessages, session: CassandraSession, clock: ManualClock, ids: IdGenerator
    ) -> None:
        """A reader begins at the head it met last, unless it was forgotten since."""
        log = QueueLog(store, clock)
        placed = log.add(*[b"x"] * 6)
        clock.advance(11 * 86_400.0)  # so that the head lies in another of the widest buckets
        placed += log.add(*[b"x"] * 6)
        clock.advance(3.0)
        log.delete(*[(1, one) for one in placed[:6]])

        def remembers() -> bool:
            assert log.bodies() == [b"x"] * 6
            guess = store.hints.guess(log.queue.partition(1))
            return guess is not None and guess.head_ticks == placed[6].ticks

        assert eventually(remembers)
        other = messages_of(session, clock, ids)
        done(other.put(log.queue, [Location(1, placed[5])], Overwrite(b"back", 600)))

        assert log.bodies() == [b"back", *[b"x"] * 6]
        other.close()

    @pytest.mark.parametrize(("size", "most_queries", "most_rows"), [(1000, 2, 12), (1, 6, 48)], ids=["large", "small"])
    def test_a_page_reads_few_bytes_more_than_it_has(
        self,
        session: CassandraSession,
        clock: ManualClock,
        ids: IdGenerator,
        monkeypatch: pytest.MonkeyPatch,
        size: int,
        most_queries: int,
        most_rows: int,
    ) -> None:
        """A node was asked for 16 MiB for an answer of 4, and all that the server asked it for meanwhile had to wait."""
        monkeypatch.setattr(cassandra_fills, "FULL_ROWS", 1000)
        store = messages_of(session, clock, ids)
        log = QueueLog(store, clock)
        log.append(draft(b"x" * 1000), *[draft(b"x" * size)] * 39)
        found = _rows_read(session, monkeypatch)
        page = log.read(max_bytes=5000)

        assert len(page.messages) == (5 if size == 1000 else 40)
        assert len(found) <= most_queries
        assert 0 < sum(found) <= most_rows
        store.close()

    def test_pages_at_once_ask_a_node_for_few_bytes_at_a_time(
        self, session: CassandraSession, clock: ManualClock, ids: IdGenerator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Eight of 4 MiB at once kept the driver's heartbeat waiting, and all calls were refused for half a minute."""
        monkeypatch.setattr(cassandra_fills, "FULL_ROWS", 1000)
        store = messages_of(session, clock, ids)
        log = QueueLog(store, clock)
        log.append(*[draft(b"x" * LARGE_BYTES)] * 4)
        wanted = ReadRequest(log.queue.partition(1), Span(ZERO_ID, MessageId.last_of(log.watermark())), 1000)
        sends, under_way, most = session._send, list[str](), list[int]()

        async def counted(name: str, *values: Any, **how: Any) -> Rows:
            under_way.append(name)
            most.append(sum(one.startswith("read_") for one in under_way))
            try:
                return await sends(name, *values, **how)
            finally:
                under_way.remove(name)

        monkeypatch.setattr(session, "_send", lambda *values, **how: start(counted(*values, **how)))
        pages = [store.read(wanted, now_ticks=clock.now_ticks()) for _ in range(12)]

        assert [len(page.wait(60).messages) for page in pages] == [4] * 12
        assert max(most) == 1
        store.close()

    @pytest.mark.parametrize("newest_first", [False, True], ids=["oldest first", "newest first"])
    def test_a_page_asks_the_bucket_that_has_its_rows_and_not_each_bucket_of_its_time(
        self,
        session: CassandraSession,
        clock: ManualClock,
        ids: IdGenerator,
        monkeypatch: pytest.MonkeyPatch,
        newest_first: bool,
    ) -> None:
        """Each bucket of one time was asked for a whole page: a lease group read three rows for each that it could hand out."""
        monkeypatch.setattr(cassandra_fills, "FULL_ROWS", 50)
        monkeypatch.setattr(cassandra_pages, "_FIRST_ROWS", 5)
        store = messages_of(session, clock, ids)
        log = QueueLog(store, clock)
        placed = [one.id for _ in range(3) for one in log.append(*[draft(b"x")] * 50).placed]
        found = _rows_read(session, monkeypatch)
        page = log.read(limit=40, newest_first=newest_first)

        ends = sorted(placed, reverse=newest_first)
        assert [message.id for message in page.messages] == ends[:40]
        assert page.more
        assert 0 < sum(found) <= 40 + 1 + len(WIDTHS) * 5
        store.close()
