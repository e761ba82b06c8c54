"""The load: processes that send and receive by a workload, and the parent that watches over them.

A process has a thread for each connection, or one thread with an event loop for all of its receivers. Each thread writes a
file of its own; nothing is shared but counters that say when all messages have arrived. Processes are spawned, so that none
inherits what another one holds.
"""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from ctypes import c_int64
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any, Literal

from qdo.bench.arrivals import drawn
from qdo.bench.beginning import signals_wait
from qdo.bench.clock import SECOND
from qdo.bench.drivers import Driver, MeasuredSystem, driver_class
from qdo.bench.ending import LoadProgress, RunEnd
from qdo.bench.histogram import TimeHistogram
from qdo.bench.machine import BusiestPart, run_before_others
from qdo.bench.planting import Plant, Planting
from qdo.bench.receivers import Distinct, InOrder, LoadReceiver, OpenMessages
from qdo.bench.records import RECEIVED, SENT, ReceivedRow, Writer
from qdo.bench.senders import LoadSender, LoadShare, texts_of
from qdo.bench.serving import ReceiverThread, receiver_threads
from qdo.bench.unsettled import Quiet
from queuey.errors import ConfigurationError, QueueyError, StorageUnavailable
from queuey.file_limit import raise_file_limit

Role = Literal["send", "receive", "both"]

READY_SECONDS = 120.0
HEAD_START_SECONDS = 0.3
"""Between the moment at which all are ready and the first arrival."""
LOOK_SECONDS = 0.02
SWITCH_SECONDS = 0.0005
"""A thread that is due gets the interpreter after this time, not after Python's 5 ms."""
COLLECTIONS = (10_000, 20, 1_000_000)
"""Python's thresholds for looking for cycles in a process of the generator. It never looks at all objects during a run: with
10,000 receivers in an event loop that takes some 30 ms, in which no answer is taken."""


@dataclass(frozen=True)
class Load:
    """One run to make."""

    target: MeasuredSystem
    driver: str
    folder: Path
    """Where the files of records are written."""
    plant: Plant | None = None


@dataclass
class ProcessReport:
    """What a process says at its end."""

    role: Role
    cpu_seconds: float = 0.0
    processor_share: float = 0.0
    """Of one processor: see :class:`qdo.bench.machine.BusiestPart`."""
    refusals: Counter[str] = field(default_factory=Counter)
    unanswered: Counter[int] = field(default_factory=Counter)
    """Receives without an answer: see :class:`qdo.bench.unsettled.Quiet`."""
    planted: int = 0
    unsent: int = 0
    nice: int = 0
    """Its priority: see :func:`qdo.bench.machine.run_before_others`."""
    lag: TimeHistogram = field(default_factory=TimeHistogram)
    """Of its event loop, if receivers have one."""
    failures: list[str] = field(default_factory=list)


@dataclass
class Ran:
    """A run that is over."""

    start: int
    """Of the load, in nanoseconds of the monotonic clock."""
    end: int
    stored: int
    distinct: int
    processes: list[ProcessReport]
    sent_files: list[Path]
    received_files: list[Path]
    quiet: Quiet


class _Shared:
    """What the processes and their parent see at once."""

    def __init__(self, context: Any, processes: int) -> None:
        self.stored = context.RawArray(c_int64, processes)
        self.unknown = context.RawArray(c_int64, processes)
        self.distinct = context.RawArray(c_int64, processes)
        self.answers = context.RawArray(c_int64, processes)
        """To receivers, with messages or without."""
        self.unsettled = context.RawArray(c_int64, processes)
        self.moves = context.RawArray(c_int64, processes)
        self.sending = context.RawArray(c_int64, [1] * processes)
        self.receive = context.Event()
        """Receivers may begin."""
        self.over = context.Event()
        """Receivers end."""
        self.abort = context.Event()

    def progress(self) -> LoadProgress:
        """As of now. The counts of senders that ended are whole: they are read after it."""
        is_sending = any(self.sending)
        counts = (self.stored, self.unknown, self.distinct, self.answers, self.unsettled, self.moves)
        return LoadProgress(is_sending, *map(sum, counts))


