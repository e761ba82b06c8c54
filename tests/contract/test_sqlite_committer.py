"""In which order, and in which groups, the embedded store commits its writes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from queuey.clock import ManualClock
from queuey.ids import IdGenerator
from queuey.storage.sqlite import SqliteStore
from queuey.storage.sqlite_committer import Committer, Transaction
from tests.functional.servers import eventually

MIB = 1 << 20
WAIT_SECONDS = 30


@pytest.fixture
def committer(tmp_path: Path) -> Iterator[Committer]:
    clock = ManualClock()
    store = SqliteStore(tmp_path / "queuey.db", clock, IdGenerator(clock))
    yield store._committer
    store.close()


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

    def groups(self) -> list[list[str]]:
        self._go_on.set()
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
    store = SqliteStore(tmp_path / "queuey.db", clock, IdGenerator(clock))
    line = Line(store._committer)
    stamped = store._committer.submit(lambda transaction: transaction.ids.stamp(1000), grows=True, size=8 * MIB)
    closing = threading.Thread(target=store.close)
    closing.start()
    eventually(lambda: store._committer._closed)
    clock.advance(60.0)
    line.groups()
    closing.join(WAIT_SECONDS)

    clock.step(-3600.0)
    ids = IdGenerator(clock)
    SqliteStore(tmp_path / "queuey.db", clock, ids).close()
    assert ids.last_ticks >= stamped.wait() + 999
