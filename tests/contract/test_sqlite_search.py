"""The search for damage when what it needs fails for a while."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from queuey.clock import ManualClock
from queuey.ids import IdGenerator
from queuey.storage.contract.common import QueueLog
from queuey.storage.sqlite import SqliteOptions, SqliteStores
from queuey.storage.sqlite import search as sqlite_search
from queuey.storage.sqlite.health import DiskHealth
from queuey.storage.sqlite.scrub import Scrub
from queuey.storage.sqlite.search import DamageSearch
from tests.support.servers import eventually
from tests.support.sqlite_beside import beside


class Disk(apsw.VFS):
    """Reads of the search fail with ``error`` while ``broken`` is set."""

    def __init__(self) -> None:
        self.broken = threading.Event()
        self.error: Exception = apsw.IOError("disk I/O error")
        super().__init__("breaking", "unix", makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> DiskFile:  # noqa: N802 - SQLite's name
        return DiskFile(self, name, flags)


class DiskFile(apsw.VFSFile):
    def __init__(self, disk: Disk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        super().__init__("unix", name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        if self._disk.broken.is_set() and threading.current_thread().name == "store-check":
            raise self._disk.error
        return super().xRead(amount, offset)


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.unregister()


@pytest.mark.parametrize("at_start", [True, False])
@pytest.mark.parametrize("error", [apsw.IOError, apsw.NoMemError, apsw.ProtocolError, apsw.LockedError, RuntimeError])
def test_a_read_that_fails_for_a_while_is_told_and_stops_no_writing(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch, error: type[Exception], at_start: bool
) -> None:
    """G18: a fault that passes leaves nothing behind, and no error but that of damage counts as damage."""
    disk.error = error("it fails")
    monkeypatch.setattr(sqlite_search, "SCRUB_PAUSE_SECONDS", 0.05)
    clock = ManualClock()
    stores = SqliteStores(tmp_path / "queuey.db", clock, IdGenerator(clock))
    log = QueueLog(stores.messages, clock)
    for _ in range(50):
        log.add(b"x" * 5000)
    stores.close()
    if at_start:
        disk.broken.set()
    stores = SqliteStores(
        tmp_path / "queuey.db", clock, IdGenerator(clock), SqliteOptions(scrub_percent=100, cache_mb=0)
    )
    log.store = stores.messages
    try:
        disk.broken.set()
        eventually(lambda: [*stores.problems()])
        assert "cannot read" in str(stores.problems())
        log.add(b"while readiness says so")

        disk.broken.clear()
        eventually(lambda: not stores.problems())
        log.add(b"after")
    finally:
        disk.broken.clear()
        stores.close()


def test_a_search_that_finds_nothing_leaves_no_line_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It comes round every minute."""
    monkeypatch.setattr(sqlite_search, "SCRUB_PAUSE_SECONDS", 0.01)
    passes: list[Scrub] = []

    class CountedScrub(Scrub):
        def __init__(self, connection: apsw.Connection) -> None:
            super().__init__(connection)
            passes.append(self)

    monkeypatch.setattr(sqlite_search, "Scrub", CountedScrub)
    caplog.set_level("INFO")
    clock = ManualClock()
    stores = SqliteStores(tmp_path / "queuey.db", clock, IdGenerator(clock), SqliteOptions(scrub_percent=100))
    try:
        eventually(lambda: len(passes) > 3)
    finally:
        stores.close()

    assert [record for record in caplog.records if record.name == sqlite_search.__name__] == []


class Interrupted(apsw.Connection):
    """Notes that it was interrupted. Its statements go on once that has happened."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._interrupted = threading.Event()
        self.set_progress_handler(self._hold, 100)

    def interrupt(self) -> None:
        super().interrupt()
        self._interrupted.set()

    def _hold(self) -> bool:
        self._interrupted.clear()
        self._interrupted.wait(5)
        return False


def test_a_stop_ends_a_check_that_has_not_begun(tmp_path: Path) -> None:
    """It was interrupted before it ran, so the stop waited until all pages were checked."""
    path, connecting, goes_on = tmp_path / "queuey.db", threading.Event(), threading.Event()
    with beside(path) as file:
        file.execute("create table t (i)")
        file.execute(
            "with recursive n (i) as (values (1) union all select i + 1 from n limit 9999) insert into t select i from n"
        )
        file.execute("create index by_i on t (i)")

    def connect() -> apsw.Connection:
        connecting.set()
        assert goes_on.wait(30)
        return Interrupted(path)

    search = DamageSearch(connect, DiskHealth(path, reserve_bytes=0, read_only=False), set(), 0)
    search.start()
    assert connecting.wait(30)
    stopping = threading.Thread(target=search.stop)
    stopping.start()
    eventually(search._ending.is_set)
    goes_on.set()
    stopping.join()

    assert not search._looked_at_pages
