"""Runs of a workload: each driver's repeats, in turn, with a system of their own if the workload says so."""

from __future__ import annotations

import itertools
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from qdo.bench.clock import SECOND
from qdo.bench.document import Document, Subject, document_of
from qdo.bench.drivers import Driver, MeasuredSystem, driver_class, driver_names
from qdo.bench.ending import LoadProgress, beyond_drain
from qdo.bench.faults import FaultMaker
from qdo.bench.generator import Load, Ran, run_load
from qdo.bench.judge import Findings, all_received, all_sent
from qdo.bench.judge_parts import judged_by_parts, parts_of
from qdo.bench.machine import busy_share, demand_files, environment, processor_times
from qdo.bench.measuring import Meter, Times
from qdo.bench.planting import Plant, demand_plantable
from qdo.bench.proxy import Proxy
from qdo.bench.records import RECEIVED
from qdo.bench.senders import demand_room_for_payloads
from qdo.bench.systems import StartedSystem, system_class
from qdo.bench.verdict import Repeat
from qdo.bench.workload import Workload, demand_room, variants
from queuey.errors import ConfigurationError, OutcomeUnknown, QueueyError, ServerUnreachable
from queuey.file_limit import more_files

MOST_READ_HERE = 100_000_000
"""Receipts that one process reads, which takes it some minutes. Without PySpark it reads any number."""


WAITING_LOOKS = 50
"""After the load, at messages that are missing: a second, after which a wait is worth a word."""

Shown = Callable[[str, float], AbstractContextManager[Callable[[float], None]]]
"""Shows a part of a run by its name and its size. What it gives is called again and again with how much of that is done."""


@contextmanager
def _not_shown(_name: str, _size: float) -> Iterator[Callable[[float], None]]:
    yield lambda done: None


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
    shown: Shown = _not_shown

    def run(self) -> list[tuple[Document, list[Repeat]]]:
        """All repeats of all drivers and variants, in turn.

        :returns: a document for each driver and variant, and the runs it is made of.
        :raises ConfigurationError: a driver cannot do what the workload asks for. Nothing was run.
        :raises QueueyError: a system is away, or a process failed.
        """
        runs = self.begin()
        runs.make()
        return runs.results()

    def begin(self) -> ExperimentRuns:
        """The same, to be made; what is finished can be had also if something ends them.

        :raises ConfigurationError: as in :meth:`run`.
        """
        return ExperimentRuns(self, self.check())

    def check(self) -> list[Subject]:
        """What is to be run, if all of it can be.

        :raises ConfigurationError: a driver cannot do what the workload asks for.
        """
        names = [*(self.drivers or [self.workload.queuey.driver])]
        if len({*names}) < len(names):
            raise ConfigurationError("a driver is named twice")
        found = [Subject(workload, name, values) for values, workload in variants(self.workload) for name in names]
        self._demand_known(found)
        for subject in found:
            demand_room(subject.workload)
            demand_room_for_payloads(subject.workload)
            _demand_files(subject.workload)
            if self.plant:
                demand_plantable(subject.workload, self.plant)
            options = self.options_of(subject)
            if start := subject.workload.queuey.start:
                kind = system_class(start)
                if subject.driver not in kind.drivers:
                    raise ConfigurationError(f"start: {start} goes with the driver {' or '.join(kind.drivers)} alone")
                options = kind.of_driver(options)
            driver_class(subject.driver)(MeasuredSystem(subject.workload, 0, options))
        return found

    def options_of(self, subject: Subject) -> dict[str, str]:
        """Of the workload and of the command, as far as the driver and its system know them if there are several.

        ``queuey.url`` is the option ``url`` of the driver ``queuey`` alone.
        """
        given = {**subject.workload.queuey.options, **self.options}
        found = {option: text for option, text in given.items() if "." not in option}
        own = f"{subject.driver}."
        found |= {option.removeprefix(own): text for option, text in given.items() if option.startswith(own)}
        if len(self.drivers) < 2:
            return found
        known = _known_options(subject)
        return {option: text for option, text in found.items() if option in known}

    def _demand_known(self, subjects: Sequence[Subject]) -> None:
        """What one driver alone is given is refused by itself; of several, each takes its own.

        :raises ConfigurationError: an option is of none of these drivers, so it would have no effect.
        """
        names = {subject.driver for subject in subjects}
        for option in {**self.workload.queuey.options, **self.options}:
            driver, _, name = option.rpartition(".")
            if driver and driver not in (names if option in self.options else {*names, *driver_names()}):
                raise ConfigurationError(f"option {option}: the drivers of this run are {', '.join(sorted(names))}")
            known = [_known_options(one) for one in subjects if driver in ("", one.driver)]
            if len(names) > 1 and known and not any(name in some for some in known):
                raise ConfigurationError(
                    f"no driver has the option {option}; they know {', '.join(sorted(set().union(*known)))}"
                )


