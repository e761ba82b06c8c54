"""What a receiver does between its requests."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from qdo.bench.bodies import NO_KEY, MessageName, Payload, body_of
from qdo.bench.clock import SECOND
from qdo.bench.drivers import BlockingConsumer, Consumer, Delivered, MeasuredSystem
from qdo.bench.pace import at_once, thread_sleep
from qdo.bench.receivers import Distinct, InOrder, LoadReceiver, OpenMessages, ReceiverContext, run_receivers
from qdo.bench.records import ReceivedRow
from queuey.errors import OutcomeUnknown
from tests.support.bench_by_clock import CountingClock, workload_of

MOST_LOOKS = 1000


class OneMessage(Consumer):
    """Has one message, and then nothing, which it says at once."""

    def __init__(self, clock: CountingClock) -> None:
        self.asked = 0
        now = clock.now()
        self._body = body_of(1, MessageName(0, 0, NO_KEY, now, now, now), Payload.of(b""))

    def receive(self, wait: float) -> Sequence[Delivered]:
        self.asked += 1
        return [Delivered(self._body, "token")] if self.asked == 1 else []


@pytest.mark.parametrize("several", [False, True])
def test_a_receiver_that_keeps_its_messages_sleeps_meanwhile(several: bool) -> None:
    clock = CountingClock()
    workload = workload_of(consumerPerSubscription=3, receiving={"holders": 2, "visibility": 1, "wait": 1})
    target = MeasuredSystem(workload, 1, {}, clock)
    holders = [OneMessage(clock) for _ in range(2 if several else 1)]
    context = ReceiverContext(target, Distinct(), OpenMessages(workload), thread_sleep(clock))
    receivers = [LoadReceiver(context, BlockingConsumer(holder), 0, at) for at, holder in enumerate(holders)]
    rows: list[ReceivedRow] = []
    over, looks = clock.now() + SECOND // 2, itertools.count()

    out = InOrder(rows.append)
    at_once(run_receivers(receivers, context, out, lambda: clock.now() > over or next(looks) == MOST_LOOKS))

    assert [holder.asked for holder in holders] == [1] * len(holders)
    assert next(looks) < MOST_LOOKS
    assert len(rows) == len(holders)


def test_a_message_is_counted_once_in_each_view_however_far_apart_the_numbers_are() -> None:
    distinct = Distinct()

    for view, stream, number in [(0, 0, 0), (0, 0, 5_000), (0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 1, 0), (0, 0, 5_000)]:
        distinct.note(view, stream, number)

    assert distinct.count == 4


def test_rows_are_written_by_their_arrival_whoever_is_done_first() -> None:
    rows: list[ReceivedRow] = []
    out = InOrder(rows.append)
    first, second, third = (ReceivedRow(0, 0, 0, at, NO_KEY, 0, 0, 0, 0, 0, at, 0, 0, 0) for at in range(3))

    slow, quick, last = out.arrived(), out.arrived(), out.arrived()
    out.done(quick, [second])
    assert rows == []
    out.done(slow, [first])
    assert rows == [first, second]
    out.done(last, [third])
    assert rows == [first, second, third]


def test_a_receive_without_an_answer_is_counted_by_its_subscription() -> None:
    class Away(OneMessage):
        def receive(self, wait: float) -> Sequence[Delivered]:
            raise OutcomeUnknown

    clock = CountingClock()
    target = MeasuredSystem(workload_of(consumerPerSubscription=2, subscriptionsPerTopic=2), 1, {}, clock)
    context = ReceiverContext(target, Distinct(), OpenMessages(target.workload), thread_sleep(clock))
    receivers = [LoadReceiver(context, BlockingConsumer(Away(clock)), at // 2, at) for at in (0, 2, 3)]

    came = [at_once(receiver.step(0.0, InOrder(lambda row: None))) for receiver in receivers]

    assert came == [False] * 3
    assert context.unanswered == {0: 1, 1: 2}
