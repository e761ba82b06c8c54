"""Counters: what a group changes counts once it is on disk, and until then nobody relies on what it changes."""

from __future__ import annotations

from queuey.storage.sqlite.counters import CounterReading, Counters, Totals

A, B, C = (bytes([number]) * 17 for number in (1, 2, 3))


def row(partition_key: bytes, body: bytes) -> list[object]:
    return [partition_key, 1, 2, 3, 4, None, None, body, None]


def test_rows_count_for_partitions_with_a_counter() -> None:
    counters = Counters()
    assert not counters.begin_group().is_counting
    counters.join([A, B])

    group = counters.begin_group()
    assert group.is_counting
    group.add_rows([*row(A, b"12"), *row(C, b"xxxxx"), *row(A, b"345")])
    group.add(B, 7, 70)
    group.add(B, -1, -10)
    assert group.changes == {A: (2, 5), B: (6, 60)}

    counters.keep(group)
    counters.end_group()
    assert {key: joined.since for key, joined in counters.join([A, B]).items()} == {A: (2, 5), B: (6, 60)}


def test_what_is_undone_does_not_count() -> None:
    counters = Counters()
    counters.join([A, B])
    group = counters.begin_group()
    group.add(A, 1, 10)
    before = group.so_far()
    group.add(A, 1, 10)
    group.add(B, 1, 10)

    group.restore(before)

    assert group.changes == {A: (1, 10), B: (0, 0)}


def test_the_counter_that_was_not_asked_for_longest_goes_first() -> None:
    counters = Counters(most=2)
    first = counters.join([A])[A]
    counters.join([B])
    assert first.is_new
    assert not counters.join([A])[A].is_new
    assert counters.seen(A) is not None
    counters.join([C])

    assert [counters.seen(key) is not None for key in (A, B, C)] == [True, False, True]
    counters.forget(A, counters.join([C])[C].counter)
    assert counters.seen(A) is not None
    counters.forget(A, first.counter)
    assert counters.seen(A) is None
    counters.forget_queue(C[:-1])
    assert len(counters) == 0


def test_a_counter_without_base_says_nothing() -> None:
    counters = Counters()
    joined = counters.join([A])[A]
    seen = counters.seen(A)
    assert seen is not None
    assert [joined.totals, counters.settled(A, seen)] == [None, None]

    joined.counter.base = Totals(3, 30)
    assert [joined.totals, counters.settled(A, seen)] == [(3, 30), (3, 30)]
    counters.forget_all()
    assert counters.settled(A, seen) is None


def test_seen_is_no_longer_settled_once_a_group_changes_it() -> None:
    """A counter and a snapshot are of one moment, or the committer is asked."""
    counters, key = Counters(), A
    joined = counters.join([key])[key]
    joined.counter.base = Totals(5, 50)
    seen = counters.seen(key)
    assert seen == CounterReading(joined.counter, joined.since, is_settled=True)
    assert counters.settled(key, seen) == (5, 50)

    group = counters.begin_group()
    group.add(B, 1, 1)
    assert counters.settled(key, seen) == (5, 50)
    group.add(key, 1, 7)
    assert counters.settled(key, seen) is None
    during = counters.seen(key)
    counters.keep(group)
    counters.end_group()

    assert during is not None
    assert counters.settled(key, seen) is None
    assert counters.settled(key, during) is None
    now = counters.seen(key)
    assert now is not None
    assert counters.settled(key, now) == (6, 57)
