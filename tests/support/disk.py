"""Small file systems, which a test fills or takes write access from."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Disk:
    """A mounted tmpfs."""

    path: Path

    @property
    def free_bytes(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def fill(self, *, leave: int = 0) -> Path:
        """Put a file in the way that leaves this number of bytes free; remove it to have the room back.

        A server beside it takes and gives back room meanwhile: what was free a moment ago may be too much now.
        """
        ballast = self.path / "ballast"
        with ballast.open("ab") as file:
            while (room := self.free_bytes - leave) > 0:
                with contextlib.suppress(OSError):
                    os.posix_fallocate(file.fileno(), file.tell(), room)
                    file.seek(0, os.SEEK_END)
        return ballast

    def remount(self, how: str) -> None:
        """``ro`` or ``rw``."""
        _run("mount", "-o", f"remount,{how}", str(self.path))


@contextmanager
def small_disk(folder: Path, megabytes: int, *, files: int | None = None) -> Iterator[Disk]:
    """A disk of a few MiB, for the data of a server in this folder.

    :param files: how many it takes at most.

    Where it cannot be had, the test is skipped; :mod:`tests.support.unskipped` fails it where all must run.
    """
    path = folder / "data"
    path.mkdir()
    options = f"size={megabytes}m" + ("" if files is None else f",nr_inodes={files + 1}")
    made = _run("mount", "-t", "tmpfs", "-o", options, "queuey-test", str(path), check=False)
    if made:
        pytest.skip(f"a small disk cannot be mounted: run as root, in a container with CAP_SYS_ADMIN ({made})")
    try:
        yield Disk(path)
    finally:
        _run("umount", str(path))


def _run(*command: str, check: bool = True) -> str:
    """What a command complains about; nothing if all went well."""
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not (check and found.returncode), found.stderr
    return found.stderr.strip() or f"exit code {found.returncode}" if found.returncode else ""
