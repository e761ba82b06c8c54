"""A disk that loses at a power cut what was not synced: a file system by FUSE, in a process of its own.

Everything goes to one folder, and with each sync of a file its data go to another one as well. A cut goes on with the
other one. Names are kept at once, as by a journal of a file system; data are kept when they are synced.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from qdo.bench.promises import NotHere

MOUNT_SECONDS = 30.0
LOOK_SECONDS = 0.02


class LossyDisk:
    """A folder on such a disk, while it is entered."""

    def __init__(self, folder: Path) -> None:
        """:raises NotHere: this machine mounts none."""
        if find_spec("mfusepy") is None:
            raise NotHere("a disk that loses data needs mfusepy: pip install '/path/to/queuey[bench-power]'")
        if not os.access("/dev/fuse", os.W_OK) or os.geteuid():
            raise NotHere("a disk that loses data needs /dev/fuse, and root to mount it")
        self.path, self._live, self._kept = (folder / name for name in ("disk", "live", "kept"))
        self._process: subprocess.Popen[bytes] | None = None
        self._said = folder / "disk.txt"

    def __enter__(self) -> Self:
        """:raises NotHere: it cannot be mounted."""
        for one in (self.path, self._live, self._kept):
            one.mkdir(parents=True)
        self._mount()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._unmount()

    def cut(self) -> None:
        """Lose what was not synced. Nothing may have a file of it open."""
        self._unmount()
        shutil.rmtree(self._live)
        shutil.copytree(self._kept, self._live, symlinks=True)
        self._mount()

    def _mount(self) -> None:
        command = [sys.executable, "-m", __name__, str(self.path), str(self._live), str(self._kept)]
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        give_up = time.monotonic() + MOUNT_SECONDS
        while not self.path.is_mount():
            if self._process.poll() is not None or time.monotonic() > give_up:
                self._unmount()
                last = self._said.read_text(errors="replace").strip()[-300:]
                raise NotHere(f"a disk that loses data cannot be mounted: {last}")
            time.sleep(LOOK_SECONDS)

    def _unmount(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.path)], capture_output=True, check=False)
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class NamesInBoth:
    """The operations on names, which are done in both folders at once."""

    def __init__(self, live: str, kept: str) -> None:
        self._live, self._kept = live, kept

    def _at(self, path: str) -> Path:
        return Path(self._live + path)

    def _both(self, path: str) -> tuple[Path, Path]:
        return Path(self._live + path), Path(self._kept + path)

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        found = self._at(path).lstat() if fh is None else os.fstat(fh)
        names = ("st_mode", "st_nlink", "st_uid", "st_gid", "st_size", "st_blocks")
        times = {f"st_{name}": getattr(found, f"st_{name}_ns") for name in ("atime", "mtime", "ctime")}
        return {**{name: getattr(found, name) for name in names}, **times}

    def readdir(self, path: str, _fh: int) -> list[str]:
        return [".", "..", *(one.name for one in self._at(path).iterdir())]

    def statfs(self, path: str) -> dict[str, int]:
        found = os.statvfs(self._at(path))
        names = ("bavail", "bfree", "blocks", "bsize", "favail", "ffree", "files", "flag", "frsize", "namemax")
        return {f"f_{name}": getattr(found, f"f_{name}") for name in names}

    def readlink(self, path: str) -> str:
        return str(self._at(path).readlink())

    def mkdir(self, path: str, mode: int) -> int:
        return self._in_both(path, lambda one: one.mkdir(mode))

    def rmdir(self, path: str) -> int:
        return self._in_both(path, Path.rmdir)

    def unlink(self, path: str) -> int:
        return self._in_both(path, Path.unlink)

    def chmod(self, path: str, mode: int) -> int:
        return self._in_both(path, lambda one: one.chmod(mode))

    def chown(self, path: str, uid: int, gid: int) -> int:
        return self._in_both(path, lambda one: os.lchown(one, uid, gid))

    def utimens(self, path: str, times: tuple[int, int]) -> int:
        os.utime(self._at(path), ns=times)
        return 0

    def symlink(self, target: str, source: str) -> int:
        return self._in_both(target, lambda one: one.symlink_to(source))

    def rename(self, old: str, new: str) -> int:
        for before, after in zip(self._both(old), self._both(new), strict=True):
            before.rename(after)
        return 0

    def link(self, target: str, source: str) -> int:
        for made, known in zip(self._both(target), self._both(source), strict=True):
            made.hardlink_to(known)
        return 0

    def _in_both(self, path: str, call: Callable[[Path], object]) -> int:
        for one in self._both(path):
            call(one)
        return 0


class LossyFiles(NamesInBoth):
    """The operations of the file system, for one thread."""

    use_ns = True

    def __init__(self, live: str, kept: str) -> None:
        super().__init__(live, kept)
        self._dirty: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        """By inode: offsets and lengths of what was written or cut off, and not synced."""

    def create(self, path: str, mode: int, _fi: object = None) -> int:
        live, kept = self._both(path)
        os.close(os.open(kept, os.O_WRONLY | os.O_CREAT, mode))
        return os.open(live, os.O_RDWR | os.O_CREAT, mode)

    def open(self, path: str, flags: int) -> int:
        if flags & os.O_TRUNC:
            self.truncate(path, 0)
        # What is to be appended comes with its offset.
        return os.open(self._at(path), flags & ~(os.O_TRUNC | os.O_APPEND | os.O_CREAT | os.O_EXCL))

    def read(self, _path: str, size: int, offset: int, fh: int) -> bytes:
        return os.pread(fh, size, offset)

    def write(self, _path: str, data: bytes, offset: int, fh: int) -> int:
        written = os.pwrite(fh, data, offset)
        self._note(os.fstat(fh).st_ino, offset, written)
        return written

    def truncate(self, path: str, length: int, _fh: int | None = None) -> int:
        before = self._at(path).stat()
        os.truncate(self._at(path), length)
        self._note(before.st_ino, length, max(0, before.st_size - length))
        return 0

    def _note(self, inode: int, offset: int, length: int) -> None:
        parts = self._dirty[inode]
        if parts and sum(parts[-1]) == offset:
            parts[-1] = (parts[-1][0], parts[-1][1] + length)
        else:
            parts.append((offset, length))

    def fsync(self, path: str, _datasync: int, fh: int) -> int:
        """Keep what was written to the file since its last sync."""
        now = os.fstat(fh)
        parts = self._dirty.pop(now.st_ino, [])
        if not parts or not stat.S_ISREG(now.st_mode):
            return 0
        live_path, kept_path = self._both(path)
        with live_path.open("rb") as live, kept_path.open("r+b") as kept:
            for offset, length in parts:
                kept.seek(offset)
                kept.write(os.pread(live.fileno(), length, offset))
            kept.truncate(now.st_size)
        return 0

    def fsyncdir(self, _path: str, _datasync: int, _fh: int) -> int:
        return 0

    def flush(self, _path: str, _fh: int) -> int:
        return 0

    def release(self, _path: str, fh: int) -> int:
        os.close(fh)
        return 0


def main(mounted: str, live: str, kept: str) -> None:
    """Serve until it is unmounted."""
    import mfusepy

    # The library asks its own class which operations there are.
    operations = type("Files", (LossyFiles, mfusepy.Operations), {})(live, kept)
    with suppress(KeyboardInterrupt):
        mfusepy.FUSE(operations, mounted, foreground=True, nothreads=True, allow_other=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
