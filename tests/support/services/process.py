"""One process of a service: in a session of its own, known by a file to whoever comes later, and at a test's mercy."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from tests.support.proc import born, stat_of

STOP_SECONDS = 120
LOOK_SECONDS = 0.01


class ServiceError(Exception):
    """A process did not do what was asked of it."""


class Process:
    """A program with a folder of its own.

    The folder keeps ``pid`` (so that a later process finds this one) and ``log.txt``, all that it said. States:
    absent -> start -> running -> pause -> paused -> resume -> running; stop and kill lead to absent from anywhere.
    """

    def __init__(self, folder: Path, command: list[str]) -> None:
        self.folder = folder
        self._command = command

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"

    @property
    def pid(self) -> int | None:
        """Its process id while it runs, paused or not."""
        try:
            pid, moment = (int(word) for word in self._pid_file.read_text().split())
        except (FileNotFoundError, ValueError):
            return None
        return pid if born(pid) == moment else None

    @property
    def paused(self) -> bool:
        pid = self.pid
        return pid is not None and all(_state(thread) == "T" for thread in Path(f"/proc/{pid}/task").iterdir())

    @property
    def resident_bytes(self) -> int:
        """Memory that it takes now, shared or not."""
        pid = self.pid
        fields = stat_of(Path(f"/proc/{pid}")) if pid is not None else None
        return int(fields[21]) * os.sysconf("SC_PAGE_SIZE") if fields else 0

    def start(self) -> None:
        """Start it; it goes on if this process ends."""
        if self.pid is not None:
            raise ServiceError(f"{self.folder.name} runs already, as process {self.pid}")
        self.folder.mkdir(parents=True, exist_ok=True)
        pid = os.posix_spawnp(
            self._command[0],
            self._command,
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )
        self._pid_file.write_text(f"{pid} {born(pid)}")

    def pause(self) -> None:
        """SIGSTOP: neither dead nor alive; each of its threads has stopped when this returns."""
        self._signal(signal.SIGSTOP)
        while self.pid is not None and not self.paused:
            time.sleep(LOOK_SECONDS)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """As an operator ends it: SIGTERM, and time to finish."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9; it is gone when this returns."""
        self._end(signal.SIGKILL)

    def log_end(self, lines: int = 20) -> str:
        """The last lines that it said."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    @property
    def _pid_file(self) -> Path:
        return self.folder / "pid"

    def _signal(self, number: signal.Signals) -> None:
        pid = self.pid
        if pid is None:
            raise ServiceError(f"{self.folder.name} does not run; it said:\n{self.log_end()}")
        os.kill(pid, number)

    def _end(self, number: signal.Signals) -> None:
        pid = self.pid
        if pid is None:
            return
        os.kill(pid, number)
        os.kill(pid, signal.SIGCONT)  # a paused one hears of SIGTERM only when it goes on
        deadline = time.monotonic() + STOP_SECONDS
        while self.pid is not None:
            if time.monotonic() > deadline:
                raise ServiceError(f"{self.folder.name} did not end within {STOP_SECONDS} s; kill it")
            time.sleep(LOOK_SECONDS)
        with suppress(ChildProcessError):  # it may be somebody else's child
            os.waitpid(pid, os.WNOHANG)
        self._pid_file.unlink(missing_ok=True)


def _state(thread: Path) -> str | None:
    fields = stat_of(thread)
    return fields[0] if fields else None
