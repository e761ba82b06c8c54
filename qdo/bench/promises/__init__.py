"""What systems of queues promise, tried: a table of systems by what may go wrong. Each of its cells is a run of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from secrets import randbits
from typing import Any, NamedTuple

from qdo.bench.drivers import Consumer, Delivered, Driver, MeasuredSystem, driver_class
from qdo.bench.systems import StartedSystem, system_class
from qdo.bench.workload import Workload, changed
from queuey.errors import ConfigurationError, QueueNotFound, QueueyError, StorageUnavailable

PAUSE_SECONDS = 0.05
KILL_SECONDS = (0.2, 1.2)
"""Between a start and the next kill, at least and at most."""
LONGEST_SECONDS = 240.0
"""Until a queue must be empty. A quorum queue of RabbitMQ may keep its first consumer waiting for a minute after a kill."""


class TrialResult(NamedTuple):
    """What a cell found."""

    wrong: int | None
    """Messages with which it went wrong; None if it was not tried."""
    of: int
    """Messages that were tried."""
    said: str
    """A sentence; the reason, if it was not tried."""
    is_missing: bool = False
    """It was not tried since this machine lacks something, not since the system has no such thing."""

    @property
    def cell(self) -> str:
        """
        >>> TrialResult(0, 1200, "").cell, TrialResult(None, 0, "no keys").cell, TrialResult(None, 0, "", is_missing=True).cell
        ('0 of 1,200', '-', 'not measured here')
        """
        if self.wrong is not None:
            return f"{self.wrong:,} of {self.of:,}"
        return "not measured here" if self.is_missing else "-"


class NotHere(ConfigurationError):
    """The machine lacks what a cell needs."""


@dataclass(frozen=True)
class TriedSystem:
    """A row of the table."""

    title: str
    system: str
    """Of :data:`~qdo.bench.systems.SYSTEMS`."""
    driver: str
    section: Mapping[str, Any] = field(default_factory=dict)
    """Values of the workload's section ``queuey``."""


@dataclass(frozen=True)
class Trial:
    """One system, for one cell."""

    tried: TriedSystem
    options: Mapping[str, str]
    """Of its start and of its driver."""
    folder: Path
    """Empty, for its data."""

    def workload(self, base: Workload, **values: Any) -> Workload:
        """The workload, as this row has it.

        :param values: of the section ``queuey``, beside the row's.
        """
        base = changed(base, **values)
        own = self.tried.section
        group = {**base.queuey.group, **own.get("group", {})}
        return changed(base, **{**own, "group": group, "driver": self.tried.driver, "start": self.tried.system})

    @contextmanager
    def running(self, workload: Workload) -> Iterator[tuple[StartedSystem, Driver]]:
        """The system, started, and its driver, with queues.

        :raises NotHere: it cannot be started on this machine.
        :raises ConfigurationError: it cannot do what the workload asks for.
        """
        kind = self.driver_type
        with self.system() as system:
            options = {**system.of_driver(self.options), **workload.queuey.options, **system.options}
            driver = kind(MeasuredSystem(workload, randbits(32), options))
            driver.prepare()
            try:
                yield system, driver
            finally:
                if system.keeps_queues:
                    with suppress(QueueyError):
                        driver.remove()

    def start_seconds(self) -> float:
        """How long the system takes to start, without data.

        :raises NotHere: it cannot be started on this machine.
        """
        system = replace(self, folder=self.folder / "first").system()
        began = time.monotonic()
        with system:
            return time.monotonic() - began

    @property
    def driver_type(self) -> type[Driver]:
        """:raises NotHere: what it imports is not installed."""
        try:
            return driver_class(self.tried.driver)
        except ConfigurationError as error:
            raise NotHere(str(error)) from error

    @property
    def system_type(self) -> type[StartedSystem]:
        """:raises ConfigurationError: what it imports is not installed."""
        return system_class(self.tried.system)

    def system(self) -> StartedSystem:
        """:raises NotHere: it cannot be started on this machine."""
        try:
            return self.system_type(self.folder, self.options)
        except ConfigurationError as error:
            raise NotHere(str(error)) from error


@contextmanager
def beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """A thread works while the block runs, and is waited for at its end.

    :param work: gets an event that is set when the block is over.
    :raises Exception: what the thread raised, if the block raised nothing itself.
    """
    leave = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        working = threads.submit(work, leave)
        try:
            yield
        finally:
            leave.set()
    working.result()


@contextmanager
def kills(system: StartedSystem, times: int, seed: int = 1) -> Iterator[threading.Event]:
    """SIGKILL at drawn moments while the block runs, and a new start after each. The event says that all are over."""
    drawn, over = Random(f"{seed}/kills"), threading.Event()  # noqa: S311 -- repeatable

    def work(leave: threading.Event) -> None:
        try:
            for _ in range(times):
                if leave.wait(drawn.uniform(*KILL_SECONDS)):
                    return
                system.kill()
                system.start()
        finally:
            over.set()

    with beside(work):
        yield over


def drained(consumer: Consumer, quiet: float, over: threading.Event | None = None) -> Iterator[Sequence[Delivered]]:
    """Answers with messages, until there were only empty ones for ``quiet`` seconds.

    :param over: the time counts from then on.
    :raises QueueNotFound: the queue is gone.
    :raises QueueyError: messages still come after :data:`LONGEST_SECONDS`, or the system does not answer.
    """
    give_up = time.monotonic() + LONGEST_SECONDS
    last = time.monotonic()
    while True:
        is_answered = True
        try:
            handed = consumer.receive(0.5)
        except QueueNotFound:
            raise
        except QueueyError:
            if time.monotonic() > give_up:
                raise
            time.sleep(PAUSE_SECONDS)
            handed, is_answered = [], False
        if handed:
            yield handed
        is_quiet = is_answered and not handed and (over is None or over.is_set())
        now = time.monotonic()
        if is_quiet and now - last >= quiet:
            return
        if not is_quiet:
            last = now
        if now > give_up:
            what = "messages still come" if is_answered else "there is no answer"
            raise StorageUnavailable(f"{what} after {LONGEST_SECONDS:.0f} seconds")


def persistently(call: Callable[[], object]) -> None:
    """Do it again until it is done: for what may be done twice.

    :raises QueueyError: it still fails after :data:`LONGEST_SECONDS`.
    """
    give_up = time.monotonic() + LONGEST_SECONDS
    while time.monotonic() < give_up:
        with suppress(QueueyError):
            call()
            return
        time.sleep(PAUSE_SECONDS)
    call()
