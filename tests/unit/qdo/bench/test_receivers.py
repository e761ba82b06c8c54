"""What a receiver does between its requests."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from qdo.bench.bodies import NO_KEY, MessageName, Payload, body_of
from qdo.bench.clock import SECOND
from qdo.bench.drivers import Consumer, Delivered, MeasuredSystem
from qdo.bench.receivers import Distinct, LoadReceiver, run_receivers
from qdo.bench.records import ReceivedRow
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
    receivers = [LoadReceiver(target, holder, 0, at, Distinct()) for at, holder in enumerate(holders)]
    rows: list[ReceivedRow] = []
    over, looks = clock.now() + SECOND // 2, itertools.count()

    run_receivers(receivers, target, rows.append, lambda: clock.now() > over or next(looks) == MOST_LOOKS)

    assert [holder.asked for holder in holders] == [1] * len(holders)
    assert next(looks) < MOST_LOOKS
    assert len(rows) == len(holders)
