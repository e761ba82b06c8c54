"""Reading what strace saw of a server: was each message on disk before its writer was told so?"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from queuey.storage.sqlite.connections import PAGE_BYTES
from tests.support.servers import eventually

_SHOWN = str(PAGE_BYTES + 1000)
"""Bytes of a call that are shown: a page of the log, and what is written around it."""
PROGRAM = ("strace", "-D", "-f", "-y", "-s", _SHOWN, "-e", "trace=pwrite64,fsync,fdatasync,write,writev,sendto,sendmsg")
"""Goes before a command: the traced process stays the one that was started (``-D``)."""

_LINE = re.compile(r"(?P<thread>\d+) +(?:<\.\.\. )?(?P<call>\w+)(?P<resumed> resumed>)?(?P<rest>.*)", re.DOTALL)
_SYNCS = ("fsync", "fdatasync")


def traced(output: Path, program: Sequence[str]) -> tuple[str, ...]:
    """``program`` under strace."""
    return (*PROGRAM, "-o", str(output), *program)


@contextmanager
def failing(pid: int, file: Path, calls: str, error: str) -> Iterator[None]:
    """Let these calls of the system fail for a process, on one file, while the block runs.

    Where no process may be traced, the test is skipped; :mod:`tests.support.unskipped` fails it where all must run.

    :param calls: such as ``fsync,fdatasync``.
    :param error: such as ``EIO``.
    """
    with _injecting(pid, file, calls, f"error={error}"):
        yield


@contextmanager
def slowed(pid: int, file: Path, calls: str, seconds: float) -> Iterator[None]:
    """Let these calls of the system take longer for a process, as :func:`failing` lets them fail."""
    with _injecting(pid, file, calls, f"delay_enter={round(seconds * 1e6)}"):
        yield


@contextmanager
def _injecting(pid: int, file: Path, calls: str, what: str) -> Iterator[None]:
    wanted = ["-e", f"trace={calls}", "-e", f"inject={calls}:{what}", "-P", str(file)]
    tracer = subprocess.Popen(
        ["strace", "-f", "-qq", "-o", "/dev/null", *wanted, "-p", str(pid)], stderr=subprocess.PIPE, text=True
    )
    try:
        eventually(lambda: tracer.poll() is not None or all(_is_traced(pid)))
        if tracer.poll() is not None:
            pytest.skip(f"strace cannot attach: run as root ({tracer.communicate()[1]})")
        yield
    finally:
        tracer.terminate()
        tracer.communicate()


def _is_traced(pid: int) -> list[bool]:
    """Of each thread."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            found.append("TracerPid:\t0\n" not in (task / "status").read_text())
    return found


def answered_early(trace: Iterable[str], markers: Sequence[str]) -> list[str]:
    """Messages whose 201 began to be sent before a sync of the log that holds them had returned.

    :param trace: the lines of strace.
    :param markers: the messages' bodies, in the order in which they were sent, each after the answer to the one before.
    """
    waiting = list(markers)
    written_at: dict[str, int] = {}
    sync_began: dict[str, int] = {}
    last_sync, early = -1, []
    for at, line in enumerate(trace):
        found = _LINE.match(line)
        if found is None:
            continue
        thread, call, rest = found["thread"], found["call"], found["rest"]
        if call == "pwrite64" and "-wal>" in rest:
            for marker in waiting:
                if marker in rest:
                    written_at.setdefault(marker, at)
        elif call in _SYNCS:
            if not found["resumed"] and "-wal>" in rest:
                sync_began[thread] = at
            if rest.rstrip().endswith("= 0") and thread in sync_began:
                last_sync = max(last_sync, sync_began.pop(thread))
        elif "HTTP/1.1 201" in rest and waiting:
            marker = waiting.pop(0)
            if not 0 <= written_at.get(marker, -1) < last_sync:
                early.append(marker)
    return early + waiting
