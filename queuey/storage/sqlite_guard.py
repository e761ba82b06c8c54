"""What stands between an embedded store and accidents of its folder (G18)."""

from __future__ import annotations

import errno
import fcntl
import os
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


class Guard:
    """Asks before every commit whether writing is still right, and after it whether it was."""

    def __init__(self, database: Path, *, reserve_bytes: int, read_only: bool) -> None:
        self._database = database
        self._reserve = reserve_bytes
        self._read_only = read_only
        self._identity = self._look()
        self.damage = ""
        """Set once damage was found: from then on nothing is written."""

    def _look(self) -> tuple[int, int] | None:
        try:
            found = self._database.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def file_is_ours(self) -> bool:
        """The path still names the file that was opened; an unlinked file takes commits and loses them."""
        return self._look() == self._identity

    def free_bytes(self) -> int:
        found = os.statvfs(self._database.parent)
        return found.f_bavail * found.f_frsize

    def refusal(self) -> QueueyError | None:
        """Why nothing at all may be written now, if so."""
        if self._read_only:
            return StorageReadOnly("the store's folder cannot be written; nothing was stored")
        if self.damage:
            return StorageUnavailable(
                f"the store is damaged and takes no more writes; nothing was stored: {self.damage}"
            )
        if not self.file_is_ours():
            return StorageUnavailable(
                "the store's file was replaced or removed while in use; nothing was stored: restart the server"
            )
        return None

    def refusal_to_grow(self) -> QueueyError | None:
        """Why nothing that takes more room may be written now, if so; deletes still may."""
        if self._reserve and self.free_bytes() < self._reserve:
            return StorageFull(
                f"less than {self._reserve >> 20} MiB of disk are free; nothing was stored: delete messages or free disk space"
            )
        return None

    def problems(self) -> list[str]:
        """For readiness and operators."""
        found = []
        refusal = self.refusal() or self.refusal_to_grow()
        if refusal is not None:
            found.append(str(refusal))
        return found
