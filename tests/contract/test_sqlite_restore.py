"""A write-ahead log is applied to no other file than its own, and a restore leaves none behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from queuey.clock import ManualClock
from queuey.errors import ConfigurationError, StoreInUse
from queuey.ids import IdGenerator
from queuey.storage.contract.common import QueueLog
from queuey.storage.sqlite import SqliteOptions, SqliteStores
from queuey.storage.sqlite import health as sqlite_guard
from queuey.storage.sqlite import mark as sqlite_mark
from queuey.storage.sqlite.backup import backup
from queuey.storage.sqlite.health import FolderLock
from queuey.storage.sqlite.restore import restore as restore_files
from queuey.storage.sqlite.verify import verify
from tests.support.sqlite_beside import beside

WRITING = """
import sys
from pathlib import Path
from queuey.clock import SystemClock
from queuey.ids import IdGenerator
from queuey.storage.contract.common import QueueLog
from queuey.storage.sqlite import SqliteOptions, SqliteStores

clock = SystemClock()
stores = SqliteStores(Path(sys.argv[1]), clock, IdGenerator(clock), SqliteOptions(wal_mb=1))
log = QueueLog(stores.messages, clock)
while True:
    log.add(bytes(60_000))
    print("acknowledged", flush=True)
"""


def restore(source: Path, target: Path, progress: Callable[[int, int], None] | None = None) -> Path | None:
    """Of a store of one file."""
    (kept,) = restore_files([(source, target)], progress)
    return kept


def served(path: Path, clock: ManualClock, **how: Any) -> SqliteStores:
    path.parent.mkdir(exist_ok=True)
    return SqliteStores(path, clock, IdGenerator(clock), SqliteOptions(**how))


def noted(path: Path) -> Sequence[str]:
    """Marks that are good."""
    return path.with_name(f"{path.name}.lock").read_text().split()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def left(tmp_path: Path, clock: ManualClock) -> tuple[Path, QueueLog]:
    """A store as kill -9 leaves it, with its log; beside it ``backup.db`` and ``cp.db``, of before its last message."""
    path = tmp_path / "first" / "queuey.db"
    stores = served(path, clock)
    log = QueueLog(stores.messages, clock)
    log.add(b"old")
    stores.close()
    shutil.copyfile(path, tmp_path / "cp.db")
    stores = served(path, clock)
    log.store = stores.messages
    backup(path, tmp_path / "backup.db")
    log.add(b"new")
    killed = tmp_path / "killed" / "queuey.db"
    shutil.copytree(path.parent, killed.parent)
    stores.close()
    assert killed.with_name("queuey.db-wal").stat().st_size > 32
    return killed, log


def bodies(path: Path, log: QueueLog, clock: ManualClock) -> list[bytes]:
    stores = served(path, clock)
    log.store = stores.messages
    try:
        return log.bodies()
    finally:
        stores.close()


def moved(source: Path, path: Path) -> None:
    source.rename(path)


def copied(source: Path, path: Path) -> None:
    shutil.copyfile(source, path)


def removed(_: Path, path: Path) -> None:
    path.unlink()


def emptied(_: Path, path: Path) -> None:
    path.write_bytes(b"")


def test_a_store_that_was_killed_keeps_its_log(left: tuple[Path, QueueLog], clock: ManualClock) -> None:
    path, log = left

    assert bodies(path, log, clock) == [b"old", b"new"]


@pytest.mark.parametrize("how", [moved, copied, removed, emptied])
@pytest.mark.parametrize("source", ["backup.db", "cp.db"])
def test_a_file_beside_the_log_of_another_is_refused(
    tmp_path: Path, left: tuple[Path, QueueLog], clock: ManualClock, how: Callable[[Path, Path], None], source: str
) -> None:
    path, log = left
    own = path.read_bytes()
    how(tmp_path / source, path)

    for serve in (True, False):
        with pytest.raises(ConfigurationError, match="log of another file"):
            SqliteStores(path, clock, IdGenerator(clock), serve=serve)

    path.write_bytes(own)
    assert bodies(path, log, clock) == [b"old", b"new"]


@pytest.mark.parametrize("how", [moved, copied])
def test_a_copy_of_the_same_run_is_refused_once_the_log_has_started_over(
    tmp_path: Path, clock: ManualClock, how: Callable[[Path, Path], None]
) -> None:
    path, cp = tmp_path / "first" / "queuey.db", tmp_path / "cp.db"
    stores = served(path, clock, wal_mb=1)
    log = QueueLog(stores.messages, clock)
    log.add(b"old")
    shutil.copyfile(path, cp)
    before = noted(path)
    while noted(path) == before or len(noted(path)) > 1:
        log.add(bytes(60_000))
    log.add(b"new")
    killed = tmp_path / "killed" / "queuey.db"
    shutil.copytree(path.parent, killed.parent)
    there = log.bodies()
    stores.close()
    own = killed.read_bytes()
    how(cp, killed)

    with pytest.raises(ConfigurationError, match="log of another file"):
        served(killed, clock)

    killed.write_bytes(own)
    assert bodies(killed, log, clock) == there


def test_a_store_that_is_killed_at_any_step_to_a_new_mark_is_not_refused(
    tmp_path: Path, left: tuple[Path, QueueLog], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, log = left
    steps: list[Path] = []

    def killed_here() -> None:
        steps.append(tmp_path / f"step-{len(steps)}" / path.name)
        shutil.copytree(path.parent, steps[-1].parent)

    def noting(file: int, *marks: int) -> None:
        note(file, *marks)
        killed_here()

    note = sqlite_mark._note
    monkeypatch.setattr(sqlite_mark, "_note", noting)
    lock, connection = FolderLock(path), apsw.Connection(str(path))
    connection.set_profile(lambda *_: killed_here())
    mark = sqlite_mark.FileMark(lock)
    for _ in range(2):
        mark.announce()
        mark.write_last(connection, apsw.SQLITE_CHECKPOINT_PASSIVE)
        killed_here()
        mark.confirm()
        connection.execute("create table if not exists written_since (number)")
        assert not mark.is_due
    connection.close()
    lock.close()
    monkeypatch.undo()

    assert len(steps) >= 10
    for step in steps:
        assert bodies(step, log, clock) == [b"old", b"new"]


@pytest.mark.parametrize("changes", [1, 5, 1000])
def test_a_command_is_not_refused_while_the_server_beside_it_changes_the_mark(
    left: tuple[Path, QueueLog], clock: ManualClock, monkeypatch: pytest.MonkeyPatch, changes: int
) -> None:
    """Before and after each look of the command at the file: once, a few times, or without end."""
    path, log = left
    lock, connection = FolderLock(path), apsw.Connection(str(path))
    mark = sqlite_mark.give_mark(connection, lock)
    given = {*noted(path)}

    def change() -> None:
        if len(given) <= changes:
            connection.execute("create table if not exists written_since (number)")
            mark.announce()
            mark.write_last(connection, apsw.SQLITE_CHECKPOINT_PASSIVE)
            mark.confirm()
            assert len(noted(path)) == 1
            given.update(noted(path))

    def between(file: Path) -> int:
        change()
        found = read(file)
        change()
        return found

    read = sqlite_mark._mark_of
    monkeypatch.setattr(sqlite_mark, "_mark_of", between)
    sqlite_mark.refuse_foreign_log(path)
    monkeypatch.undo()

    assert len(given) > 1
    connection.close()
    lock.close()
    assert bodies(path, log, clock) == [b"old", b"new"]


def test_a_command_is_not_refused_when_the_server_beside_it_ends_meanwhile(
    left: tuple[Path, QueueLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And removes its log after the command saw it."""
    path, _ = left
    log, _ = sqlite_guard.beside(path)

    def last(file: Any, **how: Any) -> os.stat_result:
        found = stat(file, **how)
        if file == log:
            log.unlink()
        return found

    stat = os.stat
    monkeypatch.setattr(os, "stat", last)

    sqlite_mark.refuse_foreign_log(path)

    assert not log.exists()


