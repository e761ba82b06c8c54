"""Ids: Cassandra's order, exact timestamps, and a generator that nothing makes fall."""

from __future__ import annotations

import os
import random
import struct
import threading
import uuid
from decimal import Decimal

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from queuey.clock import ManualClock
from queuey.ids import (
    EPOCH_TICKS,
    MAX_ID,
    MAX_TAIL,
    MAX_TICKS,
    MIN_TAIL,
    TICKS_PER_SECOND,
    ZERO_ID,
    IdGenerator,
    MessageId,
    format_timestamp,
    low_from_tail,
    parse_timestamp,
    tail_from_low,
    unique_bytes,
    unique_uuid,
)
from queuey.storage.cassandra.buckets import tail_for

TICKS = st.one_of(st.integers(0, MAX_TICKS), st.integers(0, 2), st.integers(EPOCH_TICKS, EPOCH_TICKS + 20 * 10**15))
EDGES = st.lists(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]), min_size=8, max_size=8)
LOWS = st.one_of(st.integers(0, (1 << 64) - 1), EDGES.map(lambda octets: int.from_bytes(bytes(octets), "big")))
VARIANT_LOWS = LOWS.map(lambda low: low & ~(0b11 << 62) | 0b10 << 62)
IDS = st.builds(lambda ticks, low: MessageId(ticks, tail_from_low(low)), TICKS, VARIANT_LOWS)
STEPS = st.lists(st.floats(-10, 10, allow_nan=False), max_size=20)


def cassandra_key(value: uuid.UUID) -> tuple[int, tuple[int, ...]]:
    """How Cassandra's TimeUUIDType compares: the time, then the last eight bytes one by one, each signed."""
    return value.time, struct.unpack("8b", value.bytes[8:])


@given(IDS, IDS)
def test_order_is_the_order_of_cassandra(one: MessageId, other: MessageId) -> None:
    keys = cassandra_key(one.uuid), cassandra_key(other.uuid)

    assert (one < other) == (keys[0] < keys[1])
    assert (one == other) == (keys[0] == keys[1])


@given(TICKS, VARIANT_LOWS, VARIANT_LOWS)
def test_order_within_a_tick_is_the_order_of_cassandra(ticks: int, low: int, other_low: int) -> None:
    one, other = MessageId(ticks, tail_from_low(low)), MessageId(ticks, tail_from_low(other_low))

    assert (one < other) == (cassandra_key(one.uuid) < cassandra_key(other.uuid))


def test_text_order_is_another_order() -> None:
    """Why the pair is kept inside and never the text."""
    earlier, later = MessageId(0xFFFFFFFF, tail_from_low(1 << 63)), MessageId(0x100000000, tail_from_low(1 << 63))

    assert earlier < later
    assert earlier.hex > later.hex


@given(LOWS)
def test_a_tail_turns_back_into_the_low_half(low: int) -> None:
    assert MIN_TAIL <= tail_from_low(low) <= MAX_TAIL
    assert low_from_tail(tail_from_low(low)) == low


@given(IDS)
def test_an_id_survives_every_form(id_: MessageId) -> None:
    assert MessageId.parse(id_.hex) == id_
    assert MessageId.parse(str(id_.uuid).upper()) == id_
    assert MessageId.from_bytes(id_.bytes) == id_
    assert MessageId.from_uuid(id_.uuid) == id_


@given(IDS)
def test_an_id_is_the_uuid_that_python_reads(id_: MessageId) -> None:
    assert id_.uuid.version == 1
    assert id_.uuid.variant == uuid.RFC_4122
    assert id_.uuid.time == id_.ticks
    assert id_.hex == id_.uuid.hex


@given(st.uuids())
def test_only_version_1_uuids_are_ids(value: uuid.UUID) -> None:
    assume(value.version != 1)

    with pytest.raises(ValueError, match="version 1"):
        MessageId.from_uuid(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1f9f6640e56711f189bf02fc0000000",
        "1f9f6640e56711f189bf02fc000000011",
        "1f9f6640e56711f189bf02fc0000000g",
        "1f9f6640e56721f189bf02fc00000001",
        "1f9f6640e56711f149bf02fc00000001",
        "1f9f6640e56711f1c9bf02fc00000001",
        " 1f9f6640e56711f189bf02fc00000001",
        "1f9f6640e56711f189bf02fc00000001\n",
        "0x9f6640e56711f189bf02fc00000001",
        "+f9f6640e56711f189bf02fc00000001",
        "\uff11f9f6640e56711f189bf02fc00000001",
        "1f9f_640e56711f189bf02fc00000001",
    ],
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"hexadecimal|version 1"):
        MessageId.parse(text)


@given(st.integers(0, MAX_TICKS))
def test_a_timestamp_is_exact(ticks: int) -> None:
    text = format_timestamp(ticks)

    assert Decimal(text) * TICKS_PER_SECOND == ticks - EPOCH_TICKS
    assert len(text.partition(".")[2]) == 7


