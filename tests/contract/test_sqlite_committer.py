"""In which order, and in which groups, the embedded store commits its writes: in its own thread, on an event loop, and in
turn.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import apsw
import pytest

from queuey.clock import ManualClock
from queuey.errors import OutcomeUnknown, StorageFull, StorageUnavailable
from queuey.future import Future, LoopInbox
from queuey.ids import IdGenerator
from queuey.storage.sqlite import SqliteStores
from queuey.storage.sqlite import connections as sqlite_connections
from queuey.storage.sqlite.committer import Committer
from queuey.storage.sqlite.loop_turns import CommitTimes
from queuey.storage.sqlite.statements import SQL
from queuey.storage.sqlite.transaction import CommitFailed, Transaction
from queuey.storage.sqlite.writes import Write
from tests.support.servers import eventually
from tests.support.sqlite_beside import beside
from tests.support.turning_loop import NAME as LOOP
from tests.support.turning_loop import carry_in_turn, carry_on_loop, judge_by, let_turn, turning_loop

MIB = 1 << 20
WAIT_SECONDS = 30


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[SqliteStores]:
    clock = ManualClock()
    stores = SqliteStores(tmp_path / "queuey.db", clock, IdGenerator(clock))
    yield stores
    stores.close()


def in_thread(_stores: SqliteStores, _inbox: LoopInbox) -> None:
    """No loop carries commits."""


@pytest.fixture(params=[in_thread, carry_on_loop, carry_in_turn])
def carry(request: pytest.FixtureRequest) -> Iterator[Callable[[SqliteStores], None]]:
    """Says how the commits of a store are carried."""
    with turning_loop() as inbox:
        yield lambda stores: request.param(stores, inbox)


@pytest.fixture
def committer(stores: SqliteStores, carry: Callable[[SqliteStores], None]) -> Committer:
    carry(stores)
    return stores.file.committer


class Line:
    """Jobs that come while the committer does something else; the groups in which it takes them."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._go_on = threading.Event()
        self._begun = threading.Event()
        self._outcomes: list[Callable[[], object]] = []
        self._taken: list[tuple[Transaction, str]] = []
        committer.run_between(self._hold)
        assert self._begun.wait(WAIT_SECONDS)

    def _hold(self) -> None:
        self._begun.set()
        self._go_on.wait(WAIT_SECONDS)

    def add(self, name: str, size: int) -> None:
        job = partial(self._take, name)
        self._outcomes.append(self._committer.submit(job, grows=False, size=size, is_light=True).wait)
        let_turn(self._committer)

    def _take(self, name: str, transaction: Transaction) -> None:
        self._taken.append((transaction, name))

    def go_on(self) -> None:
        self._go_on.set()

    def groups(self) -> list[list[str]]:
        self.go_on()
        for outcome in self._outcomes:
            outcome()
        found: dict[Transaction, list[str]] = {}
        for transaction, name in self._taken:
            found.setdefault(transaction, []).append(name)
        return list(found.values())


def test_a_small_write_goes_before_large_ones_that_came_earlier(committer: Committer) -> None:
    line = Line(committer)
    for number in range(3):
        line.add(f"large {number}", 8 * MIB)
    line.add("small", 256)

    assert line.groups() == [["small"], ["large 0"], ["large 1"], ["large 2"]]


def test_large_writes_share_a_commit_of_few_megabytes(committer: Committer) -> None:
    line = Line(committer)
    for number in range(5):
        line.add(f"{number}", 3 * MIB // 2)

    assert line.groups() == [["0", "1"], ["2", "3"], ["4"]]


def test_writes_of_any_size_that_were_accepted_are_committed_at_the_close(committer: Committer) -> None:
    line = Line(committer)
    line.add("large", 8 * MIB)
    line.add("larger", 9 * MIB)
    closing = threading.Thread(target=committer.close)
    closing.start()

    assert line.groups() == [["large"], ["larger"]]
    closing.join(WAIT_SECONDS)


def test_the_moment_that_is_noted_at_the_close_is_behind_large_writes(
    tmp_path: Path, carry: Callable[[SqliteStores], None]
) -> None:
    """G4: ids go on above theirs, though the clock is set back before the next start."""
    clock = ManualClock()
    stores = SqliteStores(tmp_path / "queuey.db", clock, IdGenerator(clock))
    carry(stores)
    line = Line(stores.file.committer)
    stamped = stores.file.committer.submit(lambda transaction: transaction.ids.stamp(1000), grows=True, size=8 * MIB)
    closing = threading.Thread(target=stores.close)
    closing.start()
    eventually(lambda: stores.file.committer._closed)
    clock.advance(60.0)
    line.groups()
    closing.join(WAIT_SECONDS)

    clock.step(-3600.0)
    ids = IdGenerator(clock)
    SqliteStores(tmp_path / "queuey.db", clock, ids).close()
    assert ids.last_ticks >= stamped.wait() + 999


class Job:
    """Writes; how often it was tried."""

    def __init__(self) -> None:
        self.threads: list[str] = []

    @property
    def tried(self) -> int:
        return len(self.threads)

    def __call__(self, transaction: Transaction) -> None:
        self.threads.append(threading.current_thread().name)
        transaction.execute("delete from removed")


def test_a_group_fails_at_once_while_another_process_has_the_write_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, carry: Callable[[SqliteStores], None]
) -> None:
    """Each job waited by itself: 4096 of them kept the committer for hours, and readiness said nothing."""
    monkeypatch.setattr(sqlite_connections, "BUSY_MS", 50)
    clock = ManualClock()
    stores = SqliteStores(tmp_path / "queuey.db", clock, IdGenerator(clock))
    carry(stores)
    line, jobs = Line(stores.file.committer), [Job() for _ in range(12)]
    with beside(tmp_path / "queuey.db") as other:
        other.execute("begin immediate")
        promises = [stores.file.committer.submit(job, grows=False, is_light=True) for job in jobs]
        let_turn(stores.file.committer)
        line.go_on()
        for promise in promises:
            with pytest.raises(StorageUnavailable, match=r"another process holds the write lock .* queuey\.db"):
                promise.wait(WAIT_SECONDS)
        assert sum(job.tried for job in jobs) <= 2, "on the loop, and in the thread"
        assert "another process" in str(stores.problems())
        late = Job()
        with pytest.raises(StorageUnavailable, match="another process"):
            stores.file.committer.submit(late, grows=False, is_light=True).wait(WAIT_SECONDS)
        assert not late.tried
        other.execute("rollback")

    eventually(lambda: not stores.problems())
    stores.file.committer.submit(Job(), grows=False, is_light=True).wait(WAIT_SECONDS)
    stores.close()


