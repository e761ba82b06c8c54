"""Times and rates of a run, taken from what the generator wrote down.

Response time counts from the moment at which a request was due, so a server that stands still cannot hide the requests
that it kept from being sent. Service time counts from the moment at which it was sent. In a closed loop both are the same.
A request without an answer counts with the time after which it was given up: else the worst would be missing.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from qdo.bench.clock import SECOND
from qdo.bench.histogram import TimeHistogram
from qdo.bench.records import CORRUPT, FOREIGN, REFUSED, STORED, ReceivedRow, SentRow
from qdo.bench.workload import Workload


@dataclass
class PhaseTimes:
    """Of the requests that were due in one phase."""

    seconds: float
    target: float
    """Requests a second that were due; 0 in a closed loop."""
    requests: int = 0
    """That were stored, whenever."""
    answered: int = 0
    """Requests that were stored while the phase lasted, whenever they were due."""
    response: TimeHistogram = field(default_factory=TimeHistogram)
    service: TimeHistogram = field(default_factory=TimeHistogram)
    end_to_end: TimeHistogram = field(default_factory=TimeHistogram)

    def add(self, other: PhaseTimes) -> None:
        """Count what the other one has counted."""
        self.requests += other.requests
        self.answered += other.answered
        self.response.add(other.response)
        self.service.add(other.service)
        self.end_to_end.add(other.end_to_end)

    @property
    def rate(self) -> float:
        """Requests stored a second while the phase lasted: below ``target`` if the system did not keep up."""
        return self.answered / self.seconds if self.seconds else 0.0


MOST_PERIODS = 400
"""Points of a curve over time: a long run has some of several seconds."""


@dataclass
class PeriodTimes:
    """Of the requests that were due, and the messages that were received, in one period of the run."""

    service: TimeHistogram = field(default_factory=TimeHistogram)
    delay: TimeHistogram = field(default_factory=TimeHistogram)
    end_to_end: TimeHistogram = field(default_factory=TimeHistogram)

    def add(self, other: PeriodTimes) -> None:
        """Count what the other one has counted."""
        self.service.add(other.service)
        self.delay.add(other.delay)
        self.end_to_end.add(other.end_to_end)


@dataclass
class Times:
    """Of one run, the warm-up left out."""

    phases: list[PhaseTimes]
    response: TimeHistogram = field(default_factory=TimeHistogram)
    service: TimeHistogram = field(default_factory=TimeHistogram)
    delay: TimeHistogram = field(default_factory=TimeHistogram)
    """From the moment a request was due until it was sent."""
    lag: TimeHistogram = field(default_factory=TimeHistogram)
    """The part of this that is the generator's own: the sender was free, and the request due."""
    end_to_end: TimeHistogram = field(default_factory=TimeHistogram)
    """From the moment a message was due, or was to be delivered, to its receipt."""
    receive: TimeHistogram = field(default_factory=TimeHistogram)
    """From the moment at which a receiver had asked and the message could be had, to its receipt: what a receive or a pop
    takes, without the wait for a message to be sent. A message that comes again could be had since it was sent."""
    quiet: TimeHistogram = field(default_factory=TimeHistogram)
    """The same for messages of keys that are not the noisy one; empty without one."""
    waited: int = 0
    """Requests that were due while their sender waited for the answer before."""
    stored_by_second: Counter[int] = field(default_factory=Counter)
    """By the second of the answer: what a server that stands still does not store is not there."""
    refused_by_second: Counter[int] = field(default_factory=Counter)
    received_by_second: Counter[int] = field(default_factory=Counter)
    by_period: defaultdict[int, PeriodTimes] = field(default_factory=lambda: defaultdict(PeriodTimes))
    sent_from: int | None = None
    """When the first request that counts was sent, in nanoseconds after the warm-up; None without any."""
    sent_until: int = 0
    """When the last one had its answer."""
    is_closed: bool = False
    first_receipt: int = 0
    last_receipt: int = 0
    received: int = 0

    def add(self, other: Times) -> None:
        """Count what the other one has counted, of other rows of the same run."""
        for phase, more in zip(self.phases, other.phases, strict=True):
            phase.add(more)
        for name in ("response", "service", "delay", "lag", "end_to_end", "receive", "quiet"):
            getattr(self, name).add(getattr(other, name))
        for name in ("stored_by_second", "refused_by_second", "received_by_second"):
            getattr(self, name).update(getattr(other, name))
        for at, period in other.by_period.items():
            self.by_period[at].add(period)
        self.waited += other.waited
        self.took(other.sent_from, other.sent_until)
        if other.received:
            first, last = other.first_receipt, other.last_receipt
            self.first_receipt = min(first, self.first_receipt) if self.received else first
            self.last_receipt = max(last, self.last_receipt)
            self.received += other.received

    def took(self, begun: int | None, ended: int) -> None:
        """Note a request that was sent and answered then; without a beginning there was none."""
        if begun is not None:
            self.sent_from = begun if self.sent_from is None else min(begun, self.sent_from)
            self.sent_until = max(ended, self.sent_until)

    @property
    def seconds(self) -> float:
        return sum(phase.seconds for phase in self.phases)

    @property
    def period(self) -> int:
        """Seconds of a point of a curve over time."""
        return max(1, math.ceil(self.seconds / MOST_PERIODS))

    @property
    def publish_rate(self) -> float:
        """Messages stored a second, over the time that it took.

        An open loop takes the time of its load, or longer if the system did not keep up. A closed loop ends with its
        last answer, which comes early if it has a number of messages.
        """
        took = (self.sent_until - (self.sent_from or 0)) / SECOND
        took = took if self.is_closed else max(self.seconds, took)
        return sum(self.stored_by_second.values()) / took if took > 0 else 0.0

    @property
    def consume_rate(self) -> float:
        """Messages received a second, from the first receipt to the last one."""
        took = (self.last_receipt - self.first_receipt) / SECOND
        return self.received / took if took > 0 else 0.0


