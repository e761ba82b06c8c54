"""A file in which programs note what they do, a line each."""

from __future__ import annotations

import time
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
