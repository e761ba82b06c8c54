"""What a worker has under way in one partition."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qdo.client.values import Message
from qdo.groups.assign import Partition
from qdo.groups.coordination import Claim, CommittedOffset
from qdo.worker.buffers import FetchedUpTo, KeyQueue, PartitionBuffer, Prefetched
from qdo.worker.fetching import cursor_of
from qdo.worker.job import Context, RetryPolicy
from queuey.clock import ManualClock
from queuey.ids import ZERO_ID, IdGenerator, MessageId

INCARNATION = "a" * 32
OTHER = "b" * 32


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def prefetched() -> Prefetched:
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


def buffer_of(
    prefetched: Prefetched,
    clock: ManualClock,
    number: int = 1,
    offset: CommittedOffset | None = None,
    *,
    key_queues: int = 1,
) -> PartitionBuffer:
    contexts = [
        Context(Claim(Partition("q", number), 1), member="m", group="g", clock=clock, value=None)
        for _ in range(key_queues)
    ]
    buffer = PartitionBuffer(Claim(Partition("q", number), 1), offset, contexts)
    prefetched.add(buffer)
    if offset is None:
        prefetched.start_over("q", INCARNATION, ZERO_ID)
    return buffer


def begun(prefetched: Prefetched, clock: ManualClock) -> KeyQueue:
    key_queue = prefetched.next_ready(clock.elapsed(), clock.elapsed)
    assert key_queue is not None
    return key_queue


def test_a_buffer_with_messages_is_run_by_one_thread_at_a_time(
    prefetched: Prefetched, clock: ManualClock, make: Maker
) -> None:
    buffer = buffer_of(prefetched, clock)
    prefetched.fill({1: buffer}, make.messages(2), more=True)

    assert begun(prefetched, clock).buffer is buffer
    prefetched.fill({1: buffer}, make.messages(1), more=True)
    prefetched.close()
    assert prefetched.next_ready(clock.elapsed(), clock.elapsed) is None


def test_what_is_finished_is_committed_up_to_the_last(prefetched: Prefetched, clock: ManualClock, make: Maker) -> None:
    buffer = buffer_of(prefetched, clock)
    first, second, third = make.messages(3)
    prefetched.fill({1: buffer}, [first, second, third], more=False)
    begun(prefetched, clock)

    assert prefetched.finished(buffer.key_queues[0], 1)
    assert prefetched.to_commit() == {buffer.claim: CommittedOffset(INCARNATION, first.id)}
    assert not prefetched.finished(buffer.key_queues[0], 2)
    offsets = prefetched.to_commit()
    assert offsets == {buffer.claim: CommittedOffset(INCARNATION, third.id)}
    assert not buffer.idle
    prefetched.end_turn(buffer.key_queues[0])
    prefetched.committed(offsets)
    assert prefetched.to_commit() == {}
    assert buffer.idle


def test_a_commit_that_was_overtaken_leaves_the_rest_to_commit(
    prefetched: Prefetched, clock: ManualClock, make: Maker
) -> None:
    buffer = buffer_of(prefetched, clock)
    first, second = make.messages(2)
    prefetched.fill({1: buffer}, [first, second], more=False)
    begun(prefetched, clock)
    prefetched.finished(buffer.key_queues[0], 1)
    sent = prefetched.to_commit()
    prefetched.finished(buffer.key_queues[0], 1)
    prefetched.committed(sent)

    assert prefetched.to_commit() == {buffer.claim: CommittedOffset(INCARNATION, second.id)}


def test_a_buffer_that_waits_for_another_attempt_holds_up_no_other(
    prefetched: Prefetched, clock: ManualClock, make: Maker
) -> None:
    failing, other = buffer_of(prefetched, clock, 1), buffer_of(prefetched, clock, 2)
    prefetched.fill({1: failing}, make.messages(2, 1), more=False)
    assert begun(prefetched, clock).buffer is failing
    prefetched.end_turn(failing.key_queues[0], clock.elapsed() + 5)
    prefetched.fill({2: other}, make.messages(1, 2), more=False)

    assert begun(prefetched, clock).buffer is other
    clock.advance(5)
    assert begun(prefetched, clock).buffer is failing


def test_a_full_buffer_asks_for_no_more(prefetched: Prefetched, clock: ManualClock, make: Maker) -> None:
    full, roomy = buffer_of(prefetched, clock, 1), buffer_of(prefetched, clock, 2)

    assert prefetched.wanting("q") == ([full, roomy], True)
    prefetched.fill({1: full}, make.messages(3), more=True)
    assert prefetched.wanting("q") == ([roomy], False)


def test_bytes_fetched_ahead_are_bounded_over_all_buffers(
    prefetched: Prefetched, clock: ManualClock, make: Maker
) -> None:
    buffer, _ = buffer_of(prefetched, clock, 1), buffer_of(prefetched, clock, 2)
    prefetched.fill({1: buffer}, make.messages(2, body=b"x" * 50), more=True)

    assert prefetched.wanting("q") == ([], False)
    begun(prefetched, clock)
    prefetched.finished(buffer.key_queues[0], 1)
    prefetched.end_turn(buffer.key_queues[0])
    assert prefetched.bytes == 50
    assert prefetched.wanting("q")[0]


def test_a_shut_buffer_begins_nothing_and_is_drained_when_all_is_committed(
    prefetched: Prefetched, clock: ManualClock, make: Maker
) -> None:
    buffer = buffer_of(prefetched, clock)
    prefetched.fill({1: buffer}, make.messages(3), more=True)
    begun(prefetched, clock)
    prefetched.shut([buffer.claim])

    assert prefetched.drained([buffer.claim]) == []
    assert not prefetched.finished(buffer.key_queues[0], 1)
    prefetched.end_turn(buffer.key_queues[0])
    assert prefetched.bytes == 0
    assert prefetched.drained([buffer.claim]) == []
    prefetched.committed(prefetched.to_commit())
    assert prefetched.drained([buffer.claim]) == [buffer.claim]
    prefetched.remove([buffer.claim])
    assert prefetched.all() == []
    assert prefetched.of_queue("q") == []


def test_messages_for_a_buffer_that_was_lost_meanwhile_are_dropped(
    prefetched: Prefetched, clock: ManualClock, make: Maker
) -> None:
    buffer = buffer_of(prefetched, clock)
    prefetched.remove([buffer.claim])
    prefetched.fill({1: buffer}, make.messages(2), more=False)

    assert prefetched.bytes == 0
    assert not buffer.key_queues[0].messages


def test_a_queue_made_anew_is_read_from_its_beginning(prefetched: Prefetched, clock: ManualClock, make: Maker) -> None:
    (done,) = make.messages(1)
    buffer = buffer_of(prefetched, clock, offset=CommittedOffset(INCARNATION, done.id))
    prefetched.start_over("q", INCARNATION, ZERO_ID)
    assert buffer.fetched == done.id

    prefetched.start_over("q", OTHER, ZERO_ID)
    assert buffer.fetched == ZERO_ID
    assert buffer.incarnation == OTHER
    assert prefetched.to_commit() == {}


def test_a_buffer_at_work_starts_over_when_its_turn_is_over(
    prefetched: Prefetched, clock: ManualClock, make: Maker
) -> None:
    buffer = buffer_of(prefetched, clock)
    prefetched.fill({1: buffer}, make.messages(1), more=False)
    begun(prefetched, clock)
    prefetched.start_over("q", OTHER, ZERO_ID)

    assert buffer.incarnation == INCARNATION
    prefetched.finished(buffer.key_queues[0], 1)
    prefetched.end_turn(buffer.key_queues[0])
    prefetched.start_over("q", OTHER, ZERO_ID)
    assert buffer.incarnation == OTHER
    assert not buffer.dirty


def test_a_cursor_names_each_buffer_s_own_place(prefetched: Prefetched, clock: ManualClock, make: Maker) -> None:
    first, second = buffer_of(prefetched, clock, 1), buffer_of(prefetched, clock, 12)
    (message,) = make.messages(1, 12)
    prefetched.fill({12: second}, [message], more=False)

    assert cursor_of({12: second, 1: first}, INCARNATION) == "~".join(
        [INCARNATION, f"1.{_place(ZERO_ID)}", f"12.{_place(message.id)}"]
    )


def _place(message_id: MessageId) -> str:
    return f"{message_id.ticks:015x}{message_id.tail % (1 << 64):016x}"


def test_key_queues_keep_the_order_of_a_key_and_pass_each_other(
    prefetched: Prefetched, clock: ManualClock, make: Maker
) -> None:
    buffer = buffer_of(prefetched, clock, key_queues=8)
    keys = ["a", "b", "a"]
    messages = [replace(message, key=key) for message, key in zip(make.messages(3), keys, strict=True)]
    prefetched.fill({1: buffer}, messages, more=False)
    first, second = sorted(
        (begun(prefetched, clock), begun(prefetched, clock)), key=lambda key_queue: -len(key_queue.messages)
    )

    assert [message.key for message in first.messages] == ["a", "a"]
    assert [message.key for message in second.messages] == ["b"]
    prefetched.finished(second, 1)
    prefetched.end_turn(second)
    assert prefetched.to_commit() == {}
    prefetched.finished(first, 1)
    assert prefetched.to_commit() == {buffer.claim: CommittedOffset(INCARNATION, messages[1].id)}
    prefetched.finished(first, 1)
    prefetched.end_turn(first)
    assert prefetched.to_commit() == {buffer.claim: CommittedOffset(INCARNATION, messages[2].id)}
    prefetched.committed(prefetched.to_commit())
    assert buffer.idle


def test_a_message_that_holds_up_the_offset_holds_up_the_fetching_too(
    prefetched: Prefetched, clock: ManualClock, make: Maker
) -> None:
    buffer = buffer_of(prefetched, clock, key_queues=2)
    slow, *quick = [replace(message, key=key) for message, key in zip(make.messages(3), "add", strict=True)]
    assert buffer.key_queue_of(slow) is not buffer.key_queue_of(quick[0])
    prefetched.fill({1: buffer}, [slow, *quick], more=True)
    prefetched.finished(buffer.key_queue_of(quick[0]), 2)

    assert prefetched.wanting("q") == ([], False)
    prefetched.finished(buffer.key_queue_of(slow), 1)
    assert prefetched.wanting("q") == ([buffer], True)


def test_a_policy_that_never_gives_up_pauses_no_longer_than_it_says() -> None:
    """Also when two to the power of the attempts is no number any more."""
    policy = RetryPolicy(attempts=1_000_000, most_seconds=60, jitter=0)

    assert [policy.pause(attempt) for attempt in (1, 100, 5000)] == [0.5, 60, 60]


def test_the_end_is_where_all_that_was_fetched_is_done_and_committed(
    prefetched: Prefetched, clock: ManualClock, make: Maker
) -> None:
    buffer = buffer_of(prefetched, clock)
    assert prefetched.places_at_end() is None  # nobody has asked yet
    prefetched.fill({1: buffer}, [], more=False)
    assert prefetched.places_at_end() == {"q": FetchedUpTo(INCARNATION, {1: ZERO_ID})}

    (message,) = make.messages(1)
    prefetched.fill({1: buffer}, [message], more=False)
    assert prefetched.places_at_end() is None
    begun(prefetched, clock)
    prefetched.finished(buffer.key_queues[0], 1)
    prefetched.end_turn(buffer.key_queues[0])
    assert prefetched.places_at_end() is None
    prefetched.committed(prefetched.to_commit())

    assert prefetched.places_at_end() == {"q": FetchedUpTo(INCARNATION, {1: message.id})}


def test_a_partition_in_which_nothing_may_begin_is_not_at_the_end(
    prefetched: Prefetched, clock: ManualClock, make: Maker
) -> None:
    """It is claimed anew, and messages that were fetched ahead are not done."""
    buffer = buffer_of(prefetched, clock)
    prefetched.fill({1: buffer}, make.messages(1), more=False)
    prefetched.shut([buffer.claim], commits=False)

    assert prefetched.fetched_if_over is None

    prefetched.remove([buffer.claim])
    assert prefetched.fetched_if_over == 1


def test_partitions_that_a_commit_left_out_come_first_in_the_next_one(
    prefetched: Prefetched, clock: ManualClock, make: Maker
) -> None:
    """Those that are always busy would keep the others from ever being recorded."""
    buffers = [buffer_of(prefetched, clock, number) for number in (1, 2, 3)]

    def finish_one(buffer: PartitionBuffer) -> None:
        (message,) = make.messages(1, buffer.claim.partition.number)
        prefetched.fill({message.partition: buffer}, [message], more=False)
        prefetched.finished(buffer.key_queues[0], 1)

    for buffer in buffers:
        finish_one(buffer)
    first, *_ = prefetched.to_commit().items()
    prefetched.committed(dict([first]))
    finish_one(buffers[0])

    assert [claim.partition.number for claim in prefetched.to_commit()] == [2, 3, 1]
