"""Figures that judge a run.

They are loss, duplicates, disorder, skips, torn batches, overlaps and latencies.

Pure functions over what was sent and what arrived. Tests, load runs and reports share them. Each function returns the
offenders themselves, so that a failure can name them; their number goes to the line of the guarantee
(:func:`report_line`). A checker is believed once it has found a planted fault:
``tests/unit/qdo/test_measure.py`` plants one of each.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, MutableSequence, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

__all__ = [
    "Held",
    "Served",
    "disorder",
    "duplicates",
    "longest_rise",
    "loss",
    "overlap",
    "percentiles",
    "report_line",
    "skipped",
    "torn",
]


class Ordered(Hashable, Protocol):
    """Anything with an order and a hash: sequence numbers, message ids."""

    def __lt__(self, other: Any, /) -> bool: ...


T = TypeVar("T", bound=Hashable)
O = TypeVar("O", bound=Ordered)  # noqa: E741  the order is the point
P = TypeVar("P", bound=Hashable)


def loss(acknowledged: Iterable[T], found: Iterable[T]) -> list[T]:
    """Acknowledged messages that were not found (G1).

    They come in the order of acknowledgement.

    >>> loss(["a", "b", "c"], ["c", "a"])
    ['b']
    """
    there = set(found)
    return [one for one in dict.fromkeys(acknowledged) if one not in there]


def duplicates(received: Iterable[T]) -> list[T]:
    """Every receipt after the first of the same message (G7).

    >>> duplicates(["a", "b", "a", "a"])
    ['a', 'a']
    """
    seen: Counter[T] = Counter()
    again = []
    for one in received:
        if seen[one]:
            again.append(one)
        seen[one] += 1
    return again


def disorder(received: Iterable[O]) -> tuple[float, float]:
    """How far messages are from their order, as received.

    The figures are the share out of order and the mean displacement.

    Messages out of order are those that must be taken out to leave the longest rising sequence. Displacement is the
    distance between a message's place and its place in order. Receipts after the first of the same message do not
    count.

    >>> disorder([2, 1, 3, 4, 5]), disorder([2, 3, 4, 5, 1])
    ((0.2, 0.4), (0.2, 1.6))
    >>> disorder([5, 4, 3, 2, 1]), disorder([])
    ((0.8, 2.4), (0.0, 0.0))

    :source: the two worked examples of the BDQS paper, and two of our own.
    """
    first = list(dict.fromkeys(received))
    if not first:
        return 0.0, 0.0
    place = {one: at for at, one in enumerate(sorted(first))}
    moved = sum(abs(at - place[one]) for at, one in enumerate(first))
    return (len(first) - longest_rise(first)) / len(first), moved / len(first)


def longest_rise(sequence: Iterable[O], ends: MutableSequence[O] | None = None) -> int:
    """Length of the longest strictly rising subsequence.

    It uses patience sorting: at worst n log n steps, and n if order is kept.

    :param ends: the state of a long sequence that is given in pieces: empty at first, then changed by each call. It
        holds, for each length, the least last element of a rise of that length. ``array("q")`` takes a quarter of the
        memory of a list.

    >>> ends = []
    >>> longest_rise([2, 3, 1], ends), longest_rise([2, 4], ends)
    (2, 3)
    """
    lowest: MutableSequence[O] = [] if ends is None else ends
    for one in sequence:
        if not lowest or lowest[-1] < one:
            lowest.append(one)
        else:
            lowest[bisect_left(lowest, one)] = one
    return len(lowest)


class Served(NamedTuple):
    """One answer to a reader that follows a partition."""

    partition: Hashable
    upto: Any
    """The watermark as an id: the answer claimed to be complete up to it, this id included."""
    ids: Collection[Any]


def skipped(acknowledged: Mapping[P, Iterable[O]], served: Iterable[Served]) -> dict[P, list[O]]:
    """Acknowledged messages that a reader should have got, and never did (G3).

    They lie at or below a watermark that the reader got.

    The acknowledged messages must not include any that expired or were deleted.

    :param acknowledged: ids by partition, in any order.
    :param served: the answers of one reader, in their order.
    :returns: the skipped ids in order, by partition; empty if there are none.

    >>> skipped({1: [10, 20, 30]}, [Served(1, 15, [10]), Served(1, 25, [])])
    {1: [20]}
    """
    due = {partition: sorted(set(ids)) for partition, ids in acknowledged.items()}
    looked_at: Counter[P] = Counter()
    given: dict[P, set[O]] = {partition: set() for partition in due}
    missing: dict[P, list[O]] = {}
    for answer in served:
        partition: Any = answer.partition
        if partition not in due:
            continue
        given[partition].update(answer.ids)
        ids, at = due[partition], looked_at[partition]
        while at < len(ids) and not answer.upto < ids[at]:
            if ids[at] not in given[partition]:
                missing.setdefault(partition, []).append(ids[at])
            at += 1
        looked_at[partition] = at
    return missing


def torn(batches: Iterable[Collection[T]], found: Iterable[T]) -> list[Collection[T]]:
    """Batches of which one part was found and another part was not (G2).

    A batch without any part is :func:`loss`.

    >>> torn([["a", "b"], ["c", "d"], ["e"]], ["a", "b", "d"])
    [['c', 'd']]
    """
    there = set(found)
    return [batch for batch in batches if 0 < sum(one in there for one in batch) < len(batch)]


class Held(NamedTuple):
    """A holder has a thing from ``start`` until just before ``end``.

    The thing may be a lease or a partition.
    """

    what: Hashable
    holder: Hashable
    start: float
    end: float


def overlap(intervals: Iterable[Held]) -> list[tuple[Held, Held]]:
    """Pairs of intervals in which two held one thing.

    Each began before an earlier one ended (G11, G15).

    >>> overlap([Held("lease", "a", 0, 10), Held("lease", "b", 10, 20), Held("other", "b", 5, 8)])
    []
    >>> [(one.holder, other.holder) for one, other in overlap([Held("x", "a", 0, 10), Held("x", "b", 9, 20)])]
    [('a', 'b')]
    """
    latest: dict[Hashable, Held] = {}
    found = []
    for interval in sorted(intervals, key=lambda held: (held.start, held.end)):
        earlier = latest.get(interval.what)
        if earlier is not None and interval.start < earlier.end:
            found.append((earlier, interval))
        if earlier is None or interval.end > earlier.end:
            latest[interval.what] = interval
    return found


def percentiles(values: Iterable[float], ranks: Sequence[float] = (50, 95, 99, 99.9, 100)) -> dict[float, float]:
    """By rank in percent: the least value that this share does not exceed.

    :raises ValueError: there are no values. A run without values proves nothing.

    >>> percentiles(range(1, 1001), (50, 99, 99.9, 100))
    {50: 500, 99: 990, 99.9: 999, 100: 1000}
    """
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    # A share such as 99.9 % of 1000 comes out a hair above 999 in binary: round before rounding up.
    return {rank: ordered[max(0, math.ceil(round(rank * len(ordered) / 100, 9)) - 1)] for rank in ranks}


def report_line(guarantee: str, **figures: object) -> str:
    """The line that a run prints for its guarantee.

    >>> report_line("G1", rounds=3, lost=0)
    'G1 rounds=3 lost=0'
    >>> report_line("G7", duplicates=2, all_marked=True, p99_ms=3.14159)
    'G7 duplicates=2 all_marked=yes p99_ms=3.142'
    """
    return " ".join([guarantee, *(f"{name}={_figure(value)}" for name, value in figures.items())])


def _figure(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
