"""The format of a store's file: one is read, any other is refused with a sentence that says what to do."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import apsw
import pytest

from queuey.clock import ManualClock
from queuey.errors import ConfigurationError
from queuey.ids import IdGenerator
from queuey.storage.contract.common import QueueLog
from queuey.storage.sqlite import SqliteStores
from queuey.storage.sqlite.backup import backup
from queuey.storage.sqlite.repairing import repair
from queuey.storage.sqlite.verify import verify
from tests.support.disk import small_disk
from tests.support.servers import eventually
from tests.support.sqlite_beside import beside


@contextmanager
def opened(path: Path, *, serve: bool = True) -> Iterator[SqliteStores]:
    clock = ManualClock()
    with closing(SqliteStores(path, clock, IdGenerator(clock), serve=serve)) as stores:
        yield stores


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store's file."""
    path = tmp_path / "queuey.db"
    with opened(path):
        pass
    return path


@pytest.mark.parametrize("serve", [True, False])
@pytest.mark.parametrize("number", [0, 8, 10])
def test_a_file_of_another_format_is_refused(path: Path, number: int, serve: bool) -> None:
    with beside(path) as other:
        other.execute(f"pragma user_version = {number}")
    refusal = (
        f"format {number}, and this version of queuey reads format 9 alone: use the version that wrote it, or move"
    )

    with pytest.raises(ConfigurationError, match=refusal), opened(path, serve=serve):
        pass


def test_nobody_calls_it_sound_and_nobody_copies_or_mends_it(path: Path, tmp_path: Path) -> None:
    with beside(path) as other:
        other.execute("pragma user_version = 10")
    before = path.read_bytes()
    asked: Sequence[Callable[[], object]] = (
        lambda: verify(path),
        lambda: repair(path),
        lambda: backup(path, tmp_path / "copy.db"),
    )

    for ask in asked:
        with pytest.raises(ConfigurationError, match="format 9 alone"):
            ask()

    assert path.read_bytes() == before
    assert not (tmp_path / "copy.db").exists()


def test_it_is_refused_where_nothing_can_be_written_too(path: Path, tmp_path: Path) -> None:
    with beside(path) as other:
        other.execute("pragma user_version = 10")
    with small_disk(tmp_path, 4) as disk:
        moved = disk.path / path.name
        shutil.copy(path, moved)
        moved.with_name(moved.name + ".lock").touch()
        disk.remount("ro")

        with pytest.raises(ConfigurationError, match="format 9 alone"), opened(moved):
            pass


def test_a_command_may_make_the_file_before_the_server(tmp_path: Path) -> None:
    """``queuey key new`` before the first start."""
    path = tmp_path / "queuey.db"

    with opened(path, serve=False):
        pass

    with opened(path) as stores:
        assert [*stores.problems()] == []


@pytest.mark.parametrize("page_bytes", [4096, 8192])
def test_pages_stay_as_large_as_they_are(path: Path, page_bytes: int) -> None:
    """And the log is measured by them, which says when it is to be copied."""
    with closing(apsw.Connection(str(path))) as file:
        file.execute("pragma journal_mode = delete")
        file.execute(f"pragma page_size = {page_bytes}")
        file.execute("vacuum")
    with opened(path) as stores:
        log, wal = QueueLog(stores.messages, ManualClock()), path.with_name("queuey.db-wal")
        log.add(b"x" * 100_000)

        # the thread of the upkeep may write beside the test
        eventually(lambda: stores.file.health.log_bytes == pytest.approx(wal.stat().st_size, rel=0.02))
        with beside(path) as file:
            assert file.execute("pragma page_size").fetchall() == [(page_bytes,)]
