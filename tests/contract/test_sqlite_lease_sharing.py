"""Steps of lease groups that share a commit: they are carried out together, and come to the same as one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from queuey.clock import ManualClock
from queuey.ids import ZERO_ID, IdGenerator
from queuey.model import AppendRequest, Location
from queuey.model.lease_groups import GroupSettings, LeaseGroup
from queuey.model.lease_requests import Acknowledged, ReceiveRequest
from queuey.model.lease_steps import GroupStep, HandedOut, LeaseStep
from queuey.storage.contract.common import QueueLog, done, draft, drive_histories
from queuey.storage.contract.lease_receiver import Receiver
from queuey.storage.leasing import joining
from queuey.storage.sqlite import SqliteStores
from tests.support.turning_loop import one_commit

KINDS = ("next", "first", "again", "nothing")
"""What a request settles: a message that no request before it does, one that others settle too, what is settled already."""
MOST_HELD = 9


class Sharing(RuleBasedStateMachine):
    """Receivers whose requests share commits, each with what it has in mind."""

    def __init__(self, path: Path, clock: ManualClock) -> None:
        super().__init__()
        self.path, self.clock = path, clock
        self.stores = self._open()
        self.log = QueueLog(self.stores.messages, clock)
        self.jobs = Receiver(self.stores.leases, self.log)
        self.jobs.token = self.log.queue.uuid.int >> 65
        self.jobs.new = LeaseGroup(self.jobs.token, settings=GroupSettings(max_held=MOST_HELD))
        self.held: list[HandedOut] = []
        """By the receivers."""
        self.settled: list[HandedOut] = []
        self.jobs.step()
        self.appended = self.seen = 0

    def _open(self) -> SqliteStores:
        return SqliteStores(self.path, self.clock, IdGenerator(self.clock))

    def teardown(self) -> None:
        self.stores.close()

    @rule(number=st.integers(1, 6))
    def append(self, number: int) -> None:
        self.log.append(*[draft(b"%d" % (self.appended + at)) for at in range(number)])
        self.appended += number

    @rule(asked=st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 3)), min_size=2, max_size=6))
    def share(self, asked: list[tuple[str, int]]) -> None:
        self.log.watermark()
        before, others, wanted = len(self.held), list(self.held), list[tuple[list[HandedOut], int]]()
        for kind, most in asked:
            some = others[:1] if kind == "next" else self.held[:1] if kind == "first" else self.settled[-2:]
            others = [one for one in others if one not in some]
            wanted.append(([] if kind == "nothing" else some, most))
        with one_commit(self.stores.file.committer):
            futures = [self.stores.leases.step(self._step(*one)) for one in wanted]
        outcomes = [done(future) for future in futures]
        for (settles, most), outcome in zip(wanted, outcomes, strict=True):
            assert len(outcome.stale) == len([one for one in settles if one not in self.held])
            self.settled += [one for one in settles if one in self.held]
            self.held = [one for one in self.held if one not in settles]
            assert len(outcome.handed) <= most
            for one in outcome.handed:
                assert int(one.message.body) == self.seen, "each once, and in order"
                self.seen += 1
                self.held.append(one)
        may_be_full = before + sum(most for _, most in wanted) > MOST_HELD
        were_given_all = all(len(outcome.handed) == most for (_, most), outcome in zip(wanted, outcomes, strict=True))
        assert were_given_all or self.seen == self.appended or may_be_full
        self._check()

    def _step(self, settles: list[HandedOut], most: int) -> LeaseStep:
        given = {1: Acknowledged([one.message.id for one in settles], [one.hole.deliveries for one in settles])}
        receive = ReceiveRequest(most, None) if most else None
        token = self.jobs.token if settles else None
        one = GroupStep(
            self.log.queue, "workers", self.jobs.new, token, given if settles else {}, (), (1,) if most else ()
        )
        return LeaseStep([one], receive=receive)

    @rule()
    def open_again(self) -> None:
        self.stores.close()
        self.stores = self._open()
        self.log.store = self.stores.messages
        self._check()

    def _check(self) -> None:
        _, holes = done(self.stores.leases.holes(self.log.queue.uuid, "workers", 1, after=ZERO_ID, limit=99))
        assert [hole.id for hole in holes] == sorted(one.message.id for one in self.held)
        assert all(hole.deliveries == 1 for hole in holes)


def test_steps_that_share_a_commit_are_carried_out_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together: list[int] = []

    def noted(*given: Any) -> list[Any]:
        found = carried_out(*given)
        together.append(len(found))
        return found

    carried_out = joining._carried_out
    monkeypatch.setattr(joining, "_carried_out", noted)
    drive_histories(lambda: Sharing(tmp_path / "queuey.db", ManualClock()), 12)
    sure = Sharing(tmp_path / "sure.db", ManualClock())  # what twelve histories may have left out
    sure.append(6)
    sure.share([("nothing", 2), ("nothing", 2)])
    sure.share([("next", 0), ("next", 1), ("nothing", 1)])
    sure.teardown()
    assert max(together) > 1


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Sharing]:
    """A queue that its group has not seen yet: the first step reads the group's state."""
    found = Sharing(tmp_path / "new.db", ManualClock())
    found.stores.leases.forget_group(found.log.queue.uuid, "workers").wait()
    yield found
    found.teardown()


def receive_next(jobs: Sharing) -> list[bytes]:
    jobs.log.watermark()
    return [one.message.body for one in done(jobs.stores.leases.step(jobs._step([], 9))).handed]


@pytest.mark.parametrize("append_first", [True, False])
def test_a_message_that_shares_a_commit_with_the_first_step_is_handed_out(jobs: Sharing, append_first: bool) -> None:
    def append() -> None:
        jobs.stores.messages.append(AppendRequest(jobs.log.queue, [draft(b"new")]))

    with one_commit(jobs.stores.file.committer):
        if append_first:
            append()
        step = jobs.stores.leases.step(jobs._step([], 9))
        if not append_first:
            append()

    assert [one.message.body for one in done(step).handed] == []
    assert receive_next(jobs) == [b"new"]


def test_a_message_that_is_deleted_in_the_commit_of_the_first_step_is_not_handed_out_later(jobs: Sharing) -> None:
    _, second, _ = jobs.log.add(b"1", b"2", b"3")
    jobs.log.watermark()

    with one_commit(jobs.stores.file.committer):
        delete = jobs.stores.messages.delete(jobs.log.queue, [Location(1, second)])
        step = jobs.stores.leases.step(jobs._step([], 1))
    done(delete)

    assert [one.message.body for one in done(step).handed] == [b"1"]
    assert receive_next(jobs) == [b"3"]