def run_load(load: Load, *, during: Callable[[LoadProgress], None] = lambda progress: None) -> Ran:
    """Carry out a run on queues that were prepared.

    :param during: called again and again while the load runs; what it raises ends the run.
    :raises ConfigurationError: the driver cannot do what the workload asks for.
    :raises StorageUnavailable: a process could not begin, or failed.
    """
    context = multiprocessing.get_context("spawn")
    places = _places(load)
    shared = _Shared(context, len(places))
    with ExitStack() as stack:
        pipes: list[Pipe] = []
        processes = []
        for at, (role, place) in enumerate(places):
            ours, theirs = context.Pipe()
            arguments = (load, role, place, at, shared, theirs)
            process = context.Process(target=_process, args=arguments, daemon=True, name=f"bench-{role}-{at}")
            with signals_wait():
                process.start()
            stack.callback(_end, process)
            theirs.close()
            pipes.append(stack.enter_context(ours))
            processes.append(process)
        stack.callback(shared.abort.set)
        for pipe in pipes:
            _said(pipe, READY_SECONDS)
        start = load.target.clock.now() + int(HEAD_START_SECONDS * SECOND)
        for pipe in pipes:
            pipe.send(start)
        quiet = _watch(load, shared, processes, during)
        reports = [_said(pipe, READY_SECONDS) for pipe in pipes]
        for process in processes:
            process.join(READY_SECONDS)
    failures = [failure for report in reports for failure in report.failures]
    if failures:
        raise StorageUnavailable(f"the generator failed: {failures[0]}")
    unanswered = dict(sum((report.unanswered for report in reports), Counter[int]()))
    return Ran(
        start,
        load.target.clock.now(),
        sum(shared.stored),
        sum(shared.distinct),
        reports,
        sorted(load.folder.glob("sent-*")),
        sorted(load.folder.glob("received-*")),
        quiet._replace(unanswered=unanswered),
    )


def _places(load: Load) -> list[tuple[Role, LoadShare]]:
    if driver_class(load.driver).in_process:
        return [("both", LoadShare(0, 1))]
    count = load.target.workload.queuey.processes
    roles: tuple[Role, ...] = ("send", "receive")
    return [(role, LoadShare(at, count)) for role in roles for at in range(count)]


def _end(process: Any) -> None:
    if process.is_alive():
        process.terminate()
    process.join(READY_SECONDS)
    process.close()


def _said(pipe: Pipe, seconds: float) -> Any:
    """What a process says next.

    :raises QueueyError: it says that it failed, or says nothing.
    """
    try:
        said = pipe.recv() if pipe.poll(seconds) else None
    except EOFError:
        said = None
    if said is None:
        raise StorageUnavailable("a process of the generator ended, or said nothing in time")
    if isinstance(said, tuple):
        is_configuration, text = said
        raise (ConfigurationError if is_configuration else StorageUnavailable)(text)
    return said


def _watch(load: Load, shared: _Shared, processes: Sequence[Any], during: Callable[[LoadProgress], None]) -> Quiet:
    """Begin and end the receivers."""
    workload, clock = load.target.workload, load.target.clock
    end = RunEnd(workload, is_forgetful=load.plant == "forget")
    while True:
        progress = shared.progress()
        during(progress)
        if not shared.receive.is_set() and (progress.stored >= workload.backlog_messages or not progress.is_sending):
            shared.receive.set()
        if any(process.exitcode for process in processes):
            shared.abort.set()  # senders would go on, and are waited for
        if shared.abort.is_set():
            break
        if end.is_over(progress, clock.now() / SECOND):
            break
        time.sleep(LOOK_SECONDS)
    shared.receive.set()
    shared.over.set()
    return Quiet(int(end.changed * SECOND), int(end.answered * SECOND), {})


# In a process of the generator.


def _process(load: Load, role: Role, place: LoadShare, at: int, shared: _Shared, pipe: Pipe) -> None:
    sys.setswitchinterval(SWITCH_SECONDS)
    raise_file_limit()
    nice = run_before_others()
    try:
        work = _Work(load, role, place, at, shared)
    except QueueyError as error:
        pipe.send((isinstance(error, ConfigurationError), str(error)))
        return
    except Exception:  # noqa: BLE001 -- the parent says it
        pipe.send((False, traceback.format_exc(limit=-3)))
        return
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTIONS)
    with suppress(EOFError, ConnectionError):  # a parent that was ended has closed the pipe, and ends its processes
        pipe.send("ready")
        start = pipe.recv()
        report = work.run(start)
        report.nice = nice
        pipe.send(report)


