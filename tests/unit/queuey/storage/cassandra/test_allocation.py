"""What a server fills: the widest bucket first, then finer ones; no Cassandra partition without bound."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey.ids import TICKS_PER_SECOND
from queuey.model import Consistency, PartitionId
from queuey.storage.cassandra.allocation import FULL_BYTES, FULL_ROWS, BucketAllocator
from queuey.storage.cassandra.buckets import FINEST, WIDTHS, Bucket, Mark
from queuey.storage.cassandra.rows import PartitionKey, partition_key_of

PARTITION = PartitionId(UUID(int=1), 1)
START = 20_000 * WIDTHS[0]
"""The beginning of a bucket of every level."""


def a_place(partition: PartitionId, bucket: Bucket) -> PartitionKey:
    return partition_key_of(b"prepared", partition, bucket)


@pytest.fixture
def fills() -> BucketAllocator:
    return BucketAllocator(a_place)


def level_at(fills: BucketAllocator, ticks: int) -> int:
    return fills.choose(PARTITION, ticks).bucket.level


def test_a_sparse_partition_has_one_bucket_in_ten_days(fills: BucketAllocator) -> None:
    fill = fills.choose(PARTITION, START)

    assert fill.bucket == Bucket.at(0, START)
    assert fills.choose(PARTITION, START + WIDTHS[0] - 1) is fill
    assert fills.choose(PARTITION, START + WIDTHS[0]).bucket == Bucket.at(0, START + WIDTHS[0])


@pytest.mark.parametrize(("rows", "size"), [(FULL_ROWS, 0), (1, FULL_BYTES)])
def test_a_full_bucket_is_followed_by_finer_ones_down_to_the_finest(
    fills: BucketAllocator, rows: int, size: int
) -> None:
    levels = []
    for _ in range(FINEST + 3):
        fill = fills.choose(PARTITION, START)
        levels.append(fill.bucket.level)
        fill.add(rows, size)

    assert levels == [0, 1, 2, 3, 3, 3]


def test_the_next_stretch_of_time_begins_empty(fills: BucketAllocator) -> None:
    for _ in range(2):
        fills.choose(PARTITION, START).add(FULL_ROWS, 0)

    assert level_at(fills, START) == 2
    assert level_at(fills, START + WIDTHS[1]) == 1
    assert level_at(fills, START + WIDTHS[0]) == 0


def test_a_scheduled_message_has_the_bucket_of_its_moment_and_changes_nothing_for_those_of_now(
    fills: BucketAllocator,
) -> None:
    now = fills.choose(PARTITION, START)
    later = fills.choose(PARTITION, START + 3 * WIDTHS[0])
    now.add(FULL_ROWS, 0)

    assert later.bucket == Bucket.at(0, START + 3 * WIDTHS[0])
    assert later.has_room
    assert fills.choose(PARTITION, START + 3 * WIDTHS[0]) is later


def test_marks_are_remembered_with_their_bucket(fills: BucketAllocator) -> None:
    mark = Mark.of(0, 60, 10)
    fills.choose(PARTITION, START).learn(mark, Consistency.STRONG)

    assert fills.choose(PARTITION, START).marks == {mark: Consistency.STRONG}
    assert fills.choose(PARTITION, START + WIDTHS[0]).marks == {}


def test_partitions_are_forgotten_the_least_used_first() -> None:
    fills = BucketAllocator(a_place, most=2)
    first, second, third = (PartitionId(UUID(int=1), number) for number in (1, 2, 3))
    for partition in (first, second):
        fills.choose(partition, START).add(FULL_ROWS, 0)
    fills.choose(first, START)

    fills.choose(third, START)

    assert fills.choose(first, START).bucket.level == 1
    assert fills.choose(second, START).bucket.level == 0


APPENDS = st.lists(
    st.tuples(st.integers(0, 40 * TICKS_PER_SECOND), st.integers(1, FULL_ROWS), st.integers(0, FULL_BYTES)), max_size=60
)


@given(APPENDS)
def test_a_bucket_has_at_most_one_append_more_than_is_full_but_for_the_finest(
    appends: list[tuple[int, int, int]],
) -> None:
    """Whatever comes when; and none is passed over while a wider one has room."""
    fills = BucketAllocator(a_place)
    rows: Counter[Bucket] = Counter()
    now = START
    for later, count, size in appends:
        now += later
        fill = fills.choose(PARTITION, now)
        assert fill.bucket == Bucket.at(fill.bucket.level, now)
        assert fill.partition_key == a_place(PARTITION, fill.bucket)
        assert fill.has_room or fill.bucket.level == FINEST
        if fill.bucket.level < FINEST:
            assert rows[fill.bucket] < FULL_ROWS
        rows[fill.bucket] += count
        fill.add(count, size)


@given(st.lists(st.tuples(st.integers(0, 3 * WIDTHS[1]), st.integers(1, FULL_ROWS)), max_size=40))
def test_no_bucket_is_taken_while_a_wider_one_has_room(appends: list[tuple[int, int]]) -> None:
    fills = BucketAllocator(a_place)
    rows: Counter[Bucket] = Counter()
    for later, count in sorted(appends):
        fill = fills.choose(PARTITION, START + later)
        wider = [Bucket.at(level, START + later) for level in range(fill.bucket.level)]
        assert [rows[bucket] >= FULL_ROWS for bucket in wider] == [True] * len(wider)
        rows[fill.bucket] += count
        fill.add(count, 0)