@given(st.integers(EPOCH_TICKS, MAX_TICKS))
def test_a_timestamp_is_read_as_it_was_written(ticks: int) -> None:
    assert parse_timestamp(format_timestamp(ticks)) == ticks
    assert MessageId(ticks, 0).timestamp == format_timestamp(ticks)


@given(st.decimals(0, 30_000_000_000, places=12))
def test_what_is_finer_than_a_tick_is_cut_off(seconds: Decimal) -> None:
    assert parse_timestamp(f"{seconds:f}") == EPOCH_TICKS + int(seconds * TICKS_PER_SECOND)


@pytest.mark.parametrize(
    "text",
    ["", ".", "1.", ".5", "-1", "+1", "1e3", "1E3", "nan", "inf", "1_000", " 1", "1\n", "٣", "1.2.3", "0x1", "9" * 13],
)
def test_what_is_no_timestamp_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="decimal seconds"):
        parse_timestamp(text)


def test_a_timestamp_beyond_the_time_of_ids_is_refused() -> None:
    with pytest.raises(ValueError, match="beyond"):
        parse_timestamp("999999999999")


@given(IDS)
def test_bounds_enclose_the_ids_of_a_tick(id_: MessageId) -> None:
    assert ZERO_ID <= MessageId.first_of(id_.ticks) < id_ < MessageId.last_of(id_.ticks)
    assert MessageId.last_of(id_.ticks) <= MAX_ID
    assert MessageId.last_of(id_.ticks - 1) < MessageId.first_of(id_.ticks)


@given(IDS, IDS)
def test_nothing_lies_between_an_id_and_the_bound_before_it(id_: MessageId, other: MessageId) -> None:
    assert id_.before() < id_
    assert (other <= id_.before()) == (other < id_)


def test_the_bound_before_a_ticks_first_is_the_last_of_the_tick_before() -> None:
    assert MessageId.first_of(7).before() == MessageId.last_of(6)


# The generator


@given(STEPS, st.integers(1, 5))
def test_ids_rise_however_the_clock_steps(steps: list[float], count: int) -> None:
    """G4."""
    clock = ManualClock()
    ids = IdGenerator(clock)
    made = [ids.next_id()]
    for step in steps:
        clock.step(step)
        first = ids.stamp(count)
        made += [MessageId(first + at, ids.tail) for at in range(count)]

    assert made == sorted(set(made))
    assert ids.last_ticks == made[-1].ticks


def test_ids_follow_the_clock() -> None:
    clock = ManualClock()
    ids = IdGenerator(clock)
    clock.advance(100)

    assert ids.next_id().ticks == clock.now_ticks()
    assert ids.next_id().ticks == clock.now_ticks() + 1


def test_an_id_is_a_version_1_uuid_of_no_network_card() -> None:
    ids = IdGenerator(ManualClock())

    for id_ in (ids.next_id(), MessageId(ids.stamp(), ids.scheduled_tail())):
        assert MessageId.from_bytes(id_.bytes) == id_
        assert id_.uuid.node >> 40 & 1


def test_two_generators_make_different_ids() -> None:
    clock = ManualClock()

    assert len({IdGenerator(clock).next_id() for _ in range(100)}) == 100


def test_ids_stay_above_the_floor() -> None:
    clock = ManualClock()
    floor = clock.now_ticks() + 3600 * TICKS_PER_SECOND
    ids = IdGenerator(clock, floor_ticks=floor)

    assert ids.watermark() == floor
    assert ids.next_id().ticks == floor + 1

    ids.raise_floor(floor + 100)
    assert ids.next_id().ticks == floor + 101
    ids.raise_floor(floor)
    assert ids.next_id().ticks == floor + 102


def test_threads_never_share_a_tick() -> None:
    ids = IdGenerator(ManualClock())
    made: list[list[int]] = [[] for _ in range(4)]

    def work(mine: list[int]) -> None:
        for _ in range(500):
            first = ids.stamp(2)
            mine += (first, first + 1)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert all(mine == sorted(mine) for mine in made)
    assert len({tick for mine in made for tick in mine}) == 4 * 1000


def test_a_fork_draws_its_own_node_and_clock_sequence() -> None:
    """Parent and child share the clock and the last tick; their ids must differ all the same."""
    ids = IdGenerator(ManualClock())
    receive, send = os.pipe()

    child = os.fork()
    if child == 0:
        os.write(send, b"".join(ids.next_id().bytes for _ in range(100)))
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        raw = pipe.read()
    os.waitpid(child, 0)

    theirs = [MessageId.from_bytes(raw[at : at + 16]) for at in range(0, len(raw), 16)]
    ours = [ids.next_id() for _ in range(100)]
    assert len(theirs) == 100
    assert {id_.ticks for id_ in theirs} == {id_.ticks for id_ in ours}
    assert not set(theirs) & set(ours)
    assert {id_.uuid.node for id_ in theirs} != {id_.uuid.node for id_ in ours}


