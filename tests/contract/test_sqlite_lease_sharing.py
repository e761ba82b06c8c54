"""Steps of lease groups that share a commit: they are carried out together, and come to the same as one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from queuey.clock import ManualClock
from queuey.future import Future
from queuey.ids import TICKS_PER_SECOND, IdGenerator
from queuey.model import Appended, AppendRequest, Location
from queuey.model.lease_steps import GroupStep
from queuey.storage.contract import SharingHistory
from queuey.storage.contract.common import done, draft, drive_histories
from queuey.storage.sqlite import SqliteStores
from queuey.storage.sqlite.transaction import Transaction
from tests.support.joined_steps import PLANTED, note_joined
from tests.support.turning_loop import one_commit


class Sharing(SharingHistory):
    """At one file."""

    appends_along = True

    def __init__(self, path: Path) -> None:
        clock = ManualClock()
        self.opened = [SqliteStores(path, clock, IdGenerator(clock))]

        def again() -> None:
            self.opened.pop().close()
            self.opened.append(SqliteStores(path, clock, IdGenerator(clock)))

        super().__init__(lambda: self.opened[0], clock, self._one_commit, again)

    def _one_commit(self, group: GroupStep) -> AbstractContextManager[None]:
        return one_commit(self.opened[0].file.committer)

    def teardown(self) -> None:
        self.opened[0].close()


def drive(tmp_path: Path, examples: int) -> None:
    drive_histories(lambda: Sharing(tmp_path / "queuey.db"), examples)
    sure = Sharing(tmp_path / "sure.db")  # what these histories may have left out
    sure.append([1, 2, 1, 1, 2, 1])
    sure.share([("nothing", 2), ("nothing", 2)])
    sure.share([("next", 0), ("next", 1), ("nothing", 1)])
    sure.append([1] * 12)
    sure.share([("nothing", 3)] * 4)
    few = Sharing(tmp_path / "few.db")
    few.append([1] * 6)
    few.share([("nothing", 1)])
    few.share([("nothing", 1)] * 2)
    few.share([("first", 1), ("nothing", 1)])
    more = Sharing(tmp_path / "more.db")
    more.append([1] * 6)
    more.share([("nothing", 1)])
    more.share([("nothing", 2)] * 2)
    for one in (sure, few, more):
        one.teardown()


def test_steps_that_share_a_commit_are_carried_out_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = note_joined(monkeypatch)
    drive(tmp_path, 12)
    assert max(joined) > 1


@pytest.mark.parametrize("fault", PLANTED)
def test_these_histories_find(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED[fault](monkeypatch)
    with pytest.raises(AssertionError):
        drive(tmp_path, 1)


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Sharing]:
    """A queue that its group has not seen yet: the first step reads the group's state."""
    found = Sharing(tmp_path / "new.db")
    done(found.stores().leases.forget_group(found.log.queue.uuid, "workers"))
    yield found
    found.teardown()


def receive_next(jobs: Sharing) -> list[bytes]:
    jobs.log.watermark()
    return [one.message.body for one in done(jobs.stores().leases.step(jobs.step([], 9))).handed]


@pytest.mark.parametrize("append_first", [True, False])
def test_a_message_that_shares_a_commit_with_the_first_step_is_handed_out(jobs: Sharing, append_first: bool) -> None:
    def append() -> None:
        jobs.stores().messages.append(AppendRequest(jobs.log.queue, [draft(b"new")]))

    with one_commit(jobs.opened[0].file.committer):
        if append_first:
            append()
        step = jobs.stores().leases.step(jobs.step([], 9))
        if not append_first:
            append()

    assert [one.message.body for one in done(step).handed] == [b"new"]
    assert receive_next(jobs) == []


@pytest.mark.parametrize("has_begun", [False, True])
@pytest.mark.parametrize("is_stored_before", [False, True])
def test_a_message_that_falls_due_between_those_of_a_commit_is_not_passed_over(
    jobs: Sharing, has_begun: bool, is_stored_before: bool
) -> None:
    def append(number: int, due: int | None = None) -> Future[Appended]:
        drafts = [draft(b"%d" % number, due_ticks=due)]
        return jobs.stores().messages.append(AppendRequest(jobs.log.queue, drafts))

    if has_begun:
        receive_next(jobs)
    soon = jobs.clock.now_ticks() + 3
    if is_stored_before:
        done(append(0, soon))

    with one_commit(jobs.opened[0].file.committer):
        append(1)
        if not is_stored_before:
            append(0, soon)
        for number in range(2, 9):  # each id is a tick behind the one before
            append(number)
        step = jobs.stores().leases.step(jobs.step([], 9))
    found = [one.message.body for one in done(step).handed]
    for _ in range(3):
        jobs.clock.advance(1e-6)
        found += receive_next(jobs)

    assert sorted(found) == [b"%d" % number for number in range(9)]
    assert receive_next(jobs) == []


def test_a_scheduled_message_is_not_handed_out_in_the_commit_that_stores_it(jobs: Sharing) -> None:
    receive_next(jobs)
    due = jobs.clock.now_ticks() + TICKS_PER_SECOND
    with one_commit(jobs.opened[0].file.committer):
        jobs.stores().messages.append(AppendRequest(jobs.log.queue, [draft(b"now"), draft(b"later", due_ticks=due)]))
        step = jobs.stores().leases.step(jobs.step([], 9))

    assert b"later" not in [one.message.body for one in done(step).handed]
    receive_next(jobs)
    jobs.clock.advance(1)
    assert receive_next(jobs) == [b"later"]


def test_a_message_of_a_commit_that_fails_is_handed_out_once_by_a_later_one(jobs: Sharing) -> None:
    receive_next(jobs)
    committer = jobs.opened[0].file.committer

    def fail() -> None:
        raise RuntimeError("planted")

    def fails_at_end(transaction: Transaction) -> None:
        transaction.at_end(fail)

    with one_commit(committer):
        append = jobs.stores().messages.append(AppendRequest(jobs.log.queue, [draft(b"new")]))
        step = jobs.stores().leases.step(jobs.step([], 9))
        committer.submit(fails_at_end, grows=False)  # behind the step, which had its message by then
    done(append)  # each job was tried again alone

    assert [one.message.body for one in done(step).handed] + receive_next(jobs) == [b"new"]
    assert receive_next(jobs) == []


def test_a_message_that_is_deleted_in_the_commit_of_the_first_step_is_not_handed_out_later(jobs: Sharing) -> None:
    _, second, _ = jobs.log.add(b"1", b"2", b"3")
    jobs.log.watermark()

    with one_commit(jobs.opened[0].file.committer):
        delete = jobs.stores().messages.delete(jobs.log.queue, [Location(1, second)])
        step = jobs.stores().leases.step(jobs.step([], 1))
    done(delete)

    assert [one.message.body for one in done(step).handed] == [b"1"]
    assert receive_next(jobs) == [b"3"]
