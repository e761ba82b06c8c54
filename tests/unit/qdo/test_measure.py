"""Each checker finds the fault it is there for, and nothing where there is none."""

from __future__ import annotations

import random
from array import array
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdo.measure import (
    Held,
    Served,
    disorder,
    duplicates,
    longest_rise,
    loss,
    overlap,
    percentiles,
    report_line,
    skipped,
    torn,
)
from queuey.ids import MessageId

SENT = list(range(100))


def test_nothing_is_lost_where_everything_arrived_in_whatever_order() -> None:
    assert loss(SENT, random.Random(1).sample(SENT, 100)) == []


def test_one_lost_message_is_named() -> None:
    assert loss(SENT, [one for one in SENT if one != 37]) == [37]


def test_what_was_never_acknowledged_is_no_loss() -> None:
    assert loss([1, 2], [2, 1, 3]) == []


def test_a_message_acknowledged_twice_is_lost_once() -> None:
    assert loss([1, 1], []) == [1]


def test_no_duplicate_where_each_arrived_once() -> None:
    assert duplicates(SENT) == []


def test_one_duplicate_is_named() -> None:
    assert duplicates([*SENT, 37]) == [37]


def test_every_receipt_after_the_first_is_a_duplicate() -> None:
    assert duplicates([1, 2, 1, 2, 1]) == [1, 2, 1]


def test_order_is_no_disorder() -> None:
    assert disorder(SENT) == (0.0, 0.0)


def test_two_swapped_messages_are_one_out_of_order_and_two_displaced() -> None:
    swapped = SENT.copy()
    swapped[40], swapped[41] = swapped[41], swapped[40]

    assert disorder(swapped) == (0.01, 0.02)


def test_a_lost_message_is_no_disorder() -> None:
    assert disorder([one for one in SENT if one != 37]) == (0.0, 0.0)


def test_a_duplicate_is_no_disorder() -> None:
    assert disorder([1, 2, 1, 3, 2, 4]) == (0.0, 0.0)


def test_message_ids_are_compared_as_ids() -> None:
    assert disorder([MessageId(2, -5), MessageId(1, 7), MessageId(3, -9)]) == (1 / 3, 2 / 3)


@given(st.lists(st.integers(0, 9), max_size=8))
def test_disorder_is_what_trying_every_subsequence_says(received: list[int]) -> None:
    first = list(dict.fromkeys(received))
    rising = max(
        size for size in range(len(first) + 1) for kept in combinations(first, size) if list(kept) == sorted(kept)
    )

    assert disorder(received)[0] == ((len(first) - rising) / len(first) if first else 0.0)


ACKNOWLEDGED = {1: [10, 20, 30, 40], 2: [15, 25]}


def test_a_reader_that_was_served_everything_skipped_nothing() -> None:
    reads = [
        Served(1, 12, [10]),
        Served(2, 20, [15]),
        Served(1, 12, []),
        Served(1, 40, [20, 30, 40]),
        Served(2, 99, [25]),
    ]

    assert skipped(ACKNOWLEDGED, reads) == {}


def test_a_message_at_a_served_watermark_that_was_not_served_is_skipped() -> None:
    assert skipped(ACKNOWLEDGED, [Served(1, 20, [10]), Served(1, 40, [30, 40])]) == {1: [20]}


def test_a_message_served_only_after_its_watermark_was_skipped_all_the_same() -> None:
    assert skipped(ACKNOWLEDGED, [Served(1, 25, [10]), Served(1, 40, [20, 30, 40])]) == {1: [20]}


def test_a_message_above_every_watermark_is_not_skipped() -> None:
    assert skipped(ACKNOWLEDGED, [Served(1, 35, [10, 20, 30]), Served(2, 14, [])]) == {}


def test_a_message_of_another_partition_makes_up_for_nothing() -> None:
    assert skipped({1: [10], 2: [20]}, [Served(1, 50, [20]), Served(2, 50, [10])]) == {1: [10], 2: [20]}


def test_a_partition_nobody_wrote_to_or_read_skips_nothing() -> None:
    assert skipped({1: [10]}, [Served(2, 50, [])]) == {}


