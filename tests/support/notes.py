"""Workers that note what they do in a file, a line each, and kill -9 of them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path


def write(notes: Path, *words: object) -> None:
    """Add a line in one write, so that lines of several programs do not mix."""
    with notes.open("a") as file:
        file.write(" ".join(map(str, words)) + "\n")


def lines(notes: Path) -> list[str]:
    """What stands in the file, whole lines only."""
    return notes.read_text().rpartition("\n")[0].splitlines() if notes.exists() else []


def hold(notes: Path, text: object) -> None:
    """Note a beginning, wait until there is a file ``NOTES.go``, and note the end."""
    write(notes, "begin", text)
    while not notes.with_suffix(".go").exists():
        time.sleep(0.02)
    write(notes, "end", text)


def go(notes: Path) -> None:
    """Let whatever holds go on."""
    notes.with_suffix(".go").touch()


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """kill -9 of a worker, and of the processes that it started. It leads its group, once it has begun."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait(90)