# Ids of messages due later


@given(st.lists(st.floats(0, 100_000, allow_nan=False), min_size=2, max_size=20))
def test_tails_for_one_due_tick_rise_with_each_call(waits: list[float]) -> None:
    clock = ManualClock()
    ids = IdGenerator(clock)
    due = clock.now_ticks() + 366 * 86_400 * TICKS_PER_SECOND
    made = []
    for wait in waits:
        made.append(MessageId(due, ids.scheduled_tail()))
        clock.advance(wait)

    assert made == sorted(set(made))
    assert [MessageId.from_bytes(id_.bytes) for id_ in made] == made
    assert [cassandra_key(id_.uuid) for id_ in made] == sorted(cassandra_key(id_.uuid) for id_ in made)


@given(waits=st.lists(st.floats(0, 1_000_000, allow_nan=False), min_size=1, max_size=20))
def test_an_id_tells_when_its_message_was_scheduled(waits: list[float]) -> None:
    clock = ManualClock()
    ids = IdGenerator(clock)
    made = []
    for wait in waits:
        assert ids.next_id().scheduled_at(clock.now_ticks()) is None
        made.append((MessageId(clock.now_ticks() + 10**9, ids.scheduled_tail()), ids.last_ticks))
        clock.advance(wait / len(waits))

    assert [id_.scheduled_at(ids.watermark()) for id_, _ in made] == [at for _, at in made]
    assert [MessageId.from_bytes(id_.bytes) for id_, _ in made] == [id_ for id_, _ in made]
    assert [MessageId(id_.ticks, tail_for(3, id_.tail)).scheduled_at(ids.watermark()) for id_, _ in made] == [
        at for _, at in made
    ]


def test_tails_stay_apart_where_their_counter_starts_over() -> None:
    clock = ManualClock((EPOCH_TICKS >> 47 << 47) + (1 << 47) - 5)
    ids = IdGenerator(clock)

    assert len({ids.scheduled_tail() for _ in range(10)}) == 10


# The watermark


def test_the_watermark_follows_the_clock_and_never_falls() -> None:
    clock = ManualClock()
    ids = IdGenerator(clock)

    first = ids.watermark()
    assert first == clock.now_ticks()
    clock.step(-60)
    assert ids.watermark() == first
    clock.step(120)
    assert ids.watermark() == clock.now_ticks()


def test_the_watermark_covers_every_stamp_once_no_group_is_open() -> None:
    ids = IdGenerator(ManualClock())

    last = ids.stamp(1000) + 999

    assert ids.watermark() == last


def test_no_stamp_falls_behind_a_watermark_that_was_served() -> None:
    clock = ManualClock()
    ids = IdGenerator(clock)

    for step in (0.0, 5.0, -5.0, 0.0):
        clock.step(step)
        served = ids.watermark()
        assert ids.stamp() > served


def test_an_open_group_holds_the_watermark_below_its_first_stamp() -> None:
    clock = ManualClock()
    ids = IdGenerator(clock)
    clock.advance(1)

    ids.open_group()
    before = ids.watermark()
    first = ids.stamp(10)
    clock.advance(60)
    ids.stamp()

    assert before < first
    assert ids.watermark() == before
    ids.close_group()
    assert ids.watermark() == clock.now_ticks()


@given(st.lists(st.tuples(st.sampled_from(["stamp", "open", "close", "look"]), st.floats(-2, 2, allow_nan=False))))
def test_the_watermark_is_exact(history: list[tuple[str, float]]) -> None:
    """It never falls, never passes a stamp of an open group, and covers all others."""
    clock = ManualClock()
    ids = IdGenerator(clock)
    served, closed, open_stamps, is_open = 0, [0], list[int](), False
    for what, step in history:
        clock.step(step)
        if what == "stamp":
            stamp = ids.stamp()
            assert stamp > served
            (open_stamps if is_open else closed).append(stamp)
        elif what == "open" and not is_open:
            ids.open_group()
            is_open = True
        elif what == "close":
            ids.close_group()
            closed += open_stamps
            open_stamps, is_open = [], False
        watermark = ids.watermark()
        assert watermark >= served
        assert watermark >= max(closed)
        assert all(watermark < stamp for stamp in open_stamps)
        served = watermark


def test_no_two_of_the_unique_ones_are_equal_whatever_a_program_seeds() -> None:
    state, found = random.getstate(), list[object]()
    for _ in range(3):
        random.seed(1)
        found += [unique_bytes(), unique_bytes(), unique_uuid(), unique_uuid()]
    random.setstate(state)
    assert len({*found}) == len(found)


def test_the_child_of_a_fork_makes_unique_ones_of_its_own() -> None:
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, unique_bytes())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        theirs = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    assert len(theirs) == 16
    assert theirs != unique_bytes()
