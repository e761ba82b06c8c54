"""What a worker has under way in one partition."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qdo.client.values import Message
from qdo.groups.assign import Partition
from qdo.groups.coordination import Claim, Offset
from qdo.worker.buffers import KeyQueue, PartitionBuffer, Prefetched, cursor_of
from qdo.worker.job import Context, RetryPolicy
from queuey.clock import ManualClock
from queuey.ids import ZERO_ID, IdGenerator, MessageId

INCARNATION = "a" * 32
OTHER = "b" * 32


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def lanes() -> Prefetched:
    return Prefetched(prefetch_messages=3, prefetch_bytes=100)


class Maker:
    """Messages with rising ids."""

    def __init__(self, clock: ManualClock) -> None:
        self._ids = IdGenerator(clock)

    def messages(self, count: int, number: int = 1, *, body: bytes = b"x") -> list[Message]:
        return [Message(self._ids.next_id(), number, body) for _ in range(count)]


@pytest.fixture
def make(clock: ManualClock) -> Maker:
    return Maker(clock)


def lane_of(
    lanes: Prefetched, clock: ManualClock, number: int = 1, offset: Offset | None = None, *, strands: int = 1
) -> PartitionBuffer:
    contexts = [Context("q", number, 1, member="m", group="g", clock=clock, value=None) for _ in range(strands)]
    lane = PartitionBuffer(Claim(Partition("q", number), 1), offset, contexts)
    lanes.add(lane)
    if offset is None:
        lanes.start_over("q", INCARNATION, ZERO_ID)
    return lane


def begun(lanes: Prefetched, clock: ManualClock) -> KeyQueue:
    strand = lanes.next_ready(clock.elapsed(), clock.elapsed)
    assert strand is not None
    return strand


def test_a_lane_with_messages_is_run_by_one_thread_at_a_time(
    lanes: Prefetched, clock: ManualClock, make: Maker
) -> None:
    lane = lane_of(lanes, clock)
    lanes.fill({1: lane}, make.messages(2), more=True)

    assert begun(lanes, clock).lane is lane
    lanes.fill({1: lane}, make.messages(1), more=True)
    lanes.close()
    assert lanes.next_ready(clock.elapsed(), clock.elapsed) is None


def test_what_is_finished_is_committed_up_to_the_last(lanes: Prefetched, clock: ManualClock, make: Maker) -> None:
    lane = lane_of(lanes, clock)
    first, second, third = make.messages(3)
    lanes.fill({1: lane}, [first, second, third], more=False)
    begun(lanes, clock)

    assert lanes.finished(lane.strands[0], 1)
    assert lanes.to_commit() == {lane.claim: Offset(INCARNATION, first.id)}
    assert not lanes.finished(lane.strands[0], 2)
    offsets = lanes.to_commit()
    assert offsets == {lane.claim: Offset(INCARNATION, third.id)}
    assert not lane.idle
    lanes.rest(lane.strands[0])
    lanes.committed(offsets)
    assert lanes.to_commit() == {}
    assert lane.idle


def test_a_commit_that_was_overtaken_leaves_the_rest_to_commit(
    lanes: Prefetched, clock: ManualClock, make: Maker
) -> None:
    lane = lane_of(lanes, clock)
    first, second = make.messages(2)
    lanes.fill({1: lane}, [first, second], more=False)
    begun(lanes, clock)
    lanes.finished(lane.strands[0], 1)
    sent = lanes.to_commit()
    lanes.finished(lane.strands[0], 1)
    lanes.committed(sent)

    assert lanes.to_commit() == {lane.claim: Offset(INCARNATION, second.id)}


def test_a_lane_that_waits_for_another_attempt_holds_up_no_other(
    lanes: Prefetched, clock: ManualClock, make: Maker
) -> None:
    failing, other = lane_of(lanes, clock, 1), lane_of(lanes, clock, 2)
    lanes.fill({1: failing}, make.messages(2, 1), more=False)
    assert begun(lanes, clock).lane is failing
    lanes.rest(failing.strands[0], clock.elapsed() + 5)
    lanes.fill({2: other}, make.messages(1, 2), more=False)

    assert begun(lanes, clock).lane is other
    clock.advance(5)
    assert begun(lanes, clock).lane is failing


def test_a_full_lane_asks_for_no_more(lanes: Prefetched, clock: ManualClock, make: Maker) -> None:
    full, hungry = lane_of(lanes, clock, 1), lane_of(lanes, clock, 2)

    assert lanes.hungry("q") == ([full, hungry], True)
    lanes.fill({1: full}, make.messages(3), more=True)
    assert lanes.hungry("q") == ([hungry], False)


def test_bytes_fetched_ahead_are_bounded_over_all_lanes(lanes: Prefetched, clock: ManualClock, make: Maker) -> None:
    lane, _ = lane_of(lanes, clock, 1), lane_of(lanes, clock, 2)
    lanes.fill({1: lane}, make.messages(2, body=b"x" * 50), more=True)

    assert lanes.hungry("q") == ([], False)
    begun(lanes, clock)
    lanes.finished(lane.strands[0], 1)
    lanes.rest(lane.strands[0])
    assert lanes.bytes == 50
    assert lanes.hungry("q")[0]


def test_a_shut_lane_begins_nothing_and_is_drained_when_all_is_committed(
    lanes: Prefetched, clock: ManualClock, make: Maker
) -> None:
    lane = lane_of(lanes, clock)
    lanes.fill({1: lane}, make.messages(3), more=True)
    begun(lanes, clock)
    lanes.shut([lane.claim])

    assert lanes.drained([lane.claim]) == []
    assert not lanes.finished(lane.strands[0], 1)
    lanes.rest(lane.strands[0])
    assert lanes.bytes == 0
    assert lanes.drained([lane.claim]) == []
    lanes.committed(lanes.to_commit())
    assert lanes.drained([lane.claim]) == [lane.claim]
    lanes.remove([lane.claim])
    assert len(lanes) == 0
    assert lanes.queues() == []


def test_messages_for_a_lane_that_was_lost_meanwhile_are_dropped(
    lanes: Prefetched, clock: ManualClock, make: Maker
) -> None:
    lane = lane_of(lanes, clock)
    lanes.remove([lane.claim])
    lanes.fill({1: lane}, make.messages(2), more=False)

    assert lanes.bytes == 0
    assert not lane.strands[0].buffer


def test_a_queue_made_anew_is_read_from_its_beginning(lanes: Prefetched, clock: ManualClock, make: Maker) -> None:
    (done,) = make.messages(1)
    lane = lane_of(lanes, clock, offset=Offset(INCARNATION, done.id))
    lanes.start_over("q", INCARNATION, ZERO_ID)
    assert lane.fetched == done.id

    lanes.start_over("q", OTHER, ZERO_ID)
    assert lane.fetched == ZERO_ID
    assert lane.incarnation == OTHER
    assert lanes.to_commit() == {}


def test_a_lane_at_work_starts_over_when_its_turn_is_over(lanes: Prefetched, clock: ManualClock, make: Maker) -> None:
    lane = lane_of(lanes, clock)
    lanes.fill({1: lane}, make.messages(1), more=False)
    begun(lanes, clock)
    lanes.start_over("q", OTHER, ZERO_ID)

    assert lane.incarnation == INCARNATION
    lanes.finished(lane.strands[0], 1)
    lanes.rest(lane.strands[0])
    lanes.start_over("q", OTHER, ZERO_ID)
    assert lane.incarnation == OTHER
    assert not lane.dirty


def test_a_cursor_names_each_lane_s_own_place(lanes: Prefetched, clock: ManualClock, make: Maker) -> None:
    first, second = lane_of(lanes, clock, 1), lane_of(lanes, clock, 12)
    (message,) = make.messages(1, 12)
    lanes.fill({12: second}, [message], more=False)

    assert cursor_of({12: second, 1: first}, INCARNATION) == "~".join(
        [INCARNATION, f"1.{_place(ZERO_ID)}", f"12.{_place(message.id)}"]
    )


def _place(message_id: MessageId) -> str:
    return f"{message_id.ticks:015x}{message_id.tail % (1 << 64):016x}"


def test_strands_keep_the_order_of_a_key_and_pass_each_other(
    lanes: Prefetched, clock: ManualClock, make: Maker
) -> None:
    lane = lane_of(lanes, clock, strands=8)
    keys = ["a", "b", "a"]
    messages = [replace(message, key=key) for message, key in zip(make.messages(3), keys, strict=True)]
    lanes.fill({1: lane}, messages, more=False)
    first, second = sorted((begun(lanes, clock), begun(lanes, clock)), key=lambda strand: -len(strand.buffer))

    assert [message.key for message in first.buffer] == ["a", "a"]
    assert [message.key for message in second.buffer] == ["b"]
    lanes.finished(second, 1)
    lanes.rest(second)
    assert lanes.to_commit() == {}
    lanes.finished(first, 1)
    assert lanes.to_commit() == {lane.claim: Offset(INCARNATION, messages[1].id)}
    lanes.finished(first, 1)
    lanes.rest(first)
    assert lanes.to_commit() == {lane.claim: Offset(INCARNATION, messages[2].id)}
    lanes.committed(lanes.to_commit())
    assert lane.idle


def test_a_message_that_holds_up_the_offset_holds_up_the_fetching_too(
    lanes: Prefetched, clock: ManualClock, make: Maker
) -> None:
    lane = lane_of(lanes, clock, strands=2)
    slow, *quick = [replace(message, key=key) for message, key in zip(make.messages(3), "add", strict=True)]
    assert lane.strand_of(slow) is not lane.strand_of(quick[0])
    lanes.fill({1: lane}, [slow, *quick], more=True)
    lanes.finished(lane.strand_of(quick[0]), 2)

    assert lanes.hungry("q") == ([], False)
    lanes.finished(lane.strand_of(slow), 1)
    assert lanes.hungry("q") == ([lane], True)


def test_a_policy_that_never_gives_up_pauses_no_longer_than_it_says() -> None:
    """Also when two to the power of the attempts is no number any more."""
    policy = RetryPolicy(attempts=1_000_000, most_seconds=60, jitter=0)

    assert [policy.pause(attempt) for attempt in (1, 100, 5000)] == [0.5, 60, 60]