class ExperimentRuns:
    """The runs of an experiment, as far as they are made."""

    def __init__(self, experiment: Experiment, subjects: Sequence[Subject]) -> None:
        self._experiment = experiment
        self._subjects = subjects
        self._repeats: list[list[Repeat]] = [[] for _ in subjects]
        self._versions: list[Mapping[str, str]] = [{} for _ in subjects]
        self._environment = environment()

    def make(self) -> None:
        """Make all, in turn.

        :raises QueueyError: a system is away, or a process failed. The runs before are kept.
        """
        of = self._experiment
        planned = of.workload.queuey.repeats
        for turn in range(planned):
            # Each turn in the other order: a drift of the machine favours none.
            order = [*enumerate(self._subjects)]
            for at, subject in order if turn % 2 == 0 else reversed(order):
                name = f"{of.workload.name}: {subject.label}, run {turn + 1} of {planned}"
                of.tell(name)
                one = OneRun(subject, of.options_of(subject), of.plant, turn, name, of.shown, of.tell)
                repeat, self._versions[at] = one.carry_out()
                self._repeats[at].append(repeat)

    def results(self) -> list[tuple[Document, list[Repeat]]]:
        """A document for each driver and variant of which a run was made. It says if that is not all."""
        of = self._experiment
        return [
            (
                document_of(
                    subject,
                    some,
                    {"environment": self._environment, "versions": known},
                    of.plant,
                    of.workload.queuey.repeats,
                ),
                some,
            )
            for subject, some, known in zip(self._subjects, self._repeats, self._versions, strict=True)
            if some
        ]


def _known_options(subject: Subject) -> set[str]:
    """Of its driver, and of the system that it starts."""
    start = subject.workload.queuey.start
    return {*driver_class(subject.driver).option_names, *(system_class(start).option_names if start else ())}


