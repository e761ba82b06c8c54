"""The file of an embedded store: its names, its mode, and the one process that has it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from queuey.clock import ManualClock
from queuey.errors import ConfigurationError, StoreInUse
from queuey.ids import IdGenerator
from queuey.storage.contract.common import QueueLog
from queuey.storage.sqlite import SqliteOptions, SqliteStores
from queuey.storage.sqlite.backup import backup

FORKED = """
import os, sys
from pathlib import Path
from queuey.clock import SystemClock
from queuey.errors import StorageUnavailable
from queuey.ids import MAX_ID, IdGenerator
from queuey.model import AppendRequest
from queuey.storage.contract.common import STRONG, QueueLog, done, draft
from queuey.storage.sqlite import SqliteOptions, SqliteStores

clock = SystemClock()
for turn in range(int(sys.argv[2])):
    stores = SqliteStores(Path(sys.argv[1]), clock, IdGenerator(clock), SqliteOptions(scrub_percent=100))
    log = QueueLog(stores.messages, clock)
    log.add(b"parent")
    writes = [stores.messages.append(AppendRequest(log.queue, [draft()])) for _ in range(turn % 5)]
    child = os.fork()  # while other threads write, look for damage, and open connections of their own
    if not child:
        stores.messages.watermark(STRONG)  # as each read begins
        for ask in (lambda: log.add(b"child"), lambda: log.bodies(upto=MAX_ID), lambda: done(stores.metadata.find_queue("app", "q"))):
            try:
                ask()
            except StorageUnavailable as error:
                assert "forked" in str(error)
            else:
                os._exit(1)
        assert "forked" in stores.problems()[0]
        stores.close()
        del log, stores  # and what they hold, as at the end of any process
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    for write in writes:
        done(write)
    log.add(b"parent again")
    assert len(log.bodies(upto=MAX_ID)) == 2 + len(writes)
    assert not stores.problems()
    stores.close()
"""

HELD = """
import gc, os, signal, sys
from queuey import locks
from queuey import future
from queuey.clock import SystemClock
from queuey.ids import IdGenerator
from queuey.monitor.metrics import Monitor
from queuey.security.identity import Allowance
from queuey.http.admission import Admission

clock = SystemClock()
ids, monitor, gate, allowance = IdGenerator(clock), Monitor("sqlite"), Admission(1, 1), Allowance(1, clock)
tail = ids.tail
held = [*locks._made]
assert len(held) == 6, held
for lock in held:
    lock.acquire()  # as a thread of the parent
child = os.fork()
if not child:
    signal.alarm(60)
    ids.watermark()
    future.Future().set_result(None)
    monitor.request("log", "GET", 503, 0.1)
    with gate.lock:
        allowance.use()
    assert ids.tail != tail
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert all(lock.locked() for lock in held)
del ids, held, lock
gc.collect()
assert len(locks._made) == 5, "a generator that is gone leaves nothing"
"""


@contextmanager
def opened(path: Path, **how: Any) -> Iterator[SqliteStores]:
    clock = ManualClock()
    stores = SqliteStores(path, clock, IdGenerator(clock), SqliteOptions(**how))
    try:
        yield stores
    finally:
        stores.close()


def ran(script: str, *arguments: str) -> None:
    """As a process of its own."""
    command = [sys.executable, "-W", "error", "-c", script, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr


def test_a_second_server_does_not_come_in_by_a_symbolic_link(tmp_path: Path) -> None:
    """It would follow a log of its own, and miss what the first acknowledges."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    path, link = tmp_path / "a" / "queuey.db", tmp_path / "b" / "queuey.db"
    link.symlink_to(path)

    with opened(path), pytest.raises(StoreInUse), opened(link):
        pass
    with opened(link), pytest.raises(StoreInUse), opened(path):
        pass
    assert [file.name for file in link.parent.iterdir()] == ["queuey.db"]


def test_a_file_with_two_names_is_refused(tmp_path: Path) -> None:
    """Each name has a write-ahead log of its own."""
    path, other = tmp_path / "queuey.db", tmp_path / "other.db"
    with opened(path) as stores:
        other.hardlink_to(path)
        with pytest.raises(StoreInUse), opened(other):
            pass
        assert not stores.problems()

    with pytest.raises(ConfigurationError, match="another name"), opened(path):
        pass
    other.unlink()
    with opened(path):
        pass


def test_only_the_owner_may_read_a_store(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        path = tmp_path / "queuey.db"
        with opened(path) as stores:
            QueueLog(stores.messages, ManualClock()).add(b"secret")
            backup(path, tmp_path / "copy.db")
            modes = {file.name: oct(file.stat().st_mode & 0o777) for file in tmp_path.iterdir()}
    finally:
        os.umask(before)

    names = ["queuey.db", "queuey.db-wal", "queuey.db-shm", "queuey.db.lock", "copy.db"]
    assert modes == dict.fromkeys(names, "0o600")


def test_files_that_others_may_read_are_made_private(tmp_path: Path) -> None:
    path = tmp_path / "queuey.db"
    with opened(path):
        pass
    path.chmod(0o644)

    with opened(path):
        modes = {oct(file.stat().st_mode & 0o777) for file in tmp_path.iterdir()}

    assert modes == {"0o600"}


def test_a_process_that_is_forked_from_a_server_refuses_and_harms_nothing(tmp_path: Path) -> None:
    """Whatever SQLite was doing in another thread at that moment: committing, searching for damage, copying the log."""
    ran(FORKED, str(tmp_path / "queuey.db"), "25")


def test_locks_that_a_thread_held_at_a_fork_are_free_in_the_child() -> None:
    """Those that are taken before the store refuses."""
    ran(HELD)


@pytest.mark.parametrize("name", ["a#b", "a?b", "50%", "a%62", "a b", "é"])
def test_a_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    """In an address some of these characters mean something."""
    (tmp_path / name).mkdir()
    with opened(tmp_path / name / "queuey.db") as stores:
        log = QueueLog(stores.messages, ManualClock())
        log.add(b"here")

        assert log.bodies() == [b"here"]
    assert [one.name for one in tmp_path.iterdir()] == [name]
