"""Counting in Cassandra: what cannot change is asked for once in a while, and all else each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from queuey.clock import ManualClock
from queuey.errors import StorageUnavailable
from queuey.future import Future
from queuey.ids import TICKS_PER_SECOND, IdGenerator, MessageId
from queuey.model import PartitionId
from queuey.storage.cassandra.bucket_counts import COUNTED_AGAIN_SECONDS, BucketCount, BucketCounts
from queuey.storage.cassandra.buckets import FINEST, Bucket, Mark
from queuey.storage.cassandra.counting import CassandraInspector
from queuey.storage.cassandra.server import CassandraServer, Timing

PARTITION = PartitionId(UUID(int=7), 1)


class Nodes:
    """Answers for a session, with a message in each of some buckets."""

    def __init__(self, buckets: list[Bucket], expires_ticks: int) -> None:
        self.buckets = buckets
        self.expires_ticks = expires_ticks
        self.asked: list[Bucket] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.fails = False

    def query_id(self, _: str) -> bytes:
        return b"id"

    @property
    def options(self) -> Any:
        return type("Options", (), {"most_calls": 10})

    def to_read(self, _: object) -> int:
        return 1

    def ask(self, name: str, values: tuple[Any, ...], _: int) -> Future[Any]:
        if name == "buckets_ascending":
            low, high = values[2:4]
            return Future.of(
                [
                    (one.number, Mark(one.level, 10, 10).number, None)
                    for one in self.buckets
                    if low <= one.number <= high
                ]
            )
        bucket, after, now = Bucket.from_number(values[2]), values[3], values[5]
        self.asked.append(bucket)
        self.meanwhile()
        if self.fails:
            return Future.failed(StorageUnavailable())
        one = MessageId.first_of(bucket.start)
        if self.expires_ticks <= now or one.uuid.time <= after.time:
            return Future.of([(0, None, None, 0, None)])
        return Future.of([(1, one.bytes, one.bytes, 9, self.expires_ticks)])


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def old(clock: ManualClock) -> Bucket:
    """A bucket that no append reaches any more."""
    return Bucket.at(FINEST, clock.now_ticks() - 3600 * TICKS_PER_SECOND)


@pytest.fixture
def nodes(clock: ManualClock, old: Bucket) -> Nodes:
    now = clock.now_ticks()
    wide, newest = Bucket.at(0, now), Bucket.at(FINEST, now)
    return Nodes([wide, old, newest], now + 600 * TICKS_PER_SECOND)


@pytest.fixture
def server(nodes: Nodes, clock: ManualClock) -> CassandraServer:
    return CassandraServer(nodes, clock, IdGenerator(clock), Timing())  # type: ignore[arg-type]


@pytest.fixture
def inspect(server: CassandraServer, nodes: Nodes, clock: ManualClock) -> Callable[[], list[Bucket]]:
    counting = CassandraInspector(server)

    def inspect() -> list[Bucket]:
        """Inspect, and tell which buckets were asked for."""
        nodes.asked.clear()
        state = server.underway.start(counting.inspect(PARTITION, clock.now_ticks())).wait(5)
        live = 3 * (nodes.expires_ticks > clock.now_ticks())
        assert (state.depth, state.bytes) == (live, 9 * live)
        return list(dict.fromkeys(nodes.asked))

    return inspect


def test_only_what_may_have_changed_is_counted(inspect: Callable[[], list[Bucket]], nodes: Nodes, old: Bucket) -> None:
    assert inspect() == nodes.buckets
    assert inspect() == [bucket for bucket in nodes.buckets if bucket != old]


def test_a_bucket_is_open_until_the_slowest_append_has_ended(
    inspect: Callable[[], list[Bucket]], nodes: Nodes, clock: ManualClock
) -> None:
    newest = nodes.buckets[-1]
    clock.advance((newest.end - clock.now_ticks()) / TICKS_PER_SECOND + 3.75)  # W, E and D
    assert newest in inspect()
    assert newest in inspect()
    clock.advance(0.001)
    assert newest in inspect()
    assert newest not in inspect()


def test_it_is_counted_again_after_a_minute(
    inspect: Callable[[], list[Bucket]], old: Bucket, clock: ManualClock
) -> None:
    inspect()
    clock.advance(COUNTED_AGAIN_SECONDS - 1)
    assert old not in inspect()
    clock.advance(1)
    assert old in inspect()


def test_it_is_counted_again_once_a_message_has_expired(
    inspect: Callable[[], list[Bucket]], nodes: Nodes, old: Bucket, clock: ManualClock
) -> None:
    nodes.expires_ticks = clock.now_ticks() + 1
    inspect()
    assert old not in inspect()
    clock.advance(1 / TICKS_PER_SECOND)
    assert old in inspect()


def test_what_this_server_changes_is_counted_again(
    inspect: Callable[[], list[Bucket]], server: CassandraServer, nodes: Nodes, old: Bucket
) -> None:
    inspect()
    server.counts.forget((PARTITION, old))
    nodes.meanwhile = lambda: server.counts.forget((PARTITION, old))
    assert old in inspect()
    assert old in inspect()
    nodes.meanwhile = lambda: None
    assert old in inspect()
    assert old not in inspect()


def test_a_count_that_fails_is_not_remembered(inspect: Callable[[], list[Bucket]], nodes: Nodes, old: Bucket) -> None:
    nodes.fails = True
    with pytest.raises(StorageUnavailable):
        inspect()
    nodes.fails = False
    assert old in inspect()


def test_the_bucket_that_was_not_asked_for_longest_is_forgotten_first() -> None:
    counts = BucketCounts(most=2)
    places = [(PARTITION, Bucket(1, ordinal)) for ordinal in range(3)]
    count = BucketCount(1, 1, None, None, 100)
    for place in places[:2]:
        counts.keep(place, counts.ask(place), count, 0.0)
    assert counts.find(places[0], 0, 0.0) == count
    counts.keep(places[2], counts.ask(places[2]), count, 0.0)

    assert [counts.find(place, 0, 0.0) is not None for place in places] == [True, False, True]