def _demand_files(workload: Workload) -> None:
    """:raises ConfigurationError: no process of this user may open as many files as the run needs."""
    own = workload.queuey
    views = -(-workload.topics * workload.views // own.processes)
    demand_files(workload.receivers_with(views), with_server=False)
    senders, receivers = min(workload.producers, own.connections), workload.receivers_at_once
    # What each thread wrote down is read at once.
    written = max(senders, own.processes if own.receiving.loop else receivers)
    demand_files(written + parts_of(workload), with_server=False)
    if own.start:
        demand_files(receivers + senders, with_server=True)
    if own.faults.network:
        demand_files(2 * (receivers + senders), with_server=False)


@dataclass(frozen=True)
class OneRun:
    """One run of one subject."""

    subject: Subject
    options: Mapping[str, str]
    plant: Plant | None
    turn: int
    name: str = ""
    shown: Shown = _not_shown
    tell: Callable[[str], None] = lambda text: None

    def carry_out(self) -> tuple[Repeat, Mapping[str, str]]:
        """What came of it, and the versions of what was measured."""
        own, workload = self.subject.workload.queuey, self.subject.workload
        with TemporaryDirectory(prefix="queuey-bench-") as folder, ExitStack() as stack:
            system, options = None, self.options
            if own.start:
                system = stack.enter_context(system_class(own.start)(Path(folder, "system"), options))
                options = {**system.of_driver(options), **system.options}
                if own.faults.network:
                    stack.enter_context(more_files())
                    proxy = stack.enter_context(Proxy(system.port, own.faults.network, own.seed + self.turn))
                    options["url"] = f"http://127.0.0.1:{proxy.port}"
            target = MeasuredSystem(workload, secrets.randbits(32), options)
            driver = driver_class(self.subject.driver)(target)
            with self.shown(f"{self.name}, queues", workload.topics) as driver.note:
                _prepare(self.subject.driver, driver)
            if system is None or system.keeps_queues:
                stack.callback(_removed, driver)
            # Afterwards it may be away, and what was measured counts all the same.
            versions = driver.versions()
            records = Path(folder, "records")
            records.mkdir()
            repeat = self._measured(Load(target, self.subject.driver, records, self.plant), system)
            return repeat, versions

    def _measured(self, load: Load, system: StartedSystem | None) -> Repeat:
        own, clock = self.subject.workload.queuey, load.target.clock
        busy, before, began = busy_share(), processor_times(), time.time()
        breaker = (
            FaultMaker(system, own.faults.server, own.seed + self.turn, clock) if system and own.faults.server else None
        )
        first, workload = clock.now(), self.subject.workload
        in_all = workload.messages_in_all
        size = in_all * (1 + workload.views) if in_all else workload.seconds

        looks = itertools.count(1)

        def look(progress: LoadProgress) -> None:
            missing = progress.stored * workload.views - progress.distinct
            is_waiting = not progress.is_sending and (missing > 0 or progress.unsettled > 0)
            if is_waiting and next(looks) == WAITING_LOOKS:
                what = f"{max(missing, 0):,} messages are to come, and {progress.unsettled:,} to come again"
                self.tell(f"{self.name}: all is sent; {what}, within {own.drain:g} s{beyond_drain(workload)}")
            done = progress.stored + progress.distinct
            note(done if in_all else (clock.now() - first) / SECOND)
            if breaker:
                breaker(progress.is_sending)

        try:
            with self.shown(self.name, size) as note:
                ran = run_load(load, during=look)
        finally:
            if breaker:
                breaker.heal()
        _, stolen = before.share(processor_times())
        done = breaker.done if breaker else []
        memory = system.most_memory_mib if system else None
        return self._judged(ran, Surroundings(busy, stolen, began, done, memory))

    def _judged(self, ran: Ran, around: Surroundings) -> Repeat:
        workload = self.subject.workload
        findings, times = figures_of(workload, ran)
        findings.excuse(workload, ran.quiet.unanswered)
        refusals = sum((one.refusals for one in ran.processes), Counter[str]())
        return Repeat(
            findings,
            times,
            around.busy_before,
            around.stolen,
            tuple(one.processor_share for one in ran.processes),
            sum(one.planted for one in ran.processes),
            sum(one.unsent for one in ran.processes),
            around.began,
            tuple(refusals.most_common(10)),
            tuple(((moment - ran.start) / SECOND - workload.warmup_seconds, what) for moment, what in around.faults),
            max(one.lag.percentile(99) for one in ran.processes) / 1e6,
            max(one.nice for one in ran.processes),
            around.memory_mib,
        )


def figures_of(workload: Workload, ran: Ran) -> tuple[Findings, Times]:
    """What a run did wrong, and its times: read here, or by Spark if there are more than :data:`MOST_READ_HERE` receipts."""
    receipts = sum(path.stat().st_size for path in ran.received_files) // RECEIVED.size
    if receipts > MOST_READ_HERE and find_spec("pyspark"):
        from pyspark.sql import SparkSession

        from qdo.bench.spark_judge import judged_in_spark

        spark = SparkSession.builder.appName("queuey bench").config("spark.ui.enabled", "false").getOrCreate()
        return judged_in_spark(spark, workload, ran.start, (ran.sent_files, ran.received_files), ran.quiet)
    meter = Meter(workload, ran.start)
    sent, received = meter.sent(all_sent(ran.sent_files)), meter.received(all_received(ran.received_files))
    with more_files():
        return judged_by_parts(workload, sent, received, ran.sent_files[0].parent, ran.quiet), meter.times


@dataclass(frozen=True)
class Surroundings:
    """What happened around a run."""

    busy_before: float
    stolen: float
    began: float
    faults: Sequence[tuple[int, str]]
    memory_mib: float | None


def _prepare(name: str, driver: Driver) -> None:
    """Make its queues.

    :raises ServerUnreachable: the system does not answer.
    :raises ConfigurationError: its library does not take an option.
    """
    try:
        driver.prepare()
    except OutcomeUnknown as error:
        raise ServerUnreachable(f"driver {name}: no answer: {error}") from error
    except (ValueError, LookupError) as error:
        raise ConfigurationError(
            f"driver {name}: its library refuses an option, such as the address: {error}"
        ) from error


def _removed(driver: Driver) -> None:
    """What was measured counts, even if what it left behind cannot be removed."""
    with suppress(QueueyError):
        driver.remove()
