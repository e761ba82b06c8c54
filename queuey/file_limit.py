"""The number of files that this process may open: each connection is one."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf

__all__ = ["file_limit", "more_files", "most_files", "raise_file_limit"]


def raise_file_limit() -> float:
    """Allow as many open files as this user may have, and say how many these are."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return file_limit()


@contextmanager
def more_files() -> Iterator[None]:
    """Allow as many open files as this user may have while the block runs: other programs get the limit as it was."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    raise_file_limit()
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def file_limit() -> float:
    """Files that this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return inf if soft == resource.RLIM_INFINITY else soft


def most_files() -> float:
    """Files that a process of this user may open once it has raised its limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return inf if hard == resource.RLIM_INFINITY else hard