def test_a_write_waits_for_another_process_that_writes_for_a_moment(
    tmp_path: Path, stores: SqliteStores, committer: Committer
) -> None:
    """Such as ``queuey key new``. The loop does not wait: the thread does."""
    job = Job()
    with beside(tmp_path / "queuey.db") as other:
        other.execute("begin immediate")
        promise = committer.submit(job, grows=False, is_light=True)
        eventually(lambda: job.tried and job.threads[-1] == "committer")
        other.execute("rollback")

        promise.wait(WAIT_SECONDS)
        assert job.tried <= 2
        assert not stores.problems()


@pytest.mark.parametrize("error", [apsw.TooBigError, apsw.ConstraintError, apsw.IOError, ZeroDivisionError])
def test_a_job_that_fails_by_itself_takes_no_other_with_it(committer: Committer, error: type[Exception]) -> None:
    def fail(_: Transaction) -> None:
        raise error("only here")

    line, job = Line(committer), Job()
    promises = [committer.submit(one, grows=False, is_light=True) for one in (job, fail, job)]
    line.go_on()

    with pytest.raises(Exception, match=r"nothing was stored|refused the write"):
        promises[1].wait(WAIT_SECONDS)
    for promise in (promises[0], promises[2]):
        promise.wait(WAIT_SECONDS)


def test_an_error_for_which_sqlite_ends_the_transaction_is_told_as_what_it_is(committer: Committer) -> None:
    """The end of a savepoint that was gone with it stood for it."""

    def fill(transaction: Transaction) -> None:
        with transaction.whole():
            transaction.connection.execute("rollback")
            raise apsw.FullError("database or disk is full")

    with pytest.raises(StorageFull):
        committer.submit(fill, grows=False, is_light=True).wait(WAIT_SECONDS)


def test_work_between_commits_that_fails_ends_no_committer(committer: Committer) -> None:
    def fail() -> None:
        raise RuntimeError

    committer.run_between(fail).wait(WAIT_SECONDS)
    committer.submit(Job(), grows=False, is_light=True).wait(WAIT_SECONDS)


# What the loop carries


@pytest.fixture
def on_loop(stores: SqliteStores) -> Iterator[Committer]:
    assert stores.file.upkeep is not None
    stores.file.upkeep.stop()  # its jobs are the thread's, and the loop waits for none of them
    with turning_loop() as inbox:
        carry_on_loop(stores, inbox)
        yield stores.file.committer


@contextmanager
def one_turn(committer: Committer) -> Iterator[None]:
    """What comes in this block comes in one turn of the loop."""
    inbox, begun, goes_on = committer.turns._inbox, threading.Event(), threading.Event()
    assert inbox is not None

    def turn() -> None:
        begun.set()
        goes_on.wait(WAIT_SECONDS)

    inbox.arrives(turn)
    assert begun.wait(WAIT_SECONDS)
    yield
    goes_on.set()


def test_light_jobs_of_one_turn_share_a_commit_of_the_loop(on_loop: Committer, stores: SqliteStores) -> None:
    """What they wrote is on disk when they are answered."""
    taken: list[tuple[Transaction, str]] = []
    with one_turn(on_loop):
        light = [
            on_loop.submit(lambda one: taken.append((one, threading.current_thread().name)), grows=False, is_light=True)
            for _ in range(3)
        ]
        other = Job()
        on_loop.submit(other, grows=False).wait(WAIT_SECONDS)
    for outcome in light:
        outcome.wait(WAIT_SECONDS)
    assert len({transaction for transaction, _ in taken}) == 1
    assert {thread for _, thread in taken} == {LOOP}
    assert other.threads == ["committer"], "a job that is not light is the thread's"
    assert not stores.file.writer.in_transaction


