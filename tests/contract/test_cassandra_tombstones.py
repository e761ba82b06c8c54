"""Reads of what was deleted or has expired in masses, on a node that steps over few tombstones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from queuey.clock import ManualClock
from queuey.errors import StorageUnavailable
from queuey.ids import IdGenerator, MessageId
from queuey.model import Location
from queuey.storage.cassandra import allocation as cassandra_fills
from queuey.storage.cassandra.buckets import FINEST, Bucket
from queuey.storage.cassandra.cluster import Options
from queuey.storage.cassandra.schema import make_tables
from queuey.storage.cassandra.session import CassandraSession
from queuey.storage.contract.common import QueueLog, draft
from queuey.storage.contract.lease_receiver import settle_of
from tests.support.cassandra_stores import CassandraStores
from tests.support.lease_servers import LeaseServers, servers_over
from tests.support.servers import eventually
from tests.support.services.cassandra import Cassandra
from tests.support.services.fixtures import TIMEOUT_SECONDS

MOST, GONE = 60, 400
"""Tombstones that the node steps over, and messages that are deleted."""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CassandraSession]:
    with Cassandra(tmp_path_factory.mktemp("tombstones") / "cassandra", brittle=True, tombstones=MOST) as node:
        options = Options(timeout_seconds=TIMEOUT_SECONDS, hosts=node.contact_points, port=node.port, keyspace="few")
        make_tables(options, "1")
        with closing(CassandraSession(options)) as session:
            yield session


@pytest.fixture
def lease_servers(session: CassandraSession) -> Iterator[LeaseServers]:
    with servers_over(session) as servers:
        yield servers


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(session: CassandraSession, clock: ManualClock) -> Iterator[QueueLog]:
    with closing(CassandraStores(session, clock, IdGenerator(clock))) as stores:
        yield QueueLog(stores.messages, clock)


def append(log: QueueLog, number: int) -> list[MessageId]:
    """Messages one after the other, some seconds apart."""
    ids: list[MessageId] = []
    for _ in range(number // 10):
        ids += [place.id for place in log.append(*[draft(b"%d" % at) for at in range(10)]).placed]
        log.clock.advance(1.0)
    return ids


def lose(log: QueueLog, ids: list[MessageId]) -> None:
    for start in range(0, len(ids), 50):
        log.delete(*[Location(1, id_) for id_ in ids[start : start + 50]])


@pytest.mark.parametrize("rows", [20_000, 150], ids=["one bucket", "buckets of all widths"])
def test_a_queue_is_read_and_counted_over_all_that_is_gone(
    log: QueueLog, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three servers put 60,000 messages into a bucket. Once they had expired, the queue could not be read for weeks."""
    monkeypatch.setattr(cassandra_fills, "FULL_ROWS", rows)
    (first,), gone, (last,) = log.add(b"first"), append(log, GONE), log.add(b"last")
    log.clock.advance(10.0)
    lose(log, gone)

    for how in ({}, {"limit": 1}, {"with_bodies": False}, {"newest_first": True}):
        page = log.read(**how)
        ids = [message.id for message in page.messages]
        assert ids == {"limit": [first], "newest_first": [last, first]}.get(next(iter(how), ""), [first, last])
        assert page.more == ("limit" in how)
    (state,) = log.inspect(1)
    assert (state.depth, state.oldest, state.newest) == (2, first, last)
    assert log.count_span(limit=10).messages == 2


def test_the_next_reader_begins_behind_what_is_gone(log: QueueLog, session: CassandraSession) -> None:
    lose(log, append(log, GONE))
    log.clock.advance(10.0)
    (last,) = log.add(b"last")
    log.clock.advance(10.0)
    text = f"select head from {session.options.keyspace}.buckets where queue = %s and part = 1 limit 1"  # noqa: S608

    def head() -> MessageId | None:
        ((found,),) = session.driver.execute(text, (log.queue.uuid,))
        return None if found is None else MessageId.from_uuid(found)

    assert head() is None
    assert [message.id for message in log.read().messages] == [last]
    assert eventually(lambda: head() == last, seconds=60)
    assert [message.id for message in log.read().messages] == [last]


@pytest.mark.parametrize("newest_first", [False, True])
def test_marks_that_are_gone_hide_none_that_is_there(
    log: QueueLog, session: CassandraSession, monkeypatch: pytest.MonkeyPatch, newest_first: bool
) -> None:
    """A partition of ten thousand messages a second, none of which lives for long, loses 8,640 marks a day."""
    monkeypatch.setattr(cassandra_fills, "FULL_ROWS", 1)
    there = log.add(*[b"%d" % number for number in range(6)])
    log.clock.advance(10.0)
    text = f"delete from {session.options.keyspace}.buckets where queue = %s and part = 1 and bucket = %s"  # noqa: S608
    for level in range(FINEST + 1):
        at = Bucket.at(level, there[0].ticks).number
        for number in range(at - 2 * MOST, at):
            session.driver.execute(text, (log.queue.uuid, number))

    (state,), page = log.inspect(1), log.read(newest_first=newest_first)
    assert state.depth == len(there)
    assert [message.id for message in page.messages] == sorted(there, reverse=newest_first)


def test_what_lies_in_one_tick_is_not_read(log: QueueLog) -> None:
    """No append puts so much there."""
    due = log.clock.now_ticks() + 10_000_000
    gone = [place.id for place in log.append(*[draft(due_ticks=due) for _ in range(2 * MOST)]).placed]
    log.clock.advance(10.0)
    lose(log, gone)

    with pytest.raises(StorageUnavailable, match="tombstones"):
        log.read()


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "weak"])
def test_a_group_hands_out_behind_all_that_it_has_settled(lease_servers: LeaseServers, exact: bool) -> None:
    server = lease_servers.another()
    jobs = server.jobs(exact=exact)
    append(server.log, GONE)
    server.clock.advance(10.0)
    settled = 0
    while settled < GONE:
        found = jobs.receive(7)
        jobs.step({1: [settle_of(one) for one in found]})
        settled += len(found)
    append(server.log, 10)
    server.clock.advance(10.0)

    assert len(jobs.receive(5)) == 5
    other = lease_servers.another()
    assert len(other.jobs(server).receive(10)) == 5