def test_a_store_that_is_killed_while_its_log_starts_over_keeps_all(tmp_path: Path, clock: ManualClock) -> None:
    """Half of the time between the two notes of a new mark."""
    path = tmp_path / "queuey.db"
    acknowledged = 0
    for turn in range(8):
        with subprocess.Popen([sys.executable, "-c", WRITING, str(path)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            ended = False
            for number, _ in enumerate(writer.stdout):
                acknowledged += 1
                if not ended and number >= 11 * turn and (turn % 2 or len(noted(path)) > 1):
                    writer.kill()  # and read on what it said before
                    ended = True
        served(path, clock).close()
        with beside(path) as connection:
            rows: list[Any] = connection.execute("select 1 from messages").fetchall()
        assert len(rows) >= acknowledged


def test_a_restore_serves_the_backup_and_keeps_what_was(
    tmp_path: Path, left: tuple[Path, QueueLog], clock: ManualClock
) -> None:
    path, log = left

    kept = restore(tmp_path / "backup.db", path)

    assert bodies(path, log, clock) == [b"old"]
    assert kept is not None
    assert bodies(kept, log, clock) == [b"old", b"new"]
    assert bodies(path, log, clock) == [b"old"]


def test_a_restore_that_was_cut_off_between_two_renames_is_repeated(
    tmp_path: Path, left: tuple[Path, QueueLog], clock: ManualClock
) -> None:
    path, log = left
    path.rename(path.with_name("queuey.db.before-restore"))

    kept = restore(tmp_path / "backup.db", path)

    assert bodies(path, log, clock) == [b"old"]
    assert kept is not None
    assert bodies(kept, log, clock) == [b"old", b"new"]


def test_a_restore_that_fails_leaves_no_store_where_there_was_none(tmp_path: Path) -> None:
    path = tmp_path / "elsewhere" / "queuey.db"

    with pytest.raises(ConfigurationError, match="failed"):
        restore(tmp_path / "absent.db", path)

    assert not path.exists()


def test_a_restore_makes_a_store_where_there_was_none(
    tmp_path: Path, left: tuple[Path, QueueLog], clock: ManualClock
) -> None:
    _, log = left
    path = tmp_path / "elsewhere" / "queuey.db"

    assert restore(tmp_path / "backup.db", path) is None

    assert bodies(path, log, clock) == [b"old"]


def test_a_store_is_not_copied_by_a_second_name_which_lacks_its_log(
    tmp_path: Path, left: tuple[Path, QueueLog], clock: ManualClock
) -> None:
    path, log = left
    other, target = tmp_path / "other.db", tmp_path / "target.db"
    other.hardlink_to(path)

    for copy in (backup, restore):
        with pytest.raises(ConfigurationError, match="hard link"):
            copy(other, target)
    with pytest.raises(ConfigurationError, match="hard link"):
        verify(other)

    other.unlink()
    assert not target.exists()
    assert bodies(path, log, clock) == [b"old", b"new"]


def test_a_backup_may_have_two_names(tmp_path: Path, left: tuple[Path, QueueLog], clock: ManualClock) -> None:
    _, log = left
    other = tmp_path / "other.db"
    other.hardlink_to(tmp_path / "backup.db")

    assert not verify(other)
    restore(other, tmp_path / "target.db")

    assert bodies(tmp_path / "target.db", log, clock) == [b"old"]


def test_a_restore_is_refused_while_a_server_runs_and_from_what_is_no_backup(
    tmp_path: Path, left: tuple[Path, QueueLog], clock: ManualClock
) -> None:
    path, log = left
    stores = served(path, clock)
    with pytest.raises(StoreInUse):
        restore(tmp_path / "backup.db", path)
    stores.close()
    other = served(tmp_path / "other.db", clock)
    log.store = other.messages
    log.add(b"in its log")
    with pytest.raises(ConfigurationError, match="write-ahead log"):
        restore(tmp_path / "other.db", path)
    link = tmp_path / "link" / "other.db"
    link.parent.mkdir()
    link.symlink_to(tmp_path / "other.db")
    with pytest.raises(ConfigurationError, match="write-ahead log"):
        restore(link, path)
    other.close()
    with pytest.raises(ConfigurationError, match="itself"):
        restore(path, path)

    assert bodies(path, log, clock) == [b"old", b"new"]


@pytest.fixture
def stopped(tmp_path: Path, clock: ManualClock) -> tuple[Path, QueueLog]:
    """A store whose server has ended, without a log; beside it ``backup.db``."""
    path = tmp_path / "stopped" / "queuey.db"
    stores = served(path, clock)
    log = QueueLog(stores.messages, clock)
    log.add(b"old")
    backup(path, tmp_path / "backup.db")
    log.add(b"new")
    stores.close()
    return path, log


class Ended(BaseException):
    """As by a signal."""


def test_a_restore_that_ends_between_its_renames_lets_no_server_begin_an_empty_store(
    tmp_path: Path, stopped: tuple[Path, QueueLog], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, log = stopped

    def ends(*_: object) -> None:
        raise Ended

    def is_refused() -> None:
        for serve in (True, False):
            with pytest.raises(ConfigurationError, match=r"a restore to .* was interrupted: repeat it"):
                SqliteStores(path, clock, IdGenerator(clock), serve=serve)

    with monkeypatch.context() as planted:
        planted.setattr(Path, "replace", ends)
        with pytest.raises(Ended):
            restore(tmp_path / "backup.db", path)
    is_refused()
    with pytest.raises(Ended):
        restore(tmp_path / "backup.db", path, ends)
    is_refused()

    restore(tmp_path / "backup.db", path)

    assert bodies(path, log, clock) == [b"old"]
    assert bodies(path.with_name("queuey.db.before-restore"), log, clock) == [b"old", b"new"]
    assert not path.with_name("queuey.db.restoring").exists()


def test_a_restore_to_an_empty_folder_that_ends_leaves_nothing(
    tmp_path: Path, stopped: tuple[Path, QueueLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(*_: object) -> None:
        raise Ended

    monkeypatch.setattr(Path, "replace", ends)
    with pytest.raises(Ended):
        restore(tmp_path / "backup.db", tmp_path / "new" / "queuey.db")

    assert [one.name for one in (tmp_path / "new").iterdir()] == ["queuey.db.lock"]


def test_what_an_interrupted_restore_left_is_no_backup(
    tmp_path: Path, stopped: tuple[Path, QueueLog], clock: ManualClock
) -> None:
    """It was removed before it was copied, and an empty file came in the place of the store."""
    path, log = stopped
    path.rename(path.with_name("queuey.db.before-restore"))
    left = path.with_name("queuey.db.restoring")
    shutil.copyfile(tmp_path / "backup.db", left)

    with pytest.raises(ConfigurationError, match="is what an interrupted restore left"):
        restore(left, path)
    restore(left.rename(tmp_path / "other.db"), path)

    assert bodies(path, log, clock) == [b"old"]
