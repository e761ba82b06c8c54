"""Nothing outlives its users: a guard ends a service when the last of them is gone, also after their kill -9.

Whoever uses a service holds a shared lock on a file in its folder. The system takes the lock back when the holder
ends, whatever ended it. The guard, a process of its own, waits for the exclusive lock, which it gets when nobody
holds the file any more. Then it kills what still runs there, and removes the folder.

``python -m tests.support.services.guard FOLDER`` is the guard itself.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from tests.support.services.jars import ROOT
from tests.support.services.process import Process

USERS = "users.lock"
GUARDED = "guard.lock"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Be one of the users of what runs below this folder, while the block runs.

    If its guard is just clearing up after earlier users, this waits until that is done.
    """
    with join(folder):
        if _unguarded(folder):
            guard = [sys.executable, "-m", "tests.support.services.guard", str(folder)]
            # setsid -f: a session of its own, and no child of ours that would have to be waited for.
            # Nor does it keep our pipes open.
            nowhere = subprocess.DEVNULL
            subprocess.run(
                ["setsid", "-f", *guard], cwd=ROOT, stdin=nowhere, stdout=nowhere, stderr=nowhere, check=True
            )
        yield


def join(folder: Path) -> TextIO:
    """The folder with a shared lock on it, made if need be: until the file is closed, nobody clears it up."""
    while True:
        with suppress(FileExistsError):  # exist_ok would look at the folder a second time, when it may be gone
            folder.mkdir(parents=True)
        try:
            users = (folder / USERS).open("a")
        except FileNotFoundError:
            continue  # the guard removed the folder in between
        fcntl.flock(users, fcntl.LOCK_SH)
        if _is(users, folder / USERS):
            return users
        users.close()  # the guard removed the file while we waited for the lock


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
            if not _is(users, folder / USERS):
                return  # another guard was quicker; the folder of this name is a later one
            for pid_file in folder.glob("*/pid"):
                Process(pid_file.parent, []).kill()
            # Renamed first: a user that joins now makes a new folder, of which nothing is removed.
            going = folder.with_name(f"{folder.name}.{os.getpid()}.gone")
            folder.rename(going)
            shutil.rmtree(going, ignore_errors=True)
    except (FileNotFoundError, BlockingIOError):
        return  # gone already, or guarded already


if __name__ == "__main__":
    guard(Path(sys.argv[1]))