def test_watermarks_are_bounds_of_message_ids() -> None:
    first, second = MessageId(5, -1), MessageId(5, 1)

    assert skipped({1: [first, second]}, [Served(1, MessageId.last_of(5), [second])]) == {1: [first]}


@given(st.sets(st.integers(0, 60)), st.lists(st.integers(0, 60)), st.integers(0, 60))
def test_a_skip_planted_anywhere_is_found(ids: set[int], watermarks: list[int], victim: int) -> None:
    reads, after = [], -1
    for upto in sorted(watermarks):
        reads.append(Served("p", upto, [one for one in ids if after < one <= upto]))
        after = upto
    assert skipped({"p": ids}, reads) == {}

    lossy = [read._replace(ids=[one for one in read.ids if one != victim]) for read in reads]

    assert skipped({"p": ids}, lossy) == ({"p": [victim]} if victim in ids and victim <= after else {})


def test_whole_and_absent_batches_are_not_torn() -> None:
    assert torn([[1, 2, 3], [4, 5]], [3, 2, 1]) == []


def test_a_torn_batch_is_named() -> None:
    assert torn([[1, 2, 3], [4, 5]], [1, 2, 3, 5]) == [[4, 5]]


def test_intervals_that_meet_do_not_overlap() -> None:
    held = [Held("p1", "a", 0, 5), Held("p1", "b", 5, 7), Held("p2", "b", 0, 9), Held("p1", "a", 8, 9)]

    assert overlap(held) == []


def test_two_intervals_that_overlap_are_named() -> None:
    one, other = Held("p1", "a", 0, 5), Held("p1", "b", 4.9, 7)

    assert overlap([other, Held("p2", "a", 0, 9), one]) == [(one, other)]


def test_an_overlap_with_a_long_interval_is_found_behind_a_short_one() -> None:
    long, short, late = Held("p", "a", 0, 100), Held("p", "b", 1, 2), Held("p", "c", 50, 60)

    assert overlap([late, short, long]) == [(long, short), (long, late)]


def test_a_holder_may_not_hold_a_thing_twice_either() -> None:
    one, again = Held("p", "a", 0, 5), Held("p", "a", 3, 6)

    assert overlap([one, again]) == [(one, again)]


def test_percentiles_are_values_that_occurred() -> None:
    values = [0.5, 100.0, 1.5, 1.0]

    assert percentiles(values, (1, 50, 51, 75, 99, 100)) == {1: 0.5, 50: 1.0, 51: 1.5, 75: 1.5, 99: 100.0, 100: 100.0}


def test_one_value_is_every_percentile() -> None:
    assert set(percentiles([7.0]).values()) == {7.0}


def test_no_values_are_no_percentiles() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentiles([])


@given(st.lists(st.integers(), min_size=1), st.floats(0.001, 100))
def test_a_percentile_is_exceeded_by_the_rest_at_most(values: list[int], rank: float) -> None:
    found = percentiles(values, (rank,))[rank]

    assert sum(value <= found for value in values) >= rank * len(values) / 100 - 1e-6
    assert sum(value < found for value in values) < rank * len(values) / 100 + 1e-6


def test_a_report_line_keeps_the_order_of_its_figures() -> None:
    line = report_line("G3", acked=120, skipped=0, worst_s=0.25, repeated=False)

    assert line == "G3 acked=120 skipped=0 worst_s=0.250 repeated=no"


@given(st.lists(st.integers(0, 9), max_size=9), st.integers(0, 9))
def test_the_longest_rise_is_that_which_trying_all_finds_also_when_it_is_given_in_pieces(
    sequence: list[int], cut: int
) -> None:
    tried = (
        size
        for size in range(len(sequence), -1, -1)
        for chosen in combinations(sequence, size)
        if all(earlier < later for earlier, later in pairwise(chosen))
    )
    ends = array("q")

    longest_rise(sequence[:cut], ends)

    assert next(tried) == longest_rise(sequence) == longest_rise(sequence[cut:], ends)
