"""Histories of receivers that wait: none waits while there is a message for it."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from queuey.future import Future
from queuey.model.lease_steps import LeaseOutcome
from queuey.service.waiting.rooms import BLOCKED_REST_SECONDS
from tests.support.waiting_receivers import Receivers

_LEAST_RESTS, _MOST_RESTS = 3, 20
_PARTITIONS = st.sampled_from([(1, 2), (1,), (2,)])


class WaitingHistory(RuleBasedStateMachine):
    """Any history of appends, receivers of some partitions, leases and time."""

    def __init__(self) -> None:
        super().__init__()
        self.receivers = Receivers()
        self.waiting: list[tuple[Future[LeaseOutcome], Sequence[int]]] = []
        self.handed: list[LeaseOutcome] = []
        self.receivers.wait(0.1)  # makes the group
        self.receivers.pass_time(1)

    @rule(
        partition=st.integers(1, 2),
        number=st.integers(1, 3),
        size=st.sampled_from([1, 50]),
        seconds=st.sampled_from([0.0, 2.0]),
    )
    def append(self, partition: int, number: int, size: int, seconds: float) -> None:
        self.receivers.append(*[b"x" * size] * number, seconds=seconds, partition=partition)

    @rule(
        seconds=st.sampled_from([4.0, 900.0]),
        partitions=_PARTITIONS,
        visibility=st.sampled_from([1.0, 3.0, 600.0]),
        max_bytes=st.sampled_from([8, 1000]),
    )
    def wait(self, seconds: float, partitions: Sequence[int], visibility: float, max_bytes: int) -> None:
        outcome = self.receivers.wait(seconds, partitions=partitions, visibility=visibility, max_bytes=max_bytes)
        self.waiting.append((outcome, partitions))

    @precondition(lambda self: self.handed)
    @rule(any_=st.integers(0, 100))
    def acknowledge(self, any_: int) -> None:
        self.receivers.acknowledge(self.handed.pop(any_ % len(self.handed)))

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0]))
    def pass_time(self, seconds: float) -> None:
        self.receivers.pass_time(seconds)

    @invariant()
    def nobody_waits_for_what_is_there(self) -> None:
        for at in range(_MOST_RESTS):  # what is due may rest so long, and a lease that ran out be due a tick later
            if at >= _LEAST_RESTS and not self.receivers.look_soon():
                break
            self.receivers.pass_time(2 * BLOCKED_REST_SECONDS)
        self.handed += [outcome.result() for outcome, _ in self.waiting if outcome.done]
        self.waiting = [one for one in self.waiting if not one[0].done]
        for partitions in {numbers for _, numbers in self.waiting}:
            assert not self.receivers.would_find(partitions)

    def teardown(self) -> None:
        self.receivers.service.close()


def test_nobody_waits_for_what_is_there() -> None:
    usual = settings(max_examples=50, stateful_step_count=30, deadline=None)
    run_state_machine_as_test(WaitingHistory, settings=usual)
