"""Which bucket a message lies in, and what a mark promises of one."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND, MessageId, tail_from_low
from queuey.model import MAX_TTL_SECONDS
from queuey.storage.cassandra.buckets import FINEST, WIDTHS, Bucket, Mark, tail_for

LEVELS = st.integers(0, FINEST)
TICKS = st.integers(EPOCH_TICKS, EPOCH_TICKS + 200 * 365 * 86_400 * TICKS_PER_SECOND)
TAILS = st.integers(0, (1 << 62) - 1).map(lambda low: tail_from_low(1 << 63 | low))
"""Those of UUIDs."""
SIZES = st.integers(0, 64 << 20)
TTLS = st.integers(1, MAX_TTL_SECONDS)


def test_each_width_divides_the_one_before() -> None:
    """So a bucket lies in one bucket of each wider level, and begins and ends with it or inside."""
    assert [wide % narrow for wide, narrow in pairwise(WIDTHS)] == [0] * FINEST


@given(ticks=TICKS, level=LEVELS, tail=TAILS)
def test_an_id_tells_its_bucket(ticks: int, level: int, tail: int) -> None:
    message_id = MessageId(ticks, tail_for(level, tail))
    bucket = Bucket.of(message_id)

    assert bucket == Bucket.at(level, ticks)
    assert bucket.start <= ticks <= bucket.end
    assert bucket.end - bucket.start + 1 == WIDTHS[level]
    assert Bucket.of(MessageId.from_uuid(message_id.uuid)) == bucket


@given(level=LEVELS, other=LEVELS, tail=TAILS)
def test_a_level_takes_two_bits_of_a_tail_and_leaves_the_others(level: int, other: int, tail: int) -> None:
    assert tail_for(other, tail_for(level, tail)) == tail_for(other, tail)
    assert (tail_for(level, tail) ^ tail).bit_count() <= 2
    assert (tail_for(level, tail) < tail_for(other, tail)) == (level < other)


@given(ticks=TICKS, level=LEVELS)
def test_the_widest_bucket_is_around_each(ticks: int, level: int) -> None:
    bucket = Bucket.at(level, ticks)

    assert bucket.widest == Bucket.at(0, ticks)
    assert bucket.widest.start <= bucket.start < bucket.end <= bucket.widest.end


@given(st.lists(st.tuples(LEVELS, TICKS), min_size=2))
def test_numbers_sort_level_by_level_in_order_of_time_and_fit_their_column(places: list[tuple[int, int]]) -> None:
    buckets = [Bucket.at(*place) for place in places]

    assert [Bucket.from_number(bucket.number) for bucket in buckets] == buckets
    assert sorted(buckets, key=lambda bucket: bucket.number) == sorted(buckets)
    assert max(bucket.number for bucket in buckets) < 1 << 63


@given(level=LEVELS, ttl=TTLS, size=SIZES)
def test_a_mark_holds_what_it_was_made_for_and_not_twice_as_much(level: int, ttl: int, size: int) -> None:
    mark = Mark.of(level, ttl, size)

    assert Mark.from_number(mark.number) == mark
    assert mark.number < 1 << 31
    for value, power in ((ttl, mark.ttl_class), (size, mark.size_class)):
        assert value <= 1 << power
        assert power == 10 or value > 1 << (power - 1)


@given(level=LEVELS, now=TICKS, ahead=st.integers(0, 366 * 86_400 * TICKS_PER_SECOND), ttl=TTLS, size=SIZES)
def test_a_mark_outlives_every_message_it_speaks_for(level: int, now: int, ahead: int, ttl: int, size: int) -> None:
    """Those that come at the very end of their bucket as well, with the longest TTL that needs no other mark."""
    bucket = Bucket.at(level, now + ahead)
    mark = Mark.of(level, ttl, size)

    for at in (bucket, bucket.widest):
        last_expiry = at.end + (1 << mark.ttl_class) * TICKS_PER_SECOND
        assert now + mark.lives_seconds(at, now) * TICKS_PER_SECOND > last_expiry
