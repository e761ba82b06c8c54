"""Runs of a workload: each driver's repeats, in turn, with a server of their own if the workload says so."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from qdo.bench.clock import SECOND
from qdo.bench.document import Document, Subject, document_of
from qdo.bench.drivers import Driver, MeasuredSystem, driver_class
from qdo.bench.faults import FaultMaker, StartedServer
from qdo.bench.generator import Load, Ran, run_load
from qdo.bench.judge import all_received, all_sent, judged
from qdo.bench.machine import busy_share, environment, processor_times
from qdo.bench.measuring import Meter
from qdo.bench.planting import Plant
from qdo.bench.verdict import Repeat
from qdo.bench.workload import Workload, variants
from queuey.errors import ConfigurationError, QueueyError


@dataclass(frozen=True)
class Experiment:
    """What is to be run."""

    workload: Workload
    drivers: Sequence[str] = ()
    """None is the workload's own."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Of the drivers, beside those of the workload; ``DRIVER.NAME`` is of that driver alone."""
    plant: Plant | None = None
    tell: Callable[[str], None] = lambda text: None

    def run(self) -> list[tuple[Document, list[Repeat]]]:
        """All repeats of all drivers and variants, in turn.

        :returns: a document for each driver and variant, and the runs it is made of.
        :raises ConfigurationError: a driver cannot do what the workload asks for. Nothing was run.
        :raises QueueyError: a system is away, or a process failed.
        """
        subjects = self._subjects()
        repeats: list[list[Repeat]] = [[] for _ in subjects]
        versions: list[Mapping[str, str]] = [{} for _ in subjects]
        about = environment()
        for turn in range(self.workload.queuey.repeats):
            # Each turn in the other order: a drift of the machine favours none.
            order = [*enumerate(subjects)]
            for at, subject in order if turn % 2 == 0 else reversed(order):
                self.tell(f"{self.workload.name}: {subject.label}, run {turn + 1} of {self.workload.queuey.repeats}")
                repeat, versions[at] = OneRun(subject, self._options(subject.driver), self.plant, turn).carry_out()
                repeats[at].append(repeat)
        return [
            (document_of(subject, some, {"environment": about, "versions": known}, self.plant), some)
            for subject, some, known in zip(subjects, repeats, versions, strict=True)
        ]

    def _subjects(self) -> list[Subject]:
        names = [*(self.drivers or [self.workload.queuey.driver])]
        if len({*names}) < len(names):
            raise ConfigurationError("a driver is named twice")
        if self.plant == "overlap" and not self.workload.leases:
            raise ConfigurationError("--plant overlap needs a workload with leases: receiving.mode: receive")
        if self.workload.queuey.start and names != ["queuey"]:
            raise ConfigurationError("start: queuey goes with the driver queuey alone")
        found = [Subject(workload, name, values) for values, workload in variants(self.workload) for name in names]
        for subject in found:
            driver_class(subject.driver)(MeasuredSystem(subject.workload, 0, self._options(subject.driver)))
        return found

    def _options(self, name: str) -> dict[str, str]:
        """Of the workload and of the command, as far as the driver knows them if there are several.

        ``queuey.url`` is the option ``url`` of the driver ``queuey`` alone.
        """
        given = {**self.workload.queuey.options, **self.options}
        found = {option: text for option, text in given.items() if "." not in option}
        own = f"{name}."
        found |= {option.removeprefix(own): text for option, text in given.items() if option.startswith(own)}
        if len(self.drivers) < 2:
            return found
        return {option: text for option, text in found.items() if option in driver_class(name).option_names}


@dataclass(frozen=True)
class OneRun:
    """One run of one subject."""

    subject: Subject
    options: Mapping[str, str]
    plant: Plant | None
    turn: int

    def carry_out(self) -> tuple[Repeat, Mapping[str, str]]:
        """What came of it, and the versions of what was measured."""
        own, workload = self.subject.workload.queuey, self.subject.workload
        with TemporaryDirectory(prefix="queuey-bench-") as folder, ExitStack() as stack:
            server, more = None, {}
            if own.start:
                server = stack.enter_context(StartedServer(Path(folder, "server"), own.faults, own.seed + self.turn))
                more = server.options
            target = MeasuredSystem(workload, secrets.randbits(32), {**self.options, **more})
            driver = driver_class(self.subject.driver)(target)
            stack.enter_context(_prepared(driver))
            records = Path(folder, "records")
            records.mkdir()
            repeat = self._measured(Load(target, self.subject.driver, records, self.plant), server)
            return repeat, driver.versions()

    def _measured(self, load: Load, server: StartedServer | None) -> Repeat:
        own, clock = self.subject.workload.queuey, load.target.clock
        busy, before, began = busy_share(), processor_times(), time.time()
        breaker = (
            FaultMaker(server, own.faults.server, own.seed + self.turn, clock) if server and own.faults.server else None
        )
        try:
            ran = run_load(load, during=breaker or (lambda _: None))
        finally:
            if breaker:
                breaker.heal()
        _, stolen = before.share(processor_times())
        done = breaker.done if breaker else []
        return self._judged(ran, Surroundings(busy, stolen, began, done))

    def _judged(self, ran: Ran, around: Surroundings) -> Repeat:
        workload = self.subject.workload
        meter = Meter(workload, ran.start)
        findings = judged(
            workload, meter.sent(all_sent(ran.sent_files)), meter.received(all_received(ran.received_files))
        )
        refusals = sum((one.refusals for one in ran.processes), Counter[str]())
        return Repeat(
            findings,
            meter.times,
            around.busy_before,
            around.stolen,
            tuple(one.cpu_seconds / one.wall_seconds for one in ran.processes if one.wall_seconds),
            sum(one.planted for one in ran.processes),
            around.began,
            tuple(refusals.most_common(10)),
            tuple(((moment - ran.start) / SECOND, what) for moment, what in around.faults),
        )


@dataclass(frozen=True)
class Surroundings:
    """What happened around a run."""

    busy_before: float
    stolen: float
    began: float
    faults: Sequence[tuple[int, str]]


@contextmanager
def _prepared(driver: Driver) -> Iterator[None]:
    """Its queues exist while the block runs."""
    driver.prepare()
    try:
        yield
    finally:
        # What was measured counts, even if what it left behind cannot be removed.
        with suppress(QueueyError):
            driver.remove()
