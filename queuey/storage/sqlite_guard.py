"""What stands between an embedded store and accidents of its folder (G18)."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from queuey.errors import (
    ConfigurationError,
    QueueyError,
    StorageFull,
    StorageReadOnly,
    StorageUnavailable,
    StoreInUse,
)

_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs", "fuse.glusterfs", "ncpfs"}
)
"""File systems whose locks or shared memory SQLite's write-ahead log cannot rely on."""


def file_system_of(path: Path) -> str:
    """The type of the file system that ``path`` lies on, as the kernel names it; empty if it cannot be told."""
    target = os.path.realpath(path)
    best, kind = "", ""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        left, _, right = line.partition(" - ")
        mount = left.split(" ")[4].encode().decode("unicode_escape")
        inside = target == mount or target.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, right.split(" ")[0]
    return kind


class FolderLock:
    """One server process per store: an exclusive flock on ``<file>.lock``, released by the kernel when the process dies."""

    def __init__(self, database: Path) -> None:
        """:raises StoreInUse: another process holds it.
        :raises ConfigurationError: the folder is on a network file system.
        """
        kind = file_system_of(database.parent)
        if kind in _NETWORK:
            raise ConfigurationError(
                f"{database.parent} is on a network file system ({kind}), where an acknowledged write could be lost: choose a local folder with --data"
            )
        self.path = database.with_name(database.name + ".lock")
        self.read_only = False
        self._file = self._open()
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise StoreInUse(
                f"{database} is open in another server process (lock {self.path}): stop it, or choose another folder with --data"
            ) from error

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise ConfigurationError(f"cannot open {self.path}: {error.strerror}") from error
        self.read_only = True
        try:
            return os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise ConfigurationError(f"cannot open {self.path}, not even to read: {error.strerror}") from error

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


LOOK_SECONDS = 0.25
"""How old what the guard knows may be when a group of writes begins."""
_PLENTY_BYTES = 256 << 20
"""More above the reserve than is written in that time: with less, every group of writes looks."""


class Guard:
    """Asks before a commit whether writing is still right."""

    def __init__(self, database: Path, *, reserve_bytes: int, read_only: bool) -> None:
        log = database.with_name(database.name + "-wal")
        self._folder = database.parent
        self._files = [file for file in (database, log) if file.exists()]
        self._identity = self._look_at_files()
        self._reserve = reserve_bytes
        self._free = self._log_then = 0
        self._looked = float("-inf")
        self.log_bytes = 0
        """What the write-ahead log holds: as much may the file grow when it is copied."""
        self.refusal: QueueyError | None = None
        """Why nothing at all may be written, if so."""
        self._for_good: QueueyError | None = (
            StorageReadOnly("the store's folder cannot be written") if read_only else None
        )

    def _look_at_files(self) -> list[tuple[int, int]]:
        try:
            return [(found.st_dev, found.st_ino) for found in [file.stat() for file in self._files]]
        except OSError:
            return []

    def found_damage(self, text: str) -> QueueyError:
        """From here on nothing is written.

        :returns: what those who wanted to write get.
        """
        self._for_good = StorageUnavailable(
            f"the store is damaged and takes no more writes; nothing was stored: {text}"
        )
        self.refusal = self._for_good
        return self._for_good

    def look(self) -> None:
        """Look at files and disk, unless that was done a moment ago and there was plenty of room.

        An unlinked file, or log, would go on taking commits, and lose them.
        """
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS and (not self._reserve or self._spare() > _PLENTY_BYTES):
            return
        self._looked = now
        taken_away = None
        if self._look_at_files() != self._identity:
            taken_away = StorageUnavailable(
                "the store's file or its log was replaced or removed while in use; nothing was stored: "
                "restart the server"
            )
        self.refusal = self._for_good or taken_away
        if self._reserve:
            self._free = self._free_bytes()
            self._log_then = self.log_bytes

    def refusal_to_grow(self, free_inside: Callable[[], int]) -> QueueyError | None:
        """Why nothing that takes more room may be written, if so; deletes still may.

        :param free_inside: bytes of the file that deletions gave back, asked for when the disk is short: they
            can be used again as long as half of the reserve is left for the log.
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

    def _spare(self) -> int:
        """Room above the reserve: what was free at the last look, less what the log grew by since, and what is to be copied from it."""
        grown = max(self.log_bytes - self._log_then, 0)
        return self._free - grown - self.log_bytes - self._reserve

    def _free_bytes(self) -> int:
        try:
            found = os.statvfs(self._folder)
        except OSError:
            return 0
        return found.f_bavail * found.f_frsize

    def problems(self) -> list[str]:
        """For readiness and operators."""
        self.look()
        found = self.refusal or self.refusal_to_grow(lambda: 0)
        return [] if found is None else [str(found)]
