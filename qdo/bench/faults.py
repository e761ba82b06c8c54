"""A server that a run starts, and what goes wrong with it: it is killed or paused, and its network loses messages.

It has a store of its own, which lives through its kills, and ends with the run.
"""

from __future__ import annotations

import os
import random
import re
import secrets
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from qdo.bench.clock import SECOND, LoadClock
from qdo.bench.proxy import Proxy
from qdo.bench.workload import Faults, Killing
from queuey.errors import StorageUnavailable

START_SECONDS = 60.0
STOP_SECONDS = 30.0
_ADDRESS = re.compile(rb"http://127\.0\.0\.1:([1-9][0-9]*)")


class StartedServer:
    """``queuey serve`` on a free port, behind a proxy if its network is to lose anything."""

    def __init__(self, folder: Path, faults: Faults, seed: int) -> None:
        self._folder = folder
        self._said = folder / "server.log"
        self._key = secrets.token_hex(16)
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._proxy: Proxy | None = None
        self._faults = faults
        self._seed = seed

    @property
    def options(self) -> dict[str, str]:
        """What a driver needs to reach it."""
        port = self._proxy.port if self._proxy else self._port
        return {"url": f"http://127.0.0.1:{port}", "application": "bench", "key": self._key}

    def __enter__(self) -> Self:
        """:raises StorageUnavailable: it does not start; what it said is in the error."""
        self._folder.mkdir(parents=True, exist_ok=True)
        ini = self._folder / "queuey.ini"
        ini.write_text(f"[application_keys]\nbench = {self._key}\n")
        self.start()
        if self._faults.network:
            self._proxy = Proxy(self._port, self._faults.network, self._seed).__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._proxy:
            self._proxy.__exit__(None, None, None)
        if self._process and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def start(self) -> None:
        """Start it, at the port that it had before if it had one, and wait until it listens."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("QUEUEY_")}
        command = ["-m", "queuey.cli", "serve", "--port", str(self._port), "--data", str(self._folder / "data")]
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, *command, "-c", str(self._folder / "queuey.ini")],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=environment,
            )
        give_up = time.monotonic() + START_SECONDS
        while not (found := _ADDRESS.search(self._said.read_bytes())):
            if self._process.poll() is not None or time.monotonic() > give_up:
                last = self._said.read_text(errors="replace")[-500:]
                raise StorageUnavailable(f"the server did not start, and said: {last}")
            time.sleep(0.02)
        self._port = int(found[1])

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """SIGSTOP."""
        if self._process:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        if self._process:
            self._process.send_signal(signal.SIGCONT)


class FaultMaker:
    """Kills or pauses a server at drawn moments, and brings it back. The parent of the load calls it again and again."""

    def __init__(self, server: StartedServer, killing: Killing, seed: int, clock: LoadClock) -> None:
        self._server = server
        self._killing = killing
        self._chance = random.Random(f"{seed}/faults")  # noqa: S311 -- repeatable, not secret
        self._clock = clock
        self._began = clock.now()
        self._is_down = False
        self._next = self._began + self._drawn()
        self.done: list[tuple[int, str]] = []
        """Moments, and what was done then."""

    def __call__(self, is_sending: bool) -> None:
        """Do what is due. When all is sent the server stays up, or what it has could not be told from what it lost."""
        if not is_sending:
            self.heal()
            return
        now = self._clock.now()
        if now < self._next:
            return
        is_kill = self._killing.signal == "kill"
        if self._is_down:
            self.heal()
            self._next = self._clock.now() + self._drawn()
            return
        with suppress(ProcessLookupError):
            (self._server.kill if is_kill else self._server.pause)()
        self._is_down = True
        self.done.append((now, "the server is killed" if is_kill else "the server is paused"))
        self._next = now + int(self._killing.mttr * SECOND)

    def heal(self) -> None:
        """Bring the server back if it is down."""
        if not self._is_down:
            return
        is_kill = self._killing.signal == "kill"
        (self._server.start if is_kill else self._server.resume)()
        self._is_down = False
        self.done.append((self._clock.now(), "the server is back"))

    def _drawn(self) -> int:
        return int(self._chance.expovariate(1 / self._killing.mttf) * SECOND)
