"""Files that are there as a whole, or as they were, and on the disk."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["sync", "write_whole"]


def sync(path: Path) -> None:
    """Let a file, or the names in a folder, be on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all.

    What is no file, such as a pipe or ``/dev/stdout``, is written to: a file that took its place would be missed.

    :raises OSError: it cannot be written. The file is as it was, and nothing stays beside it.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)  # a part of it would be in the way, and on a full disk takes room
        raise
