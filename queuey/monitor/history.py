"""The last hour of a server, one sample a second.

Samples stand in a ring of plain numbers, so an hour takes a fixed amount of memory, whatever the server does. Counters
become rates when a sample is taken.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from math import inf
from typing import NamedTuple

from queuey.background import BackgroundWork
from queuey.locks import new_lock
from queuey.monitor.declared import Counter
from queuey.monitor.metrics import (
    DEAD_LETTERS,
    LEASES_SETTLED,
    MESSAGE_BYTES,
    MESSAGES_APPENDED,
    MESSAGES_DELIVERED,
    MESSAGES_RECEIVED,
    REQUEST_DURATION,
    REQUESTS_IN_PROGRESS,
    WAITERS,
    Monitor,
)

__all__ = ["FIELDS", "KEPT_SECONDS", "History", "counted"]

KEPT_SECONDS = 3600
SAMPLE_SECONDS = 1.0
_COUNTERS: Mapping[str, tuple[Counter, str]] = {
    "appended": (MESSAGES_APPENDED, ""),
    "read": (MESSAGES_DELIVERED, ""),
    "received": (MESSAGES_RECEIVED, ""),
    "settled": (LEASES_SETTLED, ""),
    "dead_letters": (DEAD_LETTERS, "moved"),
    "bytes_in": (MESSAGE_BYTES, "in"),
    "bytes_out": (MESSAGE_BYTES, "out"),
}
"""What people are shown of an application or a server, by name: a counter, and the value of its second label."""
_RATES = ("appended", "read", "received", "settled")
FIELDS = ("time", *_RATES, "requests", "errors", "p50", "p99", "waiters", "in_progress")
"""What a sample has: its time in seconds since 1970; messages, requests and errors (5xx) a second; half and 99 percent
of the requests took at most ``p50`` and ``p99`` seconds, 0 without any; readers and requests at that moment."""
_WIDTH = len(FIELDS)


def counted(monitor: Monitor, application: str = "") -> dict[str, int]:
    """What was counted since the start.

    :param application: of this one alone, without looking at the others.
    """
    return {name: int(monitor.total(counter, application, second)) for name, (counter, second) in _COUNTERS.items()}


class History(BackgroundWork):
    """Samples of one monitor. Thread-safe."""

    def __init__(self, monitor: Monitor, now: Callable[[], float], elapsed: Callable[[], float]) -> None:
        """:param now: seconds since 1970.
        :param elapsed: seconds that nobody sets back.
        """
        super().__init__("history", SAMPLE_SECONDS)
        self._monitor = monitor
        self._now, self._elapsed = now, elapsed
        self._ring = array("d")
        """Grows to an hour, and no further."""
        self._taken = 0
        self._lock = new_lock()
        self._before = self._looked()

    def start(self) -> None:
        """Take a sample a second, in a thread."""
        super().start()
        self.wake()

    async def turn(self) -> None:
        """Take a sample. Another one follows."""
        self.take()
        self.wake()

    def take(self) -> None:
        """Take a sample of what was counted since the one before."""
        looked = self._looked()
        with self._lock:
            before, self._before = self._before, looked
            seconds = max(looked.at - before.at, 1e-3)
            rates = [(now - then) / seconds for now, then in zip(looked.totals, before.totals, strict=True)]
            buckets = [now - then for now, then in zip(looked.buckets, before.buckets, strict=True)]
            half, most = quantile(buckets, 0.5), quantile(buckets, 0.99)
            sample = [self._now(), *rates, half, most, looked.waiters, looked.in_progress]
            start = self._taken % KEPT_SECONDS * _WIDTH
            self._ring[start : start + _WIDTH] = array("d", sample)  # behind the end: it grows
            self._taken += 1

    @property
    def counters(self) -> Mapping[str, int]:
        """What the server had counted at the last sample, or now if no samples are taken."""
        return self._before.counters if self.has_begun else counted(self._monitor)

    def last(self, most: int) -> list[list[float]]:
        """The newest samples, oldest of them first, each as :data:`FIELDS`.

        :param most: samples at most.
        """
        with self._lock:
            count = min(most, self._taken, KEPT_SECONDS)
            places = [number % KEPT_SECONDS * _WIDTH for number in range(self._taken - count, self._taken)]
            return [self._ring[place : place + _WIDTH].tolist() for place in places]

    def _looked(self) -> _Looked:
        monitor = self._monitor
        requests, errors, buckets = monitor.answered()
        counters = counted(monitor)
        at, waiters, in_progress = self._elapsed(), monitor.value(WAITERS), monitor.value(REQUESTS_IN_PROGRESS)
        return _Looked(at, counters, requests, errors, buckets, waiters, in_progress)


class _Looked(NamedTuple):
    """What the monitor had at one moment."""

    at: float
    counters: Mapping[str, int]
    requests: float
    errors: float
    buckets: Sequence[float]
    waiters: float
    in_progress: float

    @property
    def totals(self) -> Sequence[float]:
        """What becomes rates."""
        return [*(self.counters[name] for name in _RATES), self.requests, self.errors]


def quantile(buckets: Sequence[float], share: float) -> float:
    """The upper bound of the bucket that holds this share of the requests; 0 if there were none.

    What is over the last bound counts as that bound.

    >>> quantile([90, 9, 1] + [0] * 12, 0.5), quantile([0] * 15, 0.5)
    (0.0005, 0)
    """
    total = sum(buckets)
    if not total:
        return 0
    bounds = (*REQUEST_DURATION.buckets, inf)
    for bound, so_far in zip(bounds, accumulate(buckets), strict=True):
        if so_far >= share * total:
            return min(bound, REQUEST_DURATION.buckets[-1])
    return REQUEST_DURATION.buckets[-1]
