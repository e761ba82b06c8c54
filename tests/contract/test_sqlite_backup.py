"""A backup is made by one process at a time, replaces no store, and leaves nothing half written. Nor does a repair."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from queuey.cli import main
from queuey.clock import ManualClock
from queuey.errors import ConfigurationError
from queuey.ids import IdGenerator
from queuey.storage.contract.common import QueueLog
from queuey.storage.sqlite import SqliteOptions, SqliteStores
from queuey.storage.sqlite.backup import backup, copied
from queuey.storage.sqlite.repairing import repair
from queuey.storage.sqlite.verify import verify
from queuey.terminal.output import ProgressBar
from tests.support.disk import small_disk


@contextmanager
def served(path: Path, message: bytes = b"hello") -> Iterator[None]:
    """A store that is open, as in its server."""
    clock = ManualClock()
    stores = SqliteStores(path, clock, IdGenerator(clock), SqliteOptions())
    try:
        QueueLog(stores.messages, clock).add(message)
        yield
    finally:
        stores.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "data" / "queuey.db"
    path.parent.mkdir()
    with served(path):
        yield path


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_of_two_backups_to_one_place_the_second_is_refused(tmp_path: Path, store: Path) -> None:
    """A timer may be faster than a backup: each took the other's file away, and both failed."""
    refused: list[str] = []

    def begin_another(_done: int, _pages: int) -> None:
        with pytest.raises(ConfigurationError) as error:
            backup(store, tmp_path / "copy.db")
        refused.append(str(error.value))

    backup(store, tmp_path / "copy.db", begin_another)

    assert refused
    assert all("another process is writing" in said for said in refused), refused
    assert left_in(tmp_path) == ["copy.db", "data"]
    assert verify(tmp_path / "copy.db") == []


def test_what_a_killed_backup_left_is_in_no_later_one(tmp_path: Path, store: Path) -> None:
    for name in ("copy.db.partial", "copy.db.partial-journal", "copy.db.partial-wal"):
        (tmp_path / name).write_bytes(b"half written" * 1000)

    backup(store, tmp_path / "copy.db")

    assert left_in(tmp_path) == ["copy.db", "data"]
    assert verify(tmp_path / "copy.db") == []


def test_a_full_disk_is_named_and_keeps_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path, 1) as disk, served(tmp_path / "queuey.db", os.urandom(3 << 20)):
        with pytest.raises(ConfigurationError, match=r"copy\.db\.partial failed: the disk is full"):
            backup(tmp_path / "queuey.db", disk.path / "copy.db")

        assert left_in(disk.path) == []


@pytest.mark.parametrize("left", [100_000, 1_300_000], ids=["no room for anything", "room for one copy"])
def test_a_repair_without_room_for_its_copy_changes_nothing(tmp_path: Path, left: int) -> None:
    """It advised to restore the last backup, and left half a copy on the full disk."""
    with served(tmp_path / "made.db", os.urandom(900_000)):
        pass
    with small_disk(tmp_path, 3) as disk:
        path = disk.path / "queuey.db"
        path.write_bytes((tmp_path / "made.db").read_bytes())
        disk.fill(leave=left)

        with pytest.raises(
            ConfigurationError, match=r"was not repaired, and is as it was: (the disk is full|.*No space left)"
        ):
            repair(path)

        assert left_in(disk.path) == ["ballast", "queuey.db", "queuey.db.lock"]
        assert verify(path) == []


@pytest.mark.parametrize("force", [False, True])
def test_no_store_is_replaced_by_a_backup(tmp_path: Path, store: Path, force: bool) -> None:
    other = tmp_path / "other.db"
    (tmp_path / "link.db").symlink_to(store)
    with served(other):
        for target in (store, other, tmp_path / "link.db"):
            with pytest.raises(ConfigurationError, match="is a store and no backup"):
                backup(store, target, force=force)


