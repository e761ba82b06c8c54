"""Systems that a run starts for itself: one process each, whose data live in a folder through its kills."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from queuey.errors import ConfigurationError, StorageUnavailable

START_SECONDS = 60.0
STOP_SECONDS = 30.0
LOOK_SECONDS = 0.02
PORTS = range(12_000, 32_000)
"""Below those from which systems take the ports of outgoing connections."""
TRIES = 5
"""Of ports, where another process takes one first."""

SYSTEMS: Mapping[str, str] = {
    "queuey": "qdo.bench.systems.server:StartedServer",
    "queuey-cassandra": "qdo.bench.systems.server:ServerOnCassandra",
    "redis": "qdo.bench.systems.peers:StartedRedis",
    "nats": "qdo.bench.systems.peers:StartedNats",
    "rabbitmq": "qdo.bench.systems.peers:StartedRabbit",
    "elasticmq": "qdo.bench.systems.peers:StartedElasticMQ",
}


class EndedAtStart(StorageUnavailable):
    """A system ended in place of serving."""


class StartedSystem(ABC):
    """One process, started as it is entered, and ended as it is left."""

    drivers: ClassVar[tuple[str, ...]]
    """That speak to it."""
    option_names: ClassVar[Mapping[str, str]] = {"program": "its program, if it is not on the PATH"}
    """Options for its start, beside those of its drivers, and what each is."""
    place_options: ClassVar[frozenset[str]] = frozenset({"url"})
    """Names of :attr:`options`: where it is decides its start, and nobody else."""
    keeps_queues: ClassVar[bool] = False
    """They outlive its data in :attr:`folder`, so a run removes them."""
    data_elsewhere: ClassVar[bool] = False
    """Not in :attr:`folder`, but in a store that neither ends nor loses its disk with it."""
    needed: ClassVar[Mapping[str, str]] = {}
    """Those without which it cannot be started; names of :attr:`option_names`."""
    program: ClassVar[str]
    """Its name, and the Debian package that has it where the names differ: ``java=openjdk-17-jre-headless``."""

    def __init__(self, folder: Path, given: Mapping[str, str] | None = None) -> None:
        """:param folder: for the data.
        :param given: options of the drivers, of which some are for starting.
        :raises ConfigurationError: it cannot be started on this machine.
        """
        self.folder = folder.resolve()
        self.given = given or {}
        for option, what in self.needed.items():
            if not self.given.get(option):
                raise ConfigurationError(f"name {what}, with the option {option}")
        name, _, package = self.program.partition("=")
        wanted = self.given.get("program") or name
        found = found_program(wanted)
        if found is None:
            raise ConfigurationError(f"{wanted} is missing. On Debian: apt-get install {package or name}")
        self.path = found
        """Of its program."""
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def of_driver(cls, given: Mapping[str, str]) -> dict[str, str]:
        """Those of the options that are not for its start.

        :raises ConfigurationError: one says where a system is, and this one is where it is started.
        """
        if elsewhere := sorted(cls.place_options & given.keys()):
            raise ConfigurationError(
                f"option {', '.join(elsewhere)}: the run starts a system of its own, and would not measure the one that this "
                "names: leave out the option, or 'start' in the workload"
            )
        return {name: text for name, text in given.items() if name not in cls.option_names}

    @property
    @abstractmethod
    def options(self) -> dict[str, str]:
        """What a driver needs to reach it."""

    @abstractmethod
    def command(self) -> list[str]:
        """That runs it on its port, in the foreground and as one process."""

    @abstractmethod
    def is_up(self) -> bool:
        """Whether it serves."""

    def variables(self) -> dict[str, str]:
        """Its environment."""
        return dict(os.environ)

    def furnish(self) -> None:  # noqa: B027 -- some need none
        """Write the files that it needs, once."""

    @property
    def said(self) -> Path:
        """A file with all that it printed since it was started."""
        return self.folder / "said.txt"

    def __enter__(self) -> Self:
        """:raises StorageUnavailable: it does not start; what it said is in the error."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as failed:
            failed.callback(self.stop)
            for left in reversed(range(TRIES)):
                self.port = free_port()
                self.furnish()
                try:
                    self.start()
                    break
                except StorageUnavailable:
                    self.kill()
                    if not left:
                        raise
            failed.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """End it in order, if it runs."""
        if self._process is None or self._has_ended:
            return
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def start(self) -> None:
        """Start it on its data, and wait until it serves.

        :raises EndedAtStart: it ended instead.
        :raises StorageUnavailable: it is none that this machine runs, or does not serve within :data:`START_SECONDS` and is
            killed.
        """
        with self.said.open("wb") as said:
            try:
                self._process = subprocess.Popen(
                    self.command(), stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=self.variables()
                )
            except OSError as error:
                raise StorageUnavailable(f"{self.path} did not start: {error.strerror}") from error
        with ExitStack() as failed:
            # What does not start, or is given up meanwhile, must not outlive the next attempt.
            failed.callback(self.kill)
            self._wait_until_up()
            failed.pop_all()

    def _wait_until_up(self) -> None:
        give_up = time.monotonic() + START_SECONDS
        while not self.is_up():
            if (has_ended := self._has_ended) or time.monotonic() > give_up:
                last = self.said.read_text(errors="replace")[-500:]
                kind = EndedAtStart if has_ended else StorageUnavailable
                raise kind(f"{self.program.partition('=')[0]} did not start, and said: {last}")
            time.sleep(LOOK_SECONDS)

    @property
    def _has_ended(self) -> bool:
        """It was started, and its process is over."""
        return self._process is not None and self._process.poll() is not None

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        if self._process:
            self._process.kill()
            self._process.wait()

    @property
    def most_memory_mib(self) -> float | None:
        """The most memory that its process has had, since it was last started; None where the machine does not say."""
        try:
            said = Path(f"/proc/{self._process.pid}/status").read_text() if self._process else ""
        except OSError:
            return None
        found = re.search(r"VmHWM:\s+(\d+) kB", said)
        return int(found[1]) / 1024 if found else None

    def pause(self) -> None:
        """SIGSTOP."""
        if self._process:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        if self._process:
            self._process.send_signal(signal.SIGCONT)


def found_program(name: str) -> str | None:
    """Where a command is. Debian keeps servers in folders that only root's PATH has."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def system_class(name: str) -> type[StartedSystem]:
    """The system of this name.

    :raises ConfigurationError: what it imports is not installed.
    """
    module, _, attribute = SYSTEMS[name].partition(":")
    try:
        found: type[StartedSystem] = getattr(import_module(module), attribute)
    except ImportError as error:
        raise ConfigurationError(f"system {name}: {error.name or error} is not installed") from error
    return found


def free_port() -> int:
    """One that nobody listens on now, of 127.0.0.1."""
    drawn = random.SystemRandom()
    while True:
        port = drawn.choice(PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
