"""Marks: whether the write-ahead log beside a store's file belongs to it.

SQLite applies whatever log lies beside a file. If another file was moved over a store that did not end in order, the
log of the former file would be copied into it. So a server gives its file a new mark (``application_id``, in the
header) and notes it in the lock file. It refuses to start if there is a log and the file has another mark than the
noted one. A backup has a mark of its own.

A copy of the file that was made while the server ran also has one of the server's marks. It fits the log as long as the
log goes on: together they are the whole store. Once the log has started over, its former content is missing. So the
file gets a new mark at the start, and each time that the log has been copied, before it starts over:

1. The new mark is noted beside the former one (:meth:`FileMark.announce`).
2. The committer copies the rest of the log, writes the mark, and copies that too; it does this itself so that nothing
   is written meanwhile. The mark comes last: a copy of the file that has it has everything that the log held before.
3. When the new mark is on disk in the file, it alone is noted (:meth:`FileMark.confirm`).

A server that is killed between two steps leaves a file with one of the noted marks, so its store is never refused. One
case is not caught: a copy that was made before the last step 2, and that replaces a file whose server was killed after
the log started over and before step 3. If nothing was written while the upkeep copied, the log starts over with the
next write, some milliseconds before that step. If readers of old snapshots or a full disk hold up step 2, it is tried
again every second; until it succeeds such a copy cannot be told from the file.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

import apsw

from queuey.errors import ConfigurationError
from queuey.storage.sqlite.health import FolderLock, beside, lock_of, refuse_second_name

__all__ = ["FileMark", "give_mark", "is_of_a_store", "new_mark", "refuse_foreign_log", "refuse_log_elsewhere"]

_HEADER_BYTES = 100
_FORMAT_AT = 18
"""The byte of a file's header that says whether there may be a log beside it,"""
_WITH_LOG = 2
"""and its value if there may be."""
_AT = 68
"""The offset of ``application_id`` in a file's header: four bytes."""
_FORMER = 4
"""Noted marks of earlier starts whose own mark never came from the log into the file."""
_LOG_HEADER_BYTES = 32
"""Bytes of a log without content."""
_LOOKS = 8
"""The most looks at a file while the noted marks change. A server changes them a few times a second at most."""


def new_mark() -> int:
    return 1 + secrets.randbelow(2**31 - 1)


def refuse_foreign_log(path: Path) -> None:
    """Check the file's mark. Call this before SQLite opens the file.

    :raises ConfigurationError: the log beside it belongs to another file, or its own log may lie elsewhere.
    """
    refuse_log_elsewhere(path)
    log, _ = beside(path)
    if _has_content(log) and _has_other_mark(path):
        raise ConfigurationError(
            f"{log} is the write-ahead log of another file than {path}: opening them together would damage both. If the file is a "
            f"backup, move it elsewhere and run 'queuey restore FILE'; else put back the file that the log belongs to"
        )


def _has_content(log: Path) -> bool:
    try:
        return log.stat().st_size > _LOG_HEADER_BYTES
    except OSError:
        return False


def _has_other_mark(path: Path) -> bool:
    """Whether the file has none of the noted marks, while these stay the same.

    If they change, a server is running. It checked the file itself before it started.
    """
    lock_file = lock_of(path)
    noted = _noted(lock_file)
    for _ in range(_LOOKS):
        before, mark, noted = noted, _mark_of(path), _noted(lock_file)
        if not before or mark in (*before, *noted):
            return False
        if before == noted:
            return True
    return False


def refuse_log_elsewhere(path: Path) -> None:
    """:raises ConfigurationError: the store has a second name, where its log may lie.

    A backup has no log, and may have many names.
    """
    with suppress(FileNotFoundError):
        if path.stat().st_nlink > 1 and _may_have_log(path):
            refuse_second_name(path)


def is_of_a_store(path: Path) -> bool:
    """Whether a file is a store, also of a server that has ended, and no backup.

    A backup has no log, and no server had it.
    """
    if any(one.exists() for one in (*beside(path), lock_of(path))):
        return True
    try:
        return path.is_file() and _may_have_log(path)
    except OSError:
        return False


def _may_have_log(path: Path) -> bool:
    return _header(path)[_FORMAT_AT] == _WITH_LOG


def _header(path: Path) -> bytes:
    """The first bytes of a file.

    Closing the file ends all locks that connections of this process have on it, so there must be no connections.
    """
    with path.open("rb") as file:
        return file.read(_HEADER_BYTES).ljust(_HEADER_BYTES, b"\0")


class FileMark:
    """The mark of a file that is served. Only one thread at a time uses it."""

    def __init__(self, lock: FolderLock) -> None:
        self._lock = lock
        self._next = 0

    @property
    def is_due(self) -> bool:
        """Whether a mark was announced that is not in the file yet."""
        return bool(self._next)

    def announce(self) -> None:
        """Note a new mark before it is written.

        Until it is in the file, the former ones are valid as well.
        """
        if self._next:
            return
        mark = new_mark()
        former = [*_noted(self._lock.path), _read_mark(self._lock.database)][-_FORMER:]
        with suppress(OSError):
            _note(self._lock.file, *former, mark)
            self._next = mark

    def write_last(self, connection: apsw.Connection, mode: int, *, may_write: bool = True) -> bool:
        """Copy the whole log into the file, and the mark after it.

        The mark is left out while a reader has an old snapshot.

        :param connection: the one that writes, outside of any transaction.
        :param mode: the checkpoint's mode.
        :param may_write: False copies the log and writes no mark.
        :returns: whether the whole log is in the file, and on disk.
        :raises apsw.Error: what is left out can be done later.
        """
        logged, copied = connection.wal_checkpoint(mode=mode)
        is_whole = logged == copied
        if self._next and may_write and is_whole:
            connection.execute(f"pragma application_id = {self._next}")
            connection.wal_checkpoint(mode=mode)
        return is_whole

    def confirm(self) -> None:
        """Forget the former marks, once the new one is on disk in the file."""
        with suppress(OSError):
            if self._next and _read_mark(self._lock.database) == self._next:
                os.fsync(self._lock.database)
                _note(self._lock.file, self._next)
                self._next = 0


def give_mark(connection: apsw.Connection, lock: FolderLock) -> FileMark:
    """Give the file a new mark as a server starts.

    On a full disk the file keeps the former mark: a full store must still open, for reading and deleting.
    """
    mark = FileMark(lock)
    mark.announce()
    with suppress(apsw.BusyError, apsw.FullError):
        mark.write_last(connection, apsw.SQLITE_CHECKPOINT_PASSIVE)
    mark.confirm()
    return mark


def _mark_of(path: Path) -> int:
    """The file's mark; 0 if it has none, or does not exist."""
    try:
        return int.from_bytes(_header(path)[_AT : _AT + 4], "big")
    except OSError:
        return 0


def _read_mark(file: int) -> int:
    return int.from_bytes(os.pread(file, 4, _AT), "big")


def _noted(lock_file: Path) -> list[int]:
    try:
        return [int(word) for word in lock_file.read_text(encoding="ascii").split()]
    except (OSError, ValueError):
        return []


def _note(file: int, *marks: int) -> None:
    os.pwrite(file, b"%-64b\n" % b" ".join(b"%d" % mark for mark in marks), 0)
    os.fsync(file)
