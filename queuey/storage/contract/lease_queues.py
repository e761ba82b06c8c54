"""Steps of lease groups of several queues."""

from __future__ import annotations

from collections.abc import Sequence

from queuey.model import IdempotencyKey
from queuey.model.lease_groups import LeaseGroup
from queuey.model.lease_requests import ReceiveRequest
from queuey.model.lease_steps import GroupStep, HandedOut, LeaseStep
from queuey.storage import LeaseStore
from queuey.storage.contract.common import QueueLog, done
from queuey.storage.contract.lease_receiver import Receiver, WithLeases, bodies, settle_of

__all__ = ["SeveralQueues"]


class SeveralQueues(WithLeases):
    """One step of several queues."""

    def test_several_queues_take_part_in_one_step(self, jobs: Receiver, log: QueueLog, leases: LeaseStore) -> None:
        other = QueueLog(log.store, log.clock)
        log.add(b"0", b"2")
        other.add(b"1")
        log.watermark()
        groups = [
            GroupStep(one.queue, "g", LeaseGroup(token), receive_from=[1]) for token, one in enumerate((log, other))
        ]
        outcome = done(leases.step(LeaseStep(groups, receive=ReceiveRequest(3))))
        assert sorted(bodies(outcome.handed)) == [b"0", b"1", b"2"]
        assert {one.message.body: one.group for one in outcome.handed} == {b"0": 0, b"2": 0, b"1": 1}
        settles = [
            replace_settles(group, at, [one for one in outcome.handed if one.group == at])
            for at, group in enumerate(groups)
        ]
        assert not done(leases.step(LeaseStep(settles))).stale
        assert done(leases.step(LeaseStep(settles))).stale == [(0, 1, 0), (0, 1, 1), (1, 1, 0)]

    def test_queues_hand_out_by_their_turns(self, log: QueueLog, leases: LeaseStore) -> None:
        logs = [log, QueueLog(log.store, log.clock), QueueLog(log.store, log.clock)]
        for number, one in enumerate(logs):
            one.add(b"%d" % number, b"%d" % (number + 3))
        log.watermark()
        groups = [GroupStep(one.queue, "g", LeaseGroup(token), receive_from=[1]) for token, one in enumerate(logs)]
        taken = []
        for turns, most in (((2, 0, 1), 1), ((1, 2, 0), 4), ((0, 1, 2), 9)):
            outcome = done(leases.step(LeaseStep(groups, receive=ReceiveRequest(most), turns=turns)))
            taken.append({one.message.body: one.group for one in outcome.handed})
        assert taken == [{b"2": 2}, {b"1": 1, b"4": 1, b"5": 2, b"0": 0}, {b"3": 0}]

    def test_a_receiver_that_waits_for_several_queues_finds_its_answer_again(
        self, log: QueueLog, leases: LeaseStore
    ) -> None:
        logs = [log, QueueLog(log.store, log.clock)]
        logs[1].add(b"0")
        log.watermark()
        groups = [GroupStep(one.queue, "g", LeaseGroup(token), receive_from=[1]) for token, one in enumerate(logs)]
        attempt = IdempotencyKey("a1", b"")
        step = LeaseStep(groups, receive=ReceiveRequest(9), attempt=attempt, looks_again=True, turns=(0, 1))
        first = done(leases.step(step))
        logs[0].add(b"later")
        log.watermark()
        again = done(leases.step(step._replace(turns=(1, 0))))
        assert bodies(first.handed) == [b"0"]
        assert list(again.handed) == list(first.handed)


def replace_settles(group: GroupStep, token: int, handed: Sequence[HandedOut]) -> GroupStep:
    """Acknowledge what the group handed out."""
    return group._replace(token=token, settles={1: [settle_of(one) for one in handed]}, receive_from=())
