"""What a receive comes to and does not hand out."""

from __future__ import annotations

import pytest

from queuey.model import Columns, Draft, encode_headers, receiving
from queuey.model.lease_groups import ORDER_BY_KEY, LeaseGroup
from queuey.model.lease_requests import Action, Settle
from queuey.model.lease_steps import GivenUp, HandedOut
from queuey.model.only_groups import for_group, only_for
from queuey.storage import LeaseStore
from queuey.storage.contract.common import QueueLog, done, draft
from queuey.storage.contract.lease_receiver import TOKEN, Receiver, WithLeases, bodies, settle_of
from queuey.storage.leasing import partition_book, passing, stepping

__all__ = ["PassingOver", "append_for"]

MOST_PASSED_OVER = 300
"""In one step of these tests."""


class PassingOver(WithLeases):
    """Messages that a receive comes to and does not hand out: a step looks at a bounded number of them."""

    @pytest.fixture
    def looks(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """How many messages each read of the log found, of a store that passes over few in one step."""
        looks: list[int] = []

        def noting(found: Columns, group: str) -> Columns:
            looks.append(len(found))
            return for_group(found, group)

        monkeypatch.setattr(partition_book, "for_group", noting)
        monkeypatch.setattr(passing, "MOST_PASSED_OVER", MOST_PASSED_OVER)
        return looks

    def test_messages_for_another_group_are_passed_over_in_steps(
        self, jobs: Receiver, leases: LeaseStore, log: QueueLog, looks: list[int]
    ) -> None:
        append_for(log, "others", 2000)
        log.add(b"mine")
        log.add(b"elsewhere", partition=2)
        assert bodies(jobs.receive(partitions=[1, 2])) == [b"elsewhere"], "no other partition waits"
        frontiers = []
        while not (handed := received(jobs, looks)):
            assert jobs.outcome.more
            assert jobs.outcome.next_due == jobs.outcome.now, "a receiver that waits looks again"
            frontiers.append(jobs.count().frontier)
        assert (bodies(handed), jobs.outcome.more) == ([b"mine"], False)
        assert 2000 / MOST_PASSED_OVER / 2 <= len(frontiers) <= 2000 / MOST_PASSED_OVER
        assert sorted({*frontiers}) == frontiers, "each step settles what it passed over"
        assert jobs.settle(handed[0])
        assert jobs.count()[2:4] == (0, 0)
        others = Receiver(leases, log, "others")
        others.new = LeaseGroup(TOKEN + 1)
        assert len(others.receive(1000, partitions=[1])) == 1000

    def test_a_message_is_found_between_those_for_another_group(
        self, jobs: Receiver, log: QueueLog, looks: list[int]
    ) -> None:
        for number in range(3):
            append_for(log, "others", 150)
            log.add(b"%d" % number)
        found = []
        for _ in range(3):
            found += bodies(received(jobs, looks, 9))
        assert found == [b"0", b"1", b"2"]

    def test_a_group_that_is_full_does_not_look_on(self, leases: LeaseStore, log: QueueLog, looks: list[int]) -> None:
        jobs = Receiver(leases, log, max_leased=1)
        log.add(b"0", b"1")
        append_for(log, "others", 1000)
        assert jobs.receive()
        for _ in range(3):
            assert not received(jobs, looks, 9)
            assert (jobs.outcome.more, jobs.outcome.is_full) == (False, True)

    def test_what_waits_behind_a_closed_key_is_passed_over_in_steps(
        self, leases: LeaseStore, log: QueueLog, looks: list[int]
    ) -> None:
        jobs = Receiver(leases, log, order=ORDER_BY_KEY)
        log.append(*[Draft(1, b"", 3600, None, "a")] * 1000, Draft(1, b"other", 3600, None, "b"))
        assert [one.message.key for one in jobs.receive()] == ["a"]
        steps = 0
        while not (handed := received(jobs, looks)):
            assert jobs.outcome.more
            steps += 1
        assert bodies(handed) == [b"other"]
        assert 2 <= steps <= 1000 / MOST_PASSED_OVER

    def test_messages_that_fail_too_often_are_given_up_in_steps(
        self, jobs: Receiver, leases: LeaseStore, log: QueueLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(receiving, "MOST_GIVEN_UP", 10)
        monkeypatch.setattr(stepping, "MOST_GIVEN_UP", 10)
        for partition in (1, 2):
            log.append(*[draft(b"bad", partition)] * 35)
        handed = jobs.receive(100)
        settles: dict[int, list[Settle]] = {1: [], 2: []}
        for one in handed:
            settles[one.partition].append(settle_of(one, Action.RELEASE, seconds=0.0))
        jobs.step(settles)
        before = done(leases.find_group(log.queue.uuid, jobs.name))
        assert before is not None
        group = before._replace(settings=before.settings._replace(max_failures=1))
        assert done(leases.keep_group(log.queue.uuid, jobs.name, group, before))
        log.add(b"good", partition=3)
        given_up: list[GivenUp] = []
        found: list[HandedOut] = []
        while not found:
            found = jobs.receive()
            given_up += jobs.outcome.given_up
            assert len(jobs.outcome.given_up) < 2 * 10
            assert found or jobs.outcome.more
        assert bodies(found) == [b"good"]
        assert {(one.partition, one.hole.id) for one in given_up} == {(one.partition, one.message.id) for one in handed}


def received(jobs: Receiver, looks: list[int], most: int = 1) -> list[HandedOut]:
    """Receive from one partition; what the step looks at is bounded."""
    looks.clear()
    handed = jobs.receive(most, partitions=[1])
    assert sum(looks) <= 2 * MOST_PASSED_OVER + 2 * passing.LEAST_TOGETHER
    return handed


def append_for(log: QueueLog, group: str, number: int) -> None:
    """Append messages that no other group gets."""
    log.append(*[draft(b"for another", headers=encode_headers(only_for({}, group)))] * number)
