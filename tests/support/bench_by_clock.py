"""Runs of the load harness in one thread, by a clock that only counts: they take no time and are always the same."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from qdo.bench.arrivals import drawn
from qdo.bench.clock import SECOND
from qdo.bench.drivers import BlockingConsumer, MeasuredSystem, driver_class
from qdo.bench.judge import judged
from qdo.bench.measuring import Meter
from qdo.bench.pace import at_once, thread_sleep
from qdo.bench.planting import Plant, Planting
from qdo.bench.receivers import Distinct, InOrder, LoadReceiver, OpenMessages, ReceiverContext
from qdo.bench.records import ReceivedRow, SentRow
from qdo.bench.senders import LoadSender, LoadShare, texts_of
from qdo.bench.strict_yaml import Parsed, convert
from qdo.bench.unsettled import Quiet
from qdo.bench.verdict import Repeat
from qdo.bench.workload import Workload

MICROSECOND = 1000
_RUNS = itertools.count(7)


class CountingClock:
    """Each look takes a microsecond, and sleep takes no time at all."""

    def __init__(self) -> None:
        self.moment = 1_000 * SECOND

    def now(self) -> int:
        self.moment += MICROSECOND
        return self.moment

    def sleep_until(self, moment: int) -> None:
        self.moment = max(self.moment, moment)


def workload_of(**values: Any) -> Workload:
    """A workload without a warm-up, in which nothing counts as late; values with capitals are of the OpenMessaging benchmark."""
    known = Workload.__struct_encode_fields__
    top = {name: value for name, value in values.items() if name in known}
    own = {
        "warmup": 0,
        "expect": {"late_seconds": 1_000_000},
        **{name: value for name, value in values.items() if name not in known},
    }
    return convert(Parsed({"name": "test", **top, "queuey": own}, {}), Workload, "test")


def run_by_clock(
    workload: Workload,
    driver: str = "memory",
    options: Mapping[str, str] | None = None,
    plant: Plant | None = None,
    *,
    steps: int = 1_000_000,
) -> Repeat:
    """Send all, then receive all.

    :param steps: the most that each receiver does: what is always given back comes without end.
    """
    clock = CountingClock()
    target = MeasuredSystem(workload, next(_RUNS), options or {}, clock)
    made = driver_class(driver)(target)
    made.prepare()
    sent: list[SentRow] = []
    received: list[ReceivedRow] = []
    start = clock.now()
    due = None
    if not workload.is_closed:
        due = drawn(workload.phases, workload.queuey.arrivals, sender=0, senders=1, seed=workload.queuey.seed)
    producer = made.producer()
    sender = LoadSender(target, producer, LoadShare(0, 1), texts_of(workload))
    sender.run(start, due, sent.append, lambda: False)
    producer.close()
    planting = Planting(plant, received.append) if plant else None
    out = InOrder(planting.write if planting else received.append)
    context = ReceiverContext(target, Distinct(), OpenMessages(workload), thread_sleep(clock))
    for at in range(workload.topics * workload.views):
        topic, view = divmod(at, workload.views)
        first = at * workload.receivers_of_view
        consumers = [
            LoadReceiver(context, BlockingConsumer(made.consumer(topic, view)), view, first + which)
            for which in range(workload.receivers_of_view)
        ]
        empty = 0
        for _ in range(steps):
            if empty == 3:
                break
            came = [at_once(consumer.step(0.0, out)) for consumer in consumers if not consumer.is_idle]
            empty = 0 if any(came) else empty + 1
            if empty:
                clock.sleep_until(clock.now() + int(workload.queuey.receiving.visibility * SECOND))
        for consumer in consumers:
            consumer.close()
    if planting:
        planting.end()
    since = max((max(row.arrived, row.settled) for row in received), default=0)
    quiet = Quiet(since, clock.now(), dict(context.unanswered))
    meter = Meter(workload, start)
    findings = judged(workload, meter.sent(iter(sent)), meter.received(iter(received)), quiet)
    return Repeat(findings, meter.times, 0.0, 0.0, (0.1,), planting.planted if planting else 0, sender.unsent)
