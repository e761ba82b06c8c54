"""Messages that were received and not settled: a system of leases must hand them out again.

Only what is certain is judged. An acknowledgement that was sent settles a message, whatever its answer. A message that may
have failed as often as its group allows may be a dead letter. And the run must have gone on for long enough, with answers
and without anything new, after the lease of the message and those of its key were over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from qdo.bench.bits import NumberBits
from qdo.bench.bodies import NO_KEY
from qdo.bench.clock import SECOND
from qdo.bench.ending import most_failures, pause_after, quiet_seconds
from qdo.bench.records import FAILED, ReceivedRow
from qdo.bench.workload import Workload

MARGIN_SECONDS = 1.0
"""A run notices later than its receivers that nothing new comes, and that long before its end the time of a message is over."""


class Quiet(NamedTuple):
    """The end of a run. Moments are those of rows."""

    since: int
    """When the last message came that was new, settled, or to be settled yet."""
    answered: int
    """When a receiver had its last answer, with messages or without."""
    unanswered: Mapping[int, int]
    """Receives that had no answer, by the number of their subscription among those of all queues. What was handed out in
    these was seen by nobody."""


@dataclass(slots=True)
class _Tried:
    """An open message."""

    receipts: int
    first: int
    until: int
    """Its last lease is over then for certain, and its last answer was there."""
    has_failed: bool
    key: int


class ReturnRule:
    """How long a system may take to hand a message out again, under one workload."""

    def __init__(self, workload: Workload, quiet: Quiet) -> None:
        own = workload.queuey
        self._quiet = quiet
        self._workload = workload
        self._most = most_failures(workload)
        self._visibility = own.receiving.visibility
        self._is_faulty = bool(own.faults.server or own.faults.network or quiet.unanswered)
        self._grace = quiet_seconds(workload) - self._visibility - MARGIN_SECONDS

    def is_due(self, until: int) -> bool:
        """Whether all leases that end then, and all that may come of them, were over long before the end."""
        return max(until, self._quiet.since) + self._grace * SECOND <= self._quiet.answered

    def is_stranded(self, tried: _Tried) -> bool:
        """Whether the message itself should have come again."""
        failures = tried.receipts
        if self._is_faulty:
            # It may have been handed out in answers that were lost, each time for a lease.
            failures += int((self._quiet.answered - tried.first) / (self._visibility * SECOND))
        if self._most and failures >= self._most:
            return False
        pause = pause_after(self._workload, failures) if tried.has_failed else 0.0
        return self.is_due(tried.until + int(pause * SECOND))


class Unsettled:
    """The messages of one stream, in one view, that were received and not settled yet."""

    __slots__ = ("_open", "_settled")

    def __init__(self) -> None:
        self._settled = NumberBits()
        """What was settled, or may have been."""
        self._open: dict[int, _Tried] = {}

    def take(self, row: ReceivedRow) -> None:
        """The next receipt under a lease."""
        if row.settling or row.settled:
            self._settled.add(row.number)
            self._open.pop(row.number, None)
            return
        if self._settled.has(row.number):
            return
        until, has_failed = max(row.held_until, row.arrived), bool(row.flags & FAILED)
        tried = self._open.get(row.number)
        if tried is None:
            self._open[row.number] = _Tried(1, row.arrived, until, has_failed, row.key)
            return
        tried.receipts += 1
        tried.until = max(tried.until, until)
        tried.has_failed |= has_failed

    def stranded(self, rule: ReturnRule) -> Iterator[int]:
        """Numbers of the messages that should have come again, and did not."""
        keys: dict[int, int] = {}
        for tried in self._open.values():
            if tried.key != NO_KEY:
                keys[tried.key] = max(keys.get(tried.key, 0), tried.until)
        for number, tried in self._open.items():
            # What is behind another open message of its key waits for that.
            if rule.is_stranded(tried) and rule.is_due(keys.get(tried.key, 0)):
                yield number
