"""A write-ahead log is applied to no other file than its own, and a restore leaves none behind."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from queuey.clock import ManualClock
from queuey.errors import ConfigurationError, StoreInUse
from queuey.ids import IdGenerator
from queuey.storage.contract.common import Log
from queuey.storage.sqlite import SqliteStore
from queuey.storage.sqlite_backup import backup
from queuey.storage.sqlite_restore import restore
from queuey.storage.sqlite_verify import verify


def served(path: Path, clock: ManualClock) -> SqliteStore:
    path.parent.mkdir(exist_ok=True)
    return SqliteStore(path, clock, IdGenerator(clock))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def left(tmp_path: Path, clock: ManualClock) -> tuple[Path, Log]:
    """A store as kill -9 leaves it, with its log; beside it ``backup.db`` and ``cp.db``, of before its last message."""
    path = tmp_path / "first" / "queuey.db"
    store = served(path, clock)
    log = Log(store, clock)
    log.add(b"old")
    store.close()
    shutil.copyfile(path, tmp_path / "cp.db")
    log.store = store = served(path, clock)
    backup(path, tmp_path / "backup.db")
    log.add(b"new")
    killed = tmp_path / "killed" / "queuey.db"
    shutil.copytree(path.parent, killed.parent)
    store.close()
    assert killed.with_name("queuey.db-wal").stat().st_size > 32
    return killed, log


def bodies(path: Path, log: Log, clock: ManualClock) -> list[bytes]:
    log.store = store = served(path, clock)
    try:
        return log.bodies()
    finally:
        store.close()


def moved(source: Path, path: Path) -> None:
    source.rename(path)


def copied(source: Path, path: Path) -> None:
    shutil.copyfile(source, path)


def removed(_: Path, path: Path) -> None:
    path.unlink()


def emptied(_: Path, path: Path) -> None:
    path.write_bytes(b"")


def test_a_store_that_was_killed_keeps_its_log(left: tuple[Path, Log], clock: ManualClock) -> None:
    path, log = left

    assert bodies(path, log, clock) == [b"old", b"new"]


@pytest.mark.parametrize("how", [moved, copied, removed, emptied])
@pytest.mark.parametrize("source", ["backup.db", "cp.db"])
def test_a_file_beside_the_log_of_another_is_refused(
    tmp_path: Path, left: tuple[Path, Log], clock: ManualClock, how: Callable[[Path, Path], None], source: str
) -> None:
    path, log = left
    own = path.read_bytes()
    how(tmp_path / source, path)

    for serve in (True, False):
        with pytest.raises(ConfigurationError, match="log of another file"):
            SqliteStore(path, clock, IdGenerator(clock), serve=serve)

    path.write_bytes(own)
    assert bodies(path, log, clock) == [b"old", b"new"]


def test_a_restore_serves_the_backup_and_keeps_what_was(
    tmp_path: Path, left: tuple[Path, Log], clock: ManualClock
) -> None:
    path, log = left

    kept = restore(tmp_path / "backup.db", path)

    assert bodies(path, log, clock) == [b"old"]
    assert kept is not None
    assert bodies(kept, log, clock) == [b"old", b"new"]
    assert bodies(path, log, clock) == [b"old"]


def test_a_restore_that_was_cut_off_between_two_renames_is_repeated(
    tmp_path: Path, left: tuple[Path, Log], clock: ManualClock
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
    tmp_path: Path, left: tuple[Path, Log], clock: ManualClock
) -> None:
    _, log = left
    path = tmp_path / "elsewhere" / "queuey.db"

    assert restore(tmp_path / "backup.db", path) is None

    assert bodies(path, log, clock) == [b"old"]


def test_a_store_is_not_copied_by_a_second_name_which_lacks_its_log(
    tmp_path: Path, left: tuple[Path, Log], clock: ManualClock
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


def test_a_backup_may_have_two_names(tmp_path: Path, left: tuple[Path, Log], clock: ManualClock) -> None:
    _, log = left
    other = tmp_path / "other.db"
    other.hardlink_to(tmp_path / "backup.db")

    assert not verify(other)
    restore(other, tmp_path / "target.db")

    assert bodies(tmp_path / "target.db", log, clock) == [b"old"]


def test_a_restore_is_refused_while_a_server_runs_and_from_what_is_no_backup(
    tmp_path: Path, left: tuple[Path, Log], clock: ManualClock
) -> None:
    path, log = left
    store = served(path, clock)
    with pytest.raises(StoreInUse):
        restore(tmp_path / "backup.db", path)
    store.close()
    log.store = other = served(tmp_path / "other.db", clock)
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
