"""Programs that begin in 20 milliseconds: a process that has loaded their modules forks for each of them.

Python takes between a fifth and a half of a second of a processor to load ``queuey`` or ``qdo work``, and a run of the
tests starts more than a thousand of them. Here one process for each process of the tests loads the modules, and nothing
else. It forks for each program. The fork gets the program's arguments, environment, folder and files. With
``CLONE_PARENT`` of clone(2) it is a child of the tests, with a pid, an exit code and signals like any other.

What begins differently begins anew: another program, options of Python, variables of Python.

When the tests are gone, also by kill -9, that process kills the programs that still run, and ends.

``python -m tests.support.loaded`` is that process; its input is the socket on which it is asked.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import platform
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

from tests.support.proc import born
from tests.support.source import ROOT

PROGRAMS = ("queuey.cli", "qdo.cli", "tests.support.skewed", "tests.support.worker_process")
_MODULES = (
    "queuey.cli.serve",
    "queuey.monitor.exposition",
    "queuey.server.run",
    "queuey.storage.opening",
    "queuey.storage.sqlite",
    "qdo.cli.dead",
    "qdo.cli.work",
    "qdo.groups.zookeeper",
    "tests.support.planted_faults",
    "tests.support.skewed",
)
"""What the programs load, at once or when they know what they are to do."""
_CLONE_PARENT = 0x8000
_CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine())
"""The number of the system call."""
_MOST_BYTES = 150_000
"""One datagram has all that a program gets."""
_READ_FIRST = ("PYTHON", "LANG", "LC_")
"""Variables that Python reads before any module does."""
_UNBUFFERED = "PYTHONUNBUFFERED"
"""The one of them that is heeded here."""
_AT_FIRST = dict(os.environ)
"""What the process with the modules gets; a test may have changed these variables when it is first needed."""
_PIPES = slice(10, 16)


class Program(subprocess.Popen[bytes]):
    """``python -m module ...`` as :class:`subprocess.Popen` starts it, but sooner."""

    def __init__(
        self,
        args: Sequence[str],
        *,
        stdin: int | IO[bytes] | None = None,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._start = _start_of(args, os.environ if env is None else env, cwd or Path.cwd())
        super().__init__(args, stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd, env=env)

    def _execute_child(self, *given: Any) -> None:
        """As in Python 3.11 to 3.13, where the ends of the pipes are six arguments."""
        pipes = given[_PIPES]
        if self._start is None:
            super()._execute_child(*given)  # type: ignore[misc]  # typeshed leaves it out
            _LOADED.watch(self.pid)
            return
        files = [own if number == -1 else number for own, number in enumerate((pipes[0], pipes[3], pipes[5]))]
        try:
            self.pid = _LOADED.begin(self._start, files)
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


class _Start(NamedTuple):
    """What a program gets, but for its files."""

    module: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: str


def _start_of(args: Sequence[str], environment: Mapping[str, str], folder: Path) -> _Start | None:
    """``None`` for what must begin anew."""
    if _CLONE is None or args[:2] != [sys.executable, "-m"] or args[2] not in PROGRAMS:
        return None
    if _read_first(environment) != _read_first(_AT_FIRST):
        return None
    return _Start(args[2], args[3:], dict(environment), str(folder))


def _read_first(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_READ_FIRST) and name != _UNBUFFERED}


class _Loaded:
    """The process that has the modules, from when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reached: socket.socket | None = None

    def begin(self, start: _Start, files: list[int]) -> int:
        """Fork a program; its pid.

        :raises OSError: there is no process that could.
        """
        with self._lock:
            reached = self._reach()
            socket.send_fds(reached, [json.dumps(start).encode()], files)
            pid = reached.recv(20)
            if not pid:
                raise ChildProcessError(f"it ended before it could fork {start.module}")
            return int(pid)

    def watch(self, pid: int) -> None:
        """Let a program that began anew end with the tests, too."""
        with self._lock:
            self._reach().send(json.dumps(pid).encode())

    def _reach(self) -> socket.socket:
        if self._reached is None:
            self._reached = self._load()
        return self._reached

    def _load(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _MOST_BYTES)
        command = [sys.executable, "-m", "tests.support.loaded"]
        with theirs:
            # Pipes, like the files of most programs: Python looks once whether one can seek in its files.
            process = subprocess.Popen(
                command, cwd=ROOT, env=_AT_FIRST, stdin=theirs.fileno(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        atexit.register(self._end, process)
        return ours

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if self._reached is not None:
            self._reached.close()
        process.communicate(timeout=60)


_LOADED = _Loaded()


def _serve(asked: socket.socket) -> _Start | None:
    """Fork for each that asks. Returns in each fork what it is to run, and ``None`` at the end."""
    begun: dict[int, int | None] = {}
    while True:
        given, files, _, _ = socket.recv_fds(asked, _MOST_BYTES, 3)
        if not given:
            _kill(begun)
            return None
        start = json.loads(given)
        if isinstance(start, int):
            begun[start] = born(start)
            continue
        pid = _fork_for_the_parent()
        if not pid:
            asked.close()
            for own, number in enumerate(files):
                os.dup2(number, own)
            os.closerange(3, max(files) + 1)
            return _Start(*start)
        begun[pid] = born(pid)
        for number in files:
            os.close(number)
        asked.send(str(pid).encode())


def _kill(begun: Mapping[int, int | None]) -> None:
    """kill -9 for the programs that still run. A process that has got the number of one since was born later."""
    for pid, moment in begun.items():
        if moment is not None and born(pid) == moment:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _fork_for_the_parent() -> int:
    """As :func:`os.fork`, but the new process is a sibling of this one."""
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    pid: int = python.syscall(_CLONE, _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid:
        python.PyOS_AfterFork_Parent()
    else:
        python.PyOS_AfterFork_Child()
    if pid < 0:
        raise OSError("clone failed")
    return pid


def _run(start: _Start) -> NoReturn:
    os.environ.clear()
    os.environ.update(start.environment)
    os.chdir(start.folder)
    time.tzset()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=_UNBUFFERED in os.environ or sys.stdout.isatty())
    sys.path[0] = start.folder
    sys.argv = [start.module, *start.arguments]
    runpy.run_module(start.module, run_name="__main__", alter_sys=True)
    sys.exit()


def main() -> None:
    """Load, serve, and run what is forked."""
    for name in _MODULES:
        import_module(name)
    gc.freeze()
    with socket.socket(fileno=os.dup(0)) as asked:
        start = _serve(asked)
    if start is not None:
        _run(start)


if __name__ == "__main__":
    main()
