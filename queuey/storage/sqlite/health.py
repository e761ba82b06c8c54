"""Protects an embedded store from accidents in its folder (G18)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

import apsw

from queuey.errors import (
    ConfigurationError,
    QueueyError,
    StorageFull,
    StorageReadOnly,
    StorageUnavailable,
    StoreInUse,
)
from queuey.file_system import network_file_system_of

log = logging.getLogger(__name__)

PRIVATE = 0o600
"""Mode of each file. A user with access to the files could read all messages."""
PRIVATE_FOLDER = 0o700
OTHERS = 0o077
"""Mode bits that give others than the owner access."""


def make_private(file: Path) -> None:
    """Make a file that only its owner may read.

    From an existing file of ours, the access of others is removed. SQLite gives its log and the log's index the mode of
    the file.
    """
    with contextlib.suppress(OSError):
        os.close(os.open(file, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))
    for one in (file, *beside(file)):
        with contextlib.suppress(OSError):
            if one.stat().st_mode & OTHERS:
                one.chmod(PRIVATE)
                log.warning("others could read %s: now only its owner may", one)


def beside(file: Path) -> tuple[Path, Path]:
    """A store's write-ahead log, and the log's index."""
    return file.with_name(f"{file.name}-wal"), file.with_name(f"{file.name}-shm")


def lock_of(file: Path) -> Path:
    """The lock file of a store. It stays where a server was."""
    return file.with_name(f"{file.name}.lock")


def restoring(file: Path) -> Path:
    """The copy that a restore makes, until it is in the place of a store."""
    return file.with_name(f"{file.name}.restoring")


def has_content(file: Path) -> bool:
    """False for the empty file that :class:`FolderLock` makes."""
    return file.exists() and file.stat().st_size > 0


def refuse_half_restored(file: Path) -> None:
    """:raises ConfigurationError: a restore ended when it had put the former store aside: a server would begin an empty one."""
    if restoring(file).exists() and not has_content(file):
        raise ConfigurationError(
            f"a restore to {file} was interrupted: repeat it, or remove {restoring(file)} to begin with an empty store"
        )


def refuse_second_name(file: Path) -> None:
    """:raises ConfigurationError: the file has a second name, under which its log would not be found."""
    if file.stat().st_nlink > 1:
        raise ConfigurationError(
            f"{file} has another name (a hard link), under which another server would not see its write-ahead log: "
            "remove one of the names, or copy the file"
        )


class FolderLock:
    """Limits a store to one server process.

    It holds exclusive flocks on ``<file>.lock`` and on the file itself. The kernel releases them when the process dies.
    The file has one too, since it may be reached by another name. SQLite's own locks end when any handle of this
    process to the file is closed, so this one is closed last.
    """

    def __init__(self, database: Path) -> None:
        """:param database: resolved.
        :raises StoreInUse: another process holds it.
        :raises ConfigurationError: the folder is on a network file system, or the file has two names.
        """
        kind = network_file_system_of(database.parent)
        if kind is not None:
            raise ConfigurationError(
                f"{database.parent} is on a network file system ({kind}), where an acknowledged write could be lost: choose a local folder with --data"
            )
        self.path = lock_of(database)
        self.read_only = False
        self._files = [self._open()]
        try:
            self._lock(database)
            self._files.append(self._open_database(database))
            self._lock(database)
            refuse_second_name(database)
        except QueueyError:
            self.close()
            raise

    @property
    def file(self) -> int:
        """Handle of the lock file."""
        return self._files[0]

    @property
    def database(self) -> int:
        """Handle of the store's file, for reading."""
        return self._files[1]

    def _lock(self, database: Path) -> None:
        try:
            fcntl.flock(self._files[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StoreInUse(
                f"{database} is open in another server process (lock {self.path}): stop it, or choose another folder with --data"
            ) from error

    def _open_database(self, database: Path) -> int:
        try:
            return os.open(database, os.O_RDONLY | os.O_CLOEXEC | (0 if self.read_only else os.O_CREAT), PRIVATE)
        except OSError as error:
            raise ConfigurationError(f"cannot open the store {database}: {error.strerror}") from error

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM) or not self.path.exists():
                raise ConfigurationError(f"cannot open {self.path}: {error.strerror}") from error
        self.read_only = True
        try:
            return os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise ConfigurationError(f"cannot open {self.path}, not even to read: {error.strerror}") from error

    def close(self) -> None:
        while self._files:
            os.close(self._files.pop())


_FAILURES = 3
"""Failed writes in a row after which no more are tried. One may be an accident, and each costs its caller an unknown
outcome."""
_ROOM_AGAIN_BYTES = 16 << 20
"""Free space from which on a full disk no longer counts as full."""
LOCKED = (apsw.BusyError, apsw.LockedError, apsw.ProtocolError)
"""What SQLite raises after waiting in vain for another process that writes. Nothing was stored."""
LOOK_SECONDS = 0.25
"""The age up to which the last look at the disk counts when a group of writes begins."""
_NO_ROOM = (
    "the disk has no room at all, not even the reserve; nothing was stored, and reads work: make room outside of the store; "
    "writing goes on by itself"
)
_PLENTY_BYTES = 256 << 20
"""More space above the reserve than is written in that time. With less, every group of writes looks."""


def _identity_of(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_dev, found.st_ino


class DiskHealth:
    """Decides before each commit whether writing is still safe."""

    def __init__(self, database: Path, *, reserve_bytes: int, read_only: bool) -> None:
        wal = database.with_name(database.name + "-wal")
        self._name = database.name
        self._folder = database.parent
        self._files = [file for file in (database, wal) if file.exists()]
        self._identity = [_identity_of(file) for file in self._files]
        self._reserve = reserve_bytes
        self._free = self._log_then = 0
        self._looked = float("-inf")
        self.log_bytes = 0
        """Bytes of the write-ahead log: the file may grow by as much when the log is copied."""
        self.refusal: QueueyError | None = None
        """Why nothing may be written at all; None if it may."""
        self._for_good: QueueyError | None = (
            StorageReadOnly("the store's folder cannot be written") if read_only else None
        )
        self._failures = 0
        """Writes that failed since the last one that succeeded."""
        self.failing: QueueyError | None = None
        """Why no write is tried until a probe succeeds; None if writes are tried."""
        self._uncopied = 0
        """Failed copies of the log into the file, in a row."""
        self._copy_error = ""
        self.search_error = ""
        """Why the last search for damage failed; None if it did not."""
        self._was_full = False

    def _taken_away(self) -> QueueyError | None:
        """Why the files are not known to be those that were opened; None if they are."""
        try:
            if [_identity_of(file) for file in self._files] == self._identity:
                return None
        except PermissionError:
            return StorageUnavailable(
                f"the server's user may no longer enter {self._folder}; nothing was stored: give the folder its rights back; "
                "writing goes on by itself"
            )
        except OSError:
            pass
        return StorageUnavailable(
            "the store's file or its log was replaced or removed while in use; nothing was stored: restart the server"
        )

    def found_damage(self, text: str) -> QueueyError:
        """Stop all writing from now on, because of damage.

        :returns: the error for callers that want to write.
        """
        error = StorageUnavailable(f"the store is damaged and takes no more writes; nothing was stored: {text}")
        self.refuse(error)
        return error

    def report_damage(self, text: str) -> None:
        """Stop all writing; readiness and the log say why (G18)."""
        log.error("the store is damaged", extra={"error": text})
        self.found_damage(text)

    def refuse(self, error: QueueyError) -> None:
        """Refuse all writes from now on, for this reason."""
        self._for_good = self.refusal = error

    def write_failed(self, error: Exception, number: int) -> QueueyError:
        """Note that a write or a probe failed.

        If that goes on, no more are tried: each would end with an unknown outcome, or wait for a lock in vain.

        :param number: the system's error number, such as EROFS; 0 if there is none.
        :returns: the error for callers that want to write, if nothing was stored.
        """
        self._failures += 1
        if number == errno.EROFS or isinstance(error, apsw.ReadOnlyError) or self._is_mounted_read_only():
            self.failing = StorageReadOnly(
                "the file system of the store has become read-only; nothing was stored: see the kernel's log (dmesg); "
                "writing goes on by itself once it is writable"
            )
        elif isinstance(error, LOCKED):
            self.failing = StorageUnavailable(
                f"another process holds the write lock of the store's file {self._name}; nothing was stored: end its transaction "
                "('fuser' with the file's path lists the processes that have it open); writing goes on by itself"
            )
        elif self._failures >= _FAILURES:
            reason = os.strerror(number) if number else str(error)
            self.failing = StorageUnavailable(
                f"the disk does not take writes ({reason}); nothing was stored: see the kernel's log (dmesg); "
                "writing goes on by itself once a write succeeds"
            )
        self.refusal = self.refusal or self.failing
        return self.failing or StorageUnavailable(f"the store refused the write: {error}")

    def write_succeeded(self) -> None:
        """Note that a commit is on disk."""
        if self._failures:
            self._failures, self.failing = 0, None
            self._looked = float("-inf")

    def was_full(self) -> QueueyError:
        """Note that a write failed for lack of space.

        :returns: the error for its caller.
        """
        self._was_full = True
        return StorageFull(_NO_ROOM)

    def copy_failed(self, error: Exception) -> None:
        """Note that the log could not be copied into the file.

        If that goes on, the log grows until the disk is full.
        """
        self._uncopied, self._copy_error = self._uncopied + 1, str(error)

    def copy_succeeded(self) -> None:
        self._uncopied = 0

    def _is_mounted_read_only(self) -> bool:
        try:
            return bool(os.statvfs(self._folder).f_flag & os.ST_RDONLY)
        except OSError:
            return False

    def look(self) -> None:
        """Check the files and the disk.

        It skips that if it was done a moment ago and there was plenty of space. An unlinked file or log would accept
        commits and lose them.
        """
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS and (not self._reserve or self._spare() > _PLENTY_BYTES):
            return
        self._looked = now
        self.refusal = self._for_good or self._taken_away() or self.failing
        if self._reserve:
            self._free = self._free_bytes()
            self._log_then = self.log_bytes

    def refusal_to_grow(self, free_inside: Callable[[], int]) -> QueueyError | None:
        """Why nothing that needs more space may be written; None if it may.

        Deletes still may.

        :param free_inside: gives the bytes of free pages inside the file. It is called when the disk is short: they can
            be used again as long as half of the reserve is left for the log.
        """
        spare = self._spare()
        if not self._reserve or spare >= 0:
            return None
        if self._free >= self._reserve // 2 and spare + free_inside() >= 0:
            return None
        return StorageFull(
            f"less than {self._reserve >> 20} MiB of disk are free; nothing was stored: "
            "delete messages or free disk space"
        )

    def is_short_of_room(self) -> bool:
        """Whether appends are refused for lack of space."""
        self.look()
        return self.refusal is None and self.refusal_to_grow(lambda: 0) is not None

    def _spare(self) -> int:
        """Bytes of free space above the reserve.

        It is the free space at the last look, minus the log's growth since, and minus what is to be copied from the
        log.
        """
        grown = max(self.log_bytes - self._log_then, 0)
        return self._free - grown - self.log_bytes - self._reserve

    def _free_bytes(self) -> int:
        try:
            found = os.statvfs(self._folder)
        except OSError:
            return 0
        return found.f_bavail * found.f_frsize

    def problems(self) -> list[str]:
        """The problems, for readiness and operators."""
        self.look()
        found = self.refusal or self.refusal_to_grow(lambda: 0) or self._full()
        problems = [] if found is None else [str(found)]
        if self._uncopied >= _FAILURES:
            problems.append(
                f"the write-ahead log cannot be copied into the store's file, and grows: {self._copy_error}"
            )
        if self.search_error:
            problems.append(
                f"the search for damage cannot read the store's file, and tries again each minute: {self.search_error}: see the server's "
                "log and the kernel's (dmesg)"
            )
        return problems

    def _full(self) -> QueueyError | None:
        """The error, if a write failed for lack of space and there is still none.

        The reserve may be 0, or other programs may have used it up.
        """
        self._was_full = self._was_full and self._free_bytes() < _ROOM_AGAIN_BYTES
        return StorageFull(_NO_ROOM) if self._was_full else None
