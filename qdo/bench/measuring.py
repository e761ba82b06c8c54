"""Times and rates of a run, taken from what the generator wrote down.

Response time counts from the moment at which a request was due, so a server that stands still cannot hide the requests
that it kept from being sent. Service time counts from the moment at which it was sent. In a closed loop both are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from qdo.bench.clock import SECOND
from qdo.bench.histogram import TimeHistogram
from qdo.bench.records import STORED, ReceivedRow, SentRow
from qdo.bench.workload import Workload


@dataclass
class PhaseTimes:
    """Of the requests that were due in one phase."""

    seconds: float
    target: float
    """Requests a second that were due; 0 in a closed loop."""
    requests: int = 0
    """That were stored."""
    response: TimeHistogram = field(default_factory=TimeHistogram)
    service: TimeHistogram = field(default_factory=TimeHistogram)
    end_to_end: TimeHistogram = field(default_factory=TimeHistogram)


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
    quiet: TimeHistogram = field(default_factory=TimeHistogram)
    """The same for messages of keys that are not the noisy one; empty without one."""
    waited: int = 0
    """Requests that were due while their sender waited for the answer before."""
    stored_by_second: Counter[int] = field(default_factory=Counter)
    refused_by_second: Counter[int] = field(default_factory=Counter)
    received_by_second: Counter[int] = field(default_factory=Counter)
    first_receipt: int = 0
    last_receipt: int = 0
    received: int = 0

    @property
    def seconds(self) -> float:
        return sum(phase.seconds for phase in self.phases)

    @property
    def publish_rate(self) -> float:
        """Messages stored a second, over the time in which they were due."""
        return sum(self.stored_by_second.values()) / self.seconds

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
        self.times = Times([PhaseTimes(one.seconds, one.rate) for one in phases[skipped:]])
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
            if row.due >= self._begin:
                self._take_sent(row)
            yield row

    def _take_sent(self, row: SentRow) -> None:
        times = self.times
        at = (row.due - self._begin) // SECOND
        if row.outcome != STORED:
            times.refused_by_second[at] += row.messages
            return
        times.stored_by_second[at] += row.messages
        phase = self._phase_of(row.due)
        response, service = row.ended - row.due, row.ended - row.begun
        times.response.record(response)
        times.service.record(service)
        times.delay.record(row.begun - row.due)
        times.lag.record(row.begun - max(row.due, row.free))
        times.waited += row.free > row.due
        phase.requests += 1
        phase.response.record(response)
        phase.service.record(service)

    def received(self, rows: Iterable[ReceivedRow]) -> Iterator[ReceivedRow]:
        """As :meth:`sent`."""
        times = self.times
        for row in rows:
            if row.due >= self._begin:
                if not times.received:
                    times.first_receipt = row.arrived
                times.last_receipt = row.arrived
                times.received += 1
                times.received_by_second[(row.arrived - self._begin) // SECOND] += 1
                took = row.arrived - (row.not_before if self._delayed else row.due)
                times.end_to_end.record(took)
                self._phase_of(row.due).end_to_end.record(took)
                if self._has_noise and row.key:
                    times.quiet.record(took)
            yield row

    def _phase_of(self, due: int) -> PhaseTimes:
        for end, phase in zip(self._ends, self.times.phases, strict=True):
            if due < end:
                return phase
        return self.times.phases[-1]