class _Work:
    """The threads of one process."""

    def __init__(self, load: Load, role: Role, place: LoadShare, at: int, shared: _Shared) -> None:
        self._load, self._role, self._at, self._shared = load, role, at, shared
        self._workload = load.target.workload
        driver = driver_class(load.driver)(load.target)
        if driver.in_process:
            driver.prepare()
        self._report = ProcessReport(role)
        self._senders: list[tuple[LoadSender, Any]] = []
        self._distinct, self._open = Distinct(), OpenMessages(self._workload)
        self._threads: Sequence[ReceiverThread] = []
        if role != "receive":
            self._make_senders(driver, place)
        if role != "send":
            self._make_receivers(driver, place)
        self._is_over = self._is_aborted = self._may_receive = False

    def _make_senders(self, driver: Driver, place: LoadShare) -> None:
        workload, texts = self._workload, texts_of(self._workload)
        count = min(workload.producers, workload.queuey.connections)
        for number in place.share(count):
            due = None
            if not workload.is_closed:
                own = workload.queuey
                due = drawn(workload.phases, own.arrivals, sender=number, senders=count, seed=own.seed)
            sender = LoadSender(self._load.target, driver.producer(), LoadShare(number, count), texts)
            self._senders.append((sender, due))

    def _make_receivers(self, driver: Driver, place: LoadShare) -> None:
        workload = self._workload
        each, views = workload.receivers_of_view, place.share(workload.topics * workload.views)
        count = workload.receivers_with(len(views))
        self._threads = receiver_threads(driver, self._distinct, self._open, count)
        numbers = ((at, at * each + which) for at in views for which in range(each))
        for thread, (at, number) in zip(itertools.cycle(self._threads), numbers, strict=False):
            topic, view = divmod(at, workload.views)
            thread.add(LoadReceiver(thread.context, thread.consumer(topic, view), view, number))

    def run(self, start: int) -> ProcessReport:
        """Send and receive until all is done."""
        cpu = time.process_time()
        use = BusiestPart(time.monotonic(), cpu)
        sending = [self._thread(self._send, at, start) for at in range(len(self._senders))]
        receiving = [self._thread(self._receive, at, start) for at in range(len(self._threads))]
        for thread in (*sending, *receiving):
            thread.start()
        while any(thread.is_alive() for thread in (*sending, *receiving)):
            # The threads look at plain values: an event between processes costs them some microseconds.
            self._is_aborted = self._shared.abort.is_set()
            self._is_over = self._is_aborted or self._shared.over.is_set()
            self._may_receive = self._shared.receive.is_set()
            self._publish(is_sending=any(thread.is_alive() for thread in sending))
            if not any(self._shared.sending):
                use.loaded(time.monotonic(), time.process_time())
            time.sleep(LOOK_SECONDS)
        self._publish(is_sending=False)
        for sender, _ in self._senders:
            self._report.refusals += sender.refusals
            self._report.unsent += sender.unsent
        for one in self._threads:
            self._report.refusals += one.context.refusals
            self._report.unanswered += one.context.unanswered
            self._report.lag.add(one.lag)
        self._report.cpu_seconds = time.process_time() - cpu
        self._report.processor_share = use.share(time.monotonic(), time.process_time())
        return self._report

    def _thread(self, work: Callable[[int, int], None], at: int, start: int) -> threading.Thread:
        return threading.Thread(target=self._guarded, args=(work, at, start), daemon=True)

    def _publish(self, *, is_sending: bool) -> None:
        """:param is_sending: as it was before now, so that the counts of senders that ended are whole."""
        self._shared.stored[self._at] = sum(sender.stored for sender, _ in self._senders)
        self._shared.unknown[self._at] = sum(sender.unknown for sender, _ in self._senders)
        self._shared.answers[self._at] = sum(one.context.answers for one in self._threads)
        # A message is open before it counts as received, for those that look at both in this order.
        distinct = self._distinct.count
        self._shared.unsettled[self._at] = self._open.count
        self._shared.moves[self._at] = self._open.moves
        self._shared.distinct[self._at] = distinct
        self._shared.sending[self._at] = int(is_sending)

    def _guarded(self, work: Callable[[int, int], None], at: int, start: int) -> None:
        try:
            work(at, start)
        except Exception:  # noqa: BLE001 -- the parent says it
            self._report.failures.append(traceback.format_exc(limit=-3))
            self._shared.abort.set()

    def _send(self, at: int, start: int) -> None:
        sender, due = self._senders[at]
        with Writer(self._load.folder / f"sent-{self._at:03}-{at:04}", SENT) as out:
            sender.run(start, due, out.write, lambda: self._is_aborted)

    def _receive(self, at: int, start: int) -> None:
        begin = start + int(self._workload.warmup_seconds * SECOND)
        while not (self._may_receive or self._is_aborted):
            time.sleep(LOOK_SECONDS)  # a backlog is made first; an event that a killed process waits for is never set
        path = self._load.folder / f"received-{self._at:03}-{at:04}"
        with Writer(path, RECEIVED) as out, self._planting(out.write) as write:
            self._threads[at].run(InOrder(write), begin, lambda: self._is_over)

    @contextmanager
    def _planting(self, write: Callable[[ReceivedRow], None]) -> Iterator[Callable[[ReceivedRow], None]]:
        if self._load.plant is None:
            yield write
            return
        planting = Planting(self._load.plant, write)
        yield planting.write
        planting.end()
        self._report.planted += planting.planted