def test_a_commit_that_stays_open_takes_what_comes_in_the_next_turn_and_waits_once(on_loop: Committer) -> None:
    taken: list[Transaction] = []
    inbox, later = on_loop.turns._inbox, list[Future[None]]()
    assert inbox is not None

    def submit() -> None:
        later.append(on_loop.submit(taken.append, grows=False, is_light=True))
        stays_open.append(on_loop.turns.stay_open())

    with one_turn(on_loop):
        stays_open = [on_loop.turns.stay_open()]  # nothing is gathered yet
        first = on_loop.submit(taken.append, grows=False, is_light=True)
        stays_open.append(on_loop.turns.stay_open())
        inbox.arrives(submit)
    first.wait(WAIT_SECONDS)
    later[0].wait(WAIT_SECONDS)

    assert stays_open == [False, True, False]
    assert taken[0] is taken[1]


def test_the_loop_waits_for_no_commit_of_the_thread(on_loop: Committer, stores: SqliteStores) -> None:
    line, job = Line(on_loop), Job()
    outcome = on_loop.submit(job, grows=False, is_light=True)
    let_turn(on_loop)
    assert not outcome.done
    line.go_on()
    outcome.wait(WAIT_SECONDS)
    assert job.threads == ["committer"]
    assert on_loop.turns._times.is_quick


def test_a_commit_of_the_loop_that_fails_is_unknown_and_not_tried_again(
    on_loop: Committer, monkeypatch: pytest.MonkeyPatch, stores: SqliteStores
) -> None:
    """G10. The rows may be on disk: another try would store them twice."""
    job = Job()

    def fail(_: Transaction) -> None:
        raise CommitFailed("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(Transaction, "commit", fail)
        with pytest.raises(OutcomeUnknown):
            on_loop.submit(job, grows=False, is_light=True).wait(WAIT_SECONDS)
    assert job.threads == [LOOP]
    assert not stores.file.writer.in_transaction
    on_loop.submit(job, grows=False, is_light=True).wait(WAIT_SECONDS)


def test_the_thread_has_what_came_when_a_slow_commit_ends_those_of_the_loop(
    on_loop: Committer, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge_by(on_loop, CommitTimes(1e-9, lambda: 0.0))
    jobs = [Job() for _ in range(3)]
    for job in jobs:
        on_loop.submit(job, grows=False, is_light=True).wait(WAIT_SECONDS)
    assert [job.threads for job in jobs] == [[LOOP], ["committer"], ["committer"]]


def test_what_the_loop_has_not_committed_is_committed_at_the_close(tmp_path: Path) -> None:
    clock = ManualClock()
    stores = SqliteStores(tmp_path / "queuey.db", clock, IdGenerator(clock))
    with turning_loop() as inbox:
        carry_on_loop(stores, inbox)
        job = Job()
        with one_turn(stores.file.committer):
            outcome = stores.file.committer.submit(job, grows=False, is_light=True)
            stores.close()
            outcome.wait(WAIT_SECONDS)
    assert job.threads == ["committer"]


def test_while_the_log_is_copied_the_loop_carries_nothing(
    on_loop: Committer, stores: SqliteStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [Job(), Job()]
    checkpoints = stores.file.checkpoints
    checkpoints._due = 0
    monkeypatch.setattr(
        checkpoints, "_copy", lambda _: on_loop.submit(jobs[0], grows=False, is_light=True).wait(WAIT_SECONDS)
    )
    checkpoints.run()
    on_loop.submit(jobs[1], grows=False, is_light=True).wait(WAIT_SECONDS)
    assert [job.threads for job in jobs] == [["committer"], [LOOP]]


def test_a_write_that_comes_while_the_store_closes_is_refused(
    stores: SqliteStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came behind the last look of the committer, and its caller waited for ever."""
    committer = stores.file.committer

    def closes(_: Write) -> bool:
        committer.close()
        return False

    monkeypatch.setattr(committer.turns, "takes", closes)

    with pytest.raises(StorageUnavailable, match="closing"):
        committer.submit(lambda _: None, grows=False, is_light=True).wait(WAIT_SECONDS)


def test_a_group_that_wrote_nothing_says_nothing_about_the_disk(stores: SqliteStores) -> None:
    assert stores.file.upkeep is not None
    stores.file.upkeep.stop()
    committer, told = stores.file.committer, list[float]()

    class Times(CommitTimes):
        def in_thread(self, seconds: float) -> None:
            told.append(seconds)

    judge_by(committer, Times(1000.0, stores.file.clock.elapsed))
    committer.read(lambda transaction: transaction.look(SQL["dropped_all"], ())).wait(WAIT_SECONDS)
    committer.submit(lambda transaction: transaction.look(SQL["removed_forget"], (b"q",)), grows=False).wait(
        WAIT_SECONDS
    )
    assert told == []

    committer.submit(lambda transaction: transaction.look(SQL["removed_keep"], (b"q",)), grows=False).wait(WAIT_SECONDS)
    assert len(told) == 1