def test_a_backup_takes_the_place_of_another_if_told(tmp_path: Path, store: Path) -> None:
    target = tmp_path / "copy.db"
    target.write_text("a former one")
    with pytest.raises(ConfigurationError, match="exists already"):
        backup(store, target)
    assert target.read_text() == "a former one"

    backup(store, target, force=True)

    assert verify(target) == []


def test_a_copy_that_was_renamed_stays_and_no_other_does(tmp_path: Path, store: Path) -> None:
    here = tmp_path / "here.db"
    with copied(store, here, None):
        assert verify(here) == []
    assert not here.exists()

    with copied(store, here, None):
        here.rename(tmp_path / "kept.db")
        here.write_text("of somebody else")
    assert (here.read_text(), verify(tmp_path / "kept.db")) == ("of somebody else", [])


@pytest.mark.parametrize("dest", ["copy.db", "file://copy.db"])
def test_a_signal_leaves_no_half_a_backup(
    tmp_path: Path, store: Path, dest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a unit of systemd is stopped."""
    monkeypatch.setattr(ProgressBar, "reach", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    place = dest.replace("copy.db", str(tmp_path / "copy.db"))

    ended = CliRunner().invoke(main, ["backup", place, "--data", str(store.parent)], env={"QUEUEY_DATA": None})

    assert ended.exit_code == 143
    assert left_in(tmp_path) == ["data"]
    assert not [name for name in left_in(store.parent) if ".backup" in name]


def test_a_backup_takes_the_place_of_files_alone(tmp_path: Path, store: Path) -> None:
    """As root it took that of ``/dev/null``."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    with pytest.raises(ConfigurationError, match="is no file that a backup could take the place of"):
        backup(store, pipe, force=True)

    assert pipe.is_fifo()


@pytest.mark.parametrize("is_moved", [False, True])
def test_no_store_whose_server_has_ended_is_replaced_by_a_backup(tmp_path: Path, store: Path, is_moved: bool) -> None:
    """It has no log any more, as a backup has none."""
    other = tmp_path / "other.db"
    with served(other, b"of the other"):
        pass
    if is_moved:
        other = other.rename(tmp_path / "data" / "moved.db")
    before = other.read_bytes()

    with pytest.raises(ConfigurationError, match="is a store and no backup"):
        backup(store, other, force=True)

    assert other.read_bytes() == before


def test_a_backup_of_two_files_that_has_no_place_for_the_second_copies_neither(tmp_path: Path, store: Path) -> None:
    """The copy of the first was in the way of the next backup."""
    (tmp_path / "copy.db.metadata").write_text("a former one")
    with served(tmp_path / "metadata.db"):
        ended = CliRunner().invoke(
            main,
            ["backup", str(tmp_path / "copy.db"), "--data", str(store.parent)],
            env={"QUEUEY_DATA": None, "QUEUEY_METADATA_PATH": str(tmp_path / "metadata.db")},
        )

    assert "copy.db.metadata exists already" in ended.output
    assert not (tmp_path / "copy.db").exists()


def test_a_repaired_backup_is_a_backup_still(tmp_path: Path, store: Path) -> None:
    """The lock of the repair stayed beside it, as beside a store, which no backup may replace."""
    copy = tmp_path / "copy.db"
    backup(store, copy)
    repair(copy)

    backup(store, copy, force=True)

    assert not copy.with_name("copy.db.lock").exists()


def test_a_backup_that_is_sent_elsewhere_takes_no_other_backups_place(tmp_path: Path, store: Path) -> None:
    """It was copied to this name first, and removed then."""
    other = store.with_name("queuey.db.backup")
    backup(store, other)
    before = other.read_bytes()

    ended = CliRunner().invoke(
        main, ["backup", f"file://{tmp_path}/copy.db", "--data", str(store.parent)], env={"QUEUEY_DATA": None}
    )

    assert ended.exit_code == 0
    assert other.read_bytes() == before
    assert verify(tmp_path / "copy.db") == []
