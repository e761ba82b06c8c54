"""What the system knows of a process."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def born(pid: int) -> int | None:
    """When a process started, in ticks since the machine did: with it a process id is never mistaken for a later one's.

    :returns: nothing if no such process lives.
    """
    fields = stat_of(Path(f"/proc/{pid}"))
    return int(fields[19]) if fields and fields[0] not in "ZX" else None


def stat_of(folder: Path) -> list[str] | None:
    """The fields of a process's or thread's stat file after its name."""
    try:
        text = (folder / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rsplit(")", 1)[1].split()


def children_of(parent: int, word: str) -> list[int]:
    """Children of a process that have this word in their command line."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        fields = stat_of(folder)
        if fields and int(fields[1]) == parent:
            with suppress(OSError):
                found += [int(folder.name)] * (word.encode() in (folder / "cmdline").read_bytes())
    return found
