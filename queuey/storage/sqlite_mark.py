"""Whose log is this? A mark in a store's file tells whether the write-ahead log beside it belongs to it.

SQLite applies whatever log lies beside a file. If another file was moved over a store that did not end in order, the log of the
former would be copied into it. So each server gives its file a new mark (``application_id``, in the header), notes it in the lock
file, and refuses to start where there is a log and the file has another mark than the one that was noted. A backup has a mark of its own.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

import apsw

from queuey.errors import ConfigurationError
from queuey.storage.sqlite_guard import FolderLock, beside, refuse_second_name

__all__ = ["give_mark", "new_mark", "refuse_foreign_log", "refuse_log_elsewhere"]

_HEADER_BYTES = 100
_FORMAT_AT = 18
"""Where a file's header tells whether there may be a log beside it,"""
_WITH_LOG = 2
"""and what it says if so."""
_AT = 68
"""Where ``application_id`` stands in a file's header, in four bytes."""
_FORMER = 4
"""Marks that are remembered of starts whose own never came from the log into the file."""
_LOG_HEADER_BYTES = 32
"""A log that is no longer has nothing in it."""


def new_mark() -> int:
    return 1 + secrets.randbelow(2**31 - 1)


def refuse_foreign_log(path: Path) -> None:
    """To be called before SQLite opens the file.

    :raises ConfigurationError: the log beside it belongs to another file, or its own may lie elsewhere.
    """
    refuse_log_elsewhere(path)
    log, _ = beside(path)
    if not log.exists() or log.stat().st_size <= _LOG_HEADER_BYTES:
        return
    noted = _noted(path.with_name(f"{path.name}.lock"))
    if noted and _mark_of(path) not in noted:
        raise ConfigurationError(
            f"{log} is the write-ahead log of another file than {path}: opening them together would damage both. If the file is a "
            f"backup, move it elsewhere and run 'queuey restore FILE'; else put back the file that the log belongs to"
        )


def refuse_log_elsewhere(path: Path) -> None:
    """:raises ConfigurationError: a store with a second name, where its log may lie. A backup has no log, and any number of names."""
    with suppress(FileNotFoundError):
        if path.stat().st_nlink > 1 and _header(path)[_FORMAT_AT] == _WITH_LOG:
            refuse_second_name(path)


def _header(path: Path) -> bytes:
    """The file is closed behind it, which ends all locks that connections of this process have on it: so there may be none."""
    with path.open("rb") as file:
        return file.read(_HEADER_BYTES).ljust(_HEADER_BYTES, b"\0")


def give_mark(connection: apsw.Connection, lock: FolderLock) -> None:
    """Give the file a new mark. As long as it is only in the log, the former ones are good as well.

    On a full disk it keeps the former: a full store still has to open, for reading and deleting.
    """
    mark = new_mark()
    former = [*_noted(lock.path), _read_mark(lock.database)][-_FORMER:]
    with suppress(apsw.BusyError, apsw.FullError, OSError):
        _note(lock.file, *former, mark)
        connection.execute(f"pragma application_id = {mark}")
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        _confirm(lock, mark)


def _confirm(lock: FolderLock, mark: int) -> None:
    """Forget the former mark once the new one is in the file."""
    if _read_mark(lock.database) == mark:
        _note(lock.file, mark)


def _mark_of(path: Path) -> int:
    """0 of a file that has none, or is not there."""
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