class Meter:
    """Takes the times of one run, row by row."""

    def __init__(self, workload: Workload, start: int) -> None:
        phases = workload.phases
        skipped = 1 if workload.warmup_seconds else 0
        measured = [PhaseTimes(one.seconds, one.rate) for one in phases[skipped:]]
        self.times = Times(measured, is_closed=workload.is_closed)
        self._period = self.times.period
        self._begin = start + int(workload.warmup_seconds * SECOND)
        self._ends = []
        end = self._begin
        for phase in phases[skipped:]:
            end += int(phase.seconds * SECOND)
            self._ends.append(end)
        self._delayed = workload.queuey.delay > 0
        self._has_noise = bool(workload.keys and workload.keys.noisy)

    def sent(self, rows: Iterable[SentRow]) -> Iterator[SentRow]:
        """The same rows; their times are taken."""
        for row in rows:
            self.take_sent(row)
            yield row

    def take_sent(self, row: SentRow) -> None:
        """Take the times of a request, in any order."""
        if row.due < self._begin:
            return
        times = self.times
        times.took(row.begun - self._begin, row.ended - self._begin)
        second = (row.ended - self._begin) // SECOND
        if row.outcome != STORED:
            times.refused_by_second[second] += row.messages
            if row.outcome == REFUSED:
                return  # a quick no is no quick answer
        else:
            times.stored_by_second[second] += row.messages
            if row.ended < self._ends[-1]:
                self._phase_of(row.ended).answered += 1
        phase = self._phase_of(row.due)
        response, service = row.ended - row.due, row.ended - row.begun
        times.response.record(response)
        times.service.record(service)
        times.delay.record(row.begun - row.due)
        period = times.by_period[(row.due - self._begin) // SECOND // self._period]
        period.service.record(service)
        period.delay.record(row.begun - row.due)
        times.lag.record(row.begun - max(row.due, row.free))
        times.waited += row.free > row.due
        phase.requests += row.outcome == STORED
        phase.response.record(response)
        phase.service.record(service)

    def received(self, rows: Iterable[ReceivedRow]) -> Iterator[ReceivedRow]:
        """As :meth:`sent`."""
        for row in rows:
            self.take_received(row)
            yield row

    def take_received(self, row: ReceivedRow) -> None:
        """Take the times of a receipt, in any order."""
        if row.due < self._begin or row.flags & (CORRUPT | FOREIGN):
            return  # when a message was due that says nothing of itself, nobody knows
        times = self.times
        times.first_receipt = min(row.arrived, times.first_receipt) if times.received else row.arrived
        times.last_receipt = max(row.arrived, times.last_receipt)
        times.received += 1
        at = (row.arrived - self._begin) // SECOND
        times.received_by_second[at] += 1
        took = row.arrived - (row.not_before if self._delayed else row.due)
        times.receive.record(row.arrived - max(row.asked, row.sent, row.not_before if self._delayed else 0))
        times.end_to_end.record(took)
        times.by_period[at // self._period].end_to_end.record(took)
        self._phase_of(row.due).end_to_end.record(took)
        if self._has_noise and row.key:
            times.quiet.record(took)

    def _phase_of(self, due: int) -> PhaseTimes:
        for end, phase in zip(self._ends, self.times.phases, strict=True):
            if due < end:
                return phase
        return self.times.phases[-1]
