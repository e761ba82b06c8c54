"""Nothing outlives those who use it: a guard ends a service when the last of them is gone, also after their kill -9.

Whoever uses a service holds a shared lock on a file in its folder. The system takes the lock back when the holder
ends, whatever ended it. The guard, a process of its own, waits for the exclusive lock, which it gets when nobody
holds the file any more. Then it kills what still runs there, and removes the folder.

``python -m tests.services.guard FOLDER`` is the guard itself.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tests.services.jars import ROOT
from tests.services.process import Process

USERS = "users.lock"
GUARDED = "guard.lock"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Be one of the users of what runs below this folder, while the block runs.

    If its guard is just clearing up after earlier users, this waits until that is done.
    """
    users = _join(folder)
    try:
        if _unguarded(folder):
            guard = [sys.executable, "-m", "tests.services.guard", str(folder)]
            # setsid -f: a session of its own, and no child of ours that would have to be waited for.
            # Nor does it keep our pipes open.
            nowhere = subprocess.DEVNULL
            subprocess.run(
                ["setsid", "-f", *guard], cwd=ROOT, stdin=nowhere, stdout=nowhere, stderr=nowhere, check=True
            )
        yield
    finally:
        users.close()


def _join(folder: Path) -> TextIO:
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        users = (folder / USERS).open("a")
        fcntl.flock(users, fcntl.LOCK_SH)
        if _is(users, folder / USERS):
            return users
        users.close()  # it was removed while we waited for it


def _is(file: TextIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _unguarded(folder: Path) -> bool:
    with (folder / GUARDED).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def guard(folder: Path) -> None:
    """Wait for the last user to go; then clear up. One guard a folder: a second one ends at once."""
    try:
        with (folder / GUARDED).open("a") as only, (folder / USERS).open("a") as users:
            fcntl.flock(only, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(users, fcntl.LOCK_EX)
            for pid_file in folder.glob("*/pid"):
                Process(pid_file.parent, []).kill()
            shutil.rmtree(folder, ignore_errors=True)
    except (FileNotFoundError, BlockingIOError):
        return  # gone already, or guarded already


if __name__ == "__main__":
    guard(Path(sys.argv[1]))
