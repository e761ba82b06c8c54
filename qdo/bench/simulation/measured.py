"""Loads whose processor times are looked at: what a request costs servers, nodes and the generator."""

from __future__ import annotations

import os
import secrets
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from qdo.bench.clock import SECOND
from qdo.bench.drivers import MeasuredSystem, driver_class
from qdo.bench.ending import LoadProgress
from qdo.bench.generator import Load, Ran, run_load
from qdo.bench.judge import all_received, all_sent, judged
from qdo.bench.machine import ProcessorTimes, processor_times
from qdo.bench.measuring import Meter
from qdo.bench.records import STORED
from qdo.bench.simulation.costs import CostLevel
from qdo.bench.workload import Workload
from queuey.errors import StorageUnavailable

__all__ = ["MeasuredCost", "ProcessorUse", "measure_cost"]

EDGE_SECONDS = 0.3
"""Of the receipts, at each end, that do not count: not all receivers are under way."""
LEAST_REQUESTS = 50
_TICK = os.sysconf("SC_CLK_TCK")


class ProcessorUse(NamedTuple):
    """What was seen at one moment."""

    moment: int
    server: float
    """Processor seconds of all servers since they began."""
    node: float
    machine: ProcessorTimes


class MeasuredCost(NamedTuple):
    """Of one run, with its requests a second."""

    rate: float
    level: CostLevel
    others: float
    """The share of the machine's processors that neither servers, nodes nor the generator used."""


@dataclass
class _Watch:
    """Looks at processes while a load runs."""

    servers: Callable[[], float]
    nodes: Callable[[], float]
    seen: list[ProcessorUse] = field(default_factory=list)
    clock: Callable[[], int] = lambda: 0

    def __call__(self, progress: LoadProgress) -> None:
        self.seen.append(ProcessorUse(self.clock(), self.servers(), self.nodes(), processor_times()))

    def between(self, begin: int, end: int) -> tuple[ProcessorUse, ProcessorUse]:
        moments = [one.moment for one in self.seen]
        first, last = bisect_left(moments, begin), bisect_left(moments, end)
        return self.seen[min(first, len(moments) - 1)], self.seen[min(last, len(moments) - 1)]


def measure_cost(
    workload: Workload,
    options: Mapping[str, str],
    servers: Callable[[], float],
    nodes: Callable[[], float],
    in_flight: float,
) -> MeasuredCost:
    """Run a closed loop once and see what its requests cost.

    Measured are the requests to receive and to acknowledge, if the workload expects that nothing is lost; otherwise
    nothing is received, and those that send are measured.

    :param servers: says the processor seconds of all servers; ``nodes`` those of the store.
    :param in_flight: requests at each server, for the level.
    :raises StorageUnavailable: the run lost or changed messages, or had too few requests: such a run has no speed.
    """
    with TemporaryDirectory(prefix="queuey-bench-") as folder:
        target = MeasuredSystem(workload, secrets.randbits(32), dict(options))
        # Its queues stay: they end with the store, and to remove one takes seconds in which servers and nodes are busy.
        driver_class(workload.queuey.driver)(target).prepare()
        watch = _Watch(servers, nodes, clock=target.clock.now)
        ran = run_load(Load(target, workload.queuey.driver, Path(folder)), during=watch)
        meter = Meter(workload, ran.start)
        findings = judged(
            workload, meter.sent(all_sent(ran.sent_files)), meter.received(all_received(ran.received_files)), ran.quiet
        )
        if found := findings.over(workload.queuey.expect):
            raise StorageUnavailable(f"{workload.name}: the run has no speed, since the check found {found}")
        receives = workload.queuey.expect.lost == 0
        done = _receipts(ran) if receives else _sendings(ran, workload)
    return _cost(done, watch, ran, in_flight, role="receive" if receives else "send")


class _Done(NamedTuple):
    """Requests of the part that counts."""

    begin: int
    end: int
    requests: int
    response: float
    """Mean seconds of one."""
    all_requests: int
    """Of the whole run."""


def _sendings(ran: Ran, workload: Workload) -> _Done:
    rows = [row for row in all_sent(ran.sent_files) if row.outcome == STORED]
    begin = ran.start + int(workload.warmup_seconds * SECOND)
    end = min(ran.start + int(workload.seconds * SECOND), max((row.ended for row in rows), default=0))
    some = [row for row in rows if begin <= row.ended < end]
    took = sum(row.ended - row.begun for row in some) / SECOND
    return _Done(begin, end, len(some), took / max(1, len(some)), len(rows))


def _receipts(ran: Ran) -> _Done:
    """Each batch is two requests: one to receive it, and one to acknowledge it."""
    batches = {(row.consumer, row.asked): row for row in all_received(ran.received_files) if row.settled}
    rows = sorted(batches.values(), key=lambda row: row.settled)
    if not rows:
        return _Done(ran.start, ran.end, 0, 0.0, 0)
    begin = min(row.asked for row in rows) + int(EDGE_SECONDS * SECOND)
    end = rows[-1].settled - int(EDGE_SECONDS * SECOND)
    some = [row for row in rows if begin <= row.settled < end]
    took = sum(row.settled - row.asked for row in some) / SECOND / 2
    return _Done(begin, end, 2 * len(some), took / max(1, len(some)), 2 * len(rows))


def _cost(done: _Done, watch: _Watch, ran: Ran, in_flight: float, role: str) -> MeasuredCost:
    if done.requests < LEAST_REQUESTS:
        raise StorageUnavailable(
            f"{done.requests} requests were measured, needed {LEAST_REQUESTS}: let it run for longer"
        )
    first, last = watch.between(done.begin, done.end)
    seconds = (last.moment - first.moment) / SECOND
    requests = done.requests * seconds / ((done.end - done.begin) / SECOND)
    generator = sum(one.cpu_seconds for one in ran.processes if one.role == role) / done.all_requests
    level = CostLevel(
        in_flight,
        (last.server - first.server) / requests,
        (last.node - first.node) / requests,
        generator,
        done.response,
    )
    ticks = last.machine.total - first.machine.total
    ours = level.processors * requests * _TICK
    busy = last.machine.busy - first.machine.busy
    return MeasuredCost(requests / seconds, level, min(0.9, max(0.0, (busy - ours) / max(1, ticks))))
