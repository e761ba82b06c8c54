"""In which order, and in which groups, the embedded store commits its writes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import apsw
import pytest

from queuey.clock import ManualClock
from queuey.errors import StorageFull, StorageUnavailable
from queuey.ids import IdGenerator
from queuey.storage.sqlite import SqliteStores
from queuey.storage.sqlite import connections as sqlite_connections
from queuey.storage.sqlite.committer import Committer, Transaction
from tests.support.servers import eventually
from tests.support.sqlite_beside import beside

MIB = 1 << 20
WAIT_SECONDS = 30


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[SqliteStores]:
    clock = ManualClock()
    stores = SqliteStores(tmp_path / "queuey.db", clock, IdGenerator(clock))
    yield stores
    stores.close()


@pytest.fixture
def committer(stores: SqliteStores) -> Committer:
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
        self._outcomes.append(self._committer.submit(job, grows=False, size=size).wait)

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


def test_the_moment_that_is_noted_at_the_close_is_behind_large_writes(tmp_path: Path) -> None:
    """G4: ids go on above theirs, though the clock is set back before the next start."""
    clock = ManualClock()
    stores = SqliteStores(tmp_path / "queuey.db", clock, IdGenerator(clock))
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
        self.tried = 0
        self.begun = threading.Event()

    def __call__(self, transaction: Transaction) -> None:
        self.tried += 1
        self.begun.set()
        transaction.execute("delete from removed")


def test_a_group_fails_at_once_while_another_process_has_the_write_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each job waited by itself: 4096 of them kept the committer for hours, and readiness said nothing."""
    monkeypatch.setattr(sqlite_connections, "BUSY_MS", 50)
    clock = ManualClock()
    stores = SqliteStores(tmp_path / "queuey.db", clock, IdGenerator(clock))
    line, jobs = Line(stores.file.committer), [Job() for _ in range(12)]
    with beside(tmp_path / "queuey.db") as other:
        other.execute("begin immediate")
        promises = [stores.file.committer.submit(job, grows=False) for job in jobs]
        line.go_on()
        for promise in promises:
            with pytest.raises(StorageUnavailable, match=r"another process holds the write lock .* queuey\.db"):
                promise.wait(WAIT_SECONDS)
        assert sum(job.tried for job in jobs) <= 1
        assert "another process" in str(stores.problems())
        late = Job()
        with pytest.raises(StorageUnavailable, match="another process"):
            stores.file.committer.submit(late, grows=False).wait(WAIT_SECONDS)
        assert not late.tried
        other.execute("rollback")

    eventually(lambda: not stores.problems())
    stores.file.committer.submit(Job(), grows=False).wait(WAIT_SECONDS)
    stores.close()


def test_a_write_waits_for_another_process_that_writes_for_a_moment(tmp_path: Path, stores: SqliteStores) -> None:
    """Such as ``queuey key new``."""
    job = Job()
    with beside(tmp_path / "queuey.db") as other:
        other.execute("begin immediate")
        promise = stores.file.committer.submit(job, grows=False)
        assert job.begun.wait(WAIT_SECONDS)
        other.execute("rollback")

        promise.wait(WAIT_SECONDS)
        assert job.tried == 1
        assert not stores.problems()


@pytest.mark.parametrize("error", [apsw.TooBigError, apsw.ConstraintError, apsw.IOError, ZeroDivisionError])
def test_a_job_that_fails_by_itself_takes_no_other_with_it(committer: Committer, error: type[Exception]) -> None:
    def fail(_: Transaction) -> None:
        raise error("only here")

    line, job = Line(committer), Job()
    promises = [committer.submit(one, grows=False) for one in (job, fail, job)]
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
        committer.submit(fill, grows=False).wait(WAIT_SECONDS)


def test_work_between_commits_that_fails_ends_no_committer(committer: Committer) -> None:
    def fail() -> None:
        raise RuntimeError

    committer.run_between(fail).wait(WAIT_SECONDS)
    committer.submit(Job(), grows=False).wait(WAIT_SECONDS)
