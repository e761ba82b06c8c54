"""Counters and timers of one server, in a registry of its own.

Labels are bounded: applications, routes, methods, codes. Never a queue, a principal or an id.

What is counted on every request is kept in plain dictionaries and only takes the library's form
when it is asked for: the library's own counters took a fifth of an append's time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

from queuey._version import __version__
from queuey.locks import new_lock

COUNTERS = {
    "queuey_messages_appended": ("Messages acknowledged", ("app",)),
    "queuey_messages_delivered": ("Messages handed to readers", ("app", "way")),
    "queuey_message_bytes": ("Bytes of message bodies", ("app", "direction")),
    "queuey_appends_refused": ("Appends not acknowledged", ("code",)),
    "queuey_auth": ("Credentials looked at", ("kind", "result")),
    "queuey_throttled": ("Requests refused for a limit", ("limit",)),
    "queuey_waiters_refused": ("Readers that were not let wait", ("limit",)),
    "queuey_queue_cache": ("LookupThread of queue settings", ("result",)),
    "queuey_storage_errors": ("Calls of the store that failed", ("backend", "op", "code")),
    "queuey_appends_restamped": ("Appends that took longer than the write budget, and were tried again", ()),
}
"""Name without ``_total``: help, labels."""
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_STORAGE_SECONDS = (0.00005, 0.0001, 0.00025, *_SECONDS)
_MESSAGES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 5000.0)
HISTOGRAMS = {
    "queuey_http_request_duration_seconds": (
        "From a request's arrival to its answer",
        ("route", "method", "code"),
        _SECONDS,
    ),
    "queuey_storage_duration_seconds": ("Time in the store", ("backend", "op"), _STORAGE_SECONDS),
    "queuey_commit_batch_messages": ("Messages that shared a commit", (), _MESSAGES),
}
"""Name: help, labels, upper bounds."""
_BYTES = "queuey_message_bytes"
_IN_FLIGHT = ("queuey_throttled", "in_flight")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})


class Monitor:
    """All metrics there are; docs/metrics names each. Thread-safe."""

    def __init__(self, backend: str) -> None:
        self._lock = new_lock()
        self._counts: dict[tuple[str, ...], int] = {}
        self._slots: dict[tuple[str, ...], list[float]] = {}
        self._requests: dict[tuple[str, str, int], list[float]] = {}
        """Those of requests, without their name and with the status as it comes."""
        self._backend = backend
        self.under_way: Callable[[], float] = lambda: 0
        """Tells how many requests are under way."""
        self.bytes_held: Callable[[], float] = lambda: 0
        """Tells how many bytes of bodies and answers are in flight."""
        self.waiters: Callable[[], float] = lambda: 0
        """Tells how many readers wait."""
        self.registry = registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        in_progress = Gauge("queuey_http_requests_in_progress", "Requests under way", registry=registry)
        in_progress.set_function(lambda: float(self.under_way()))
        held = Gauge("queuey_http_in_flight_bytes", "Bytes of bodies and large answers in flight", registry=registry)
        held.set_function(lambda: float(self.bytes_held()))
        waiters = Gauge("queuey_waiters", "Readers that wait for messages, long polls and streams", registry=registry)
        waiters.set_function(lambda: float(self.waiters()))
        self.watermark_age = Gauge(
            "queuey_watermark_age_seconds", "How far the watermark is behind the clock", registry=registry
        )
        self.storage_problems = Gauge("queuey_storage_problems", "Problems readiness reports", registry=registry)
        self.storage_warnings = Gauge("queuey_storage_warnings", "Warnings readiness reports", registry=registry)
        self.clock_skew = Gauge(
            "queuey_clock_skew_seconds", "How far the clock may be off those of the store's nodes", registry=registry
        )
        Gauge("queuey_build_info", "The version that runs", ("version", "backend"), registry=registry).labels(
            version=__version__, backend=backend
        ).set(1)

    def count(self, name: str, amount: int, *labels: str) -> None:
        """Add to a counter of :data:`COUNTERS`; labels in its order."""
        key = (name, *labels)
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + amount

    def observe(self, name: str, value: float, *labels: str) -> None:
        """Note a value in a histogram of :data:`HISTOGRAMS`; labels in its order."""
        bounds = HISTOGRAMS[name][2]
        slot, key = bisect_left(bounds, value), (name, *labels)
        with self._lock:
            slots = self._slots.get(key)
            if slots is None:
                slots = self._slots[key] = [0.0] * (len(bounds) + 2)
            slots[slot] += 1
            slots[-1] += value

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """One request was answered."""
        known = method if method in _METHODS else "other"
        slots = self._requests.get((route, known, status))
        if slots is None:
            slots = self._new_requests(route, known, status)
        slot = bisect_left(_SECONDS, seconds)
        with self._lock:
            slots[slot] += 1
            slots[-1] += seconds

    def refused(self, method: str, status: int) -> None:
        """One request found no place, and was answered before it was looked at."""
        known = method if method in _METHODS else "other"
        slots = self._requests.get(("none", known, status)) or self._new_requests("none", known, status)
        counts = self._counts
        with self._lock:
            counts[_IN_FLIGHT] = counts.get(_IN_FLIGHT, 0) + 1
            slots[0] += 1

    def _new_requests(self, route: str, method: str, status: int) -> list[float]:
        key = ("queuey_http_request_duration_seconds", route, method, str(status))
        with self._lock:
            slots = self._slots.setdefault(key, [0.0] * (len(_SECONDS) + 2))
            self._requests[route, method, status] = slots
        return slots

    def took(self, operation: str, seconds: float) -> None:
        """The store did something (:class:`queuey.storage.Observer`)."""
        self.observe("queuey_storage_duration_seconds", seconds, self._backend, operation)

    def committed(self, messages: int, seconds: float) -> None:
        """The store put messages on disk together."""
        self.observe("queuey_commit_batch_messages", messages)
        self.took("commit", seconds)

    def failed(self, operation: str, code: str) -> None:
        """A call of the store failed."""
        self.count("queuey_storage_errors", 1, self._backend, operation, code)

    def restamped(self) -> None:
        """An append took too long, and is tried again."""
        self.count("queuey_appends_restamped", 1)

    def appended(self, application: str, messages: int, size: int) -> None:
        """Messages were acknowledged."""
        self._count_both(("queuey_messages_appended", application), messages, (_BYTES, application, "in"), size)

    def delivered(self, application: str, way: str, messages: int, size: int) -> None:
        """Messages were handed to a reader."""
        key = ("queuey_messages_delivered", application, way)
        self._count_both(key, messages, (_BYTES, application, "out"), size)

    def _count_both(self, key: tuple[str, ...], amount: int, other: tuple[str, ...], other_amount: int) -> None:
        counts = self._counts
        with self._lock:
            counts[key] = counts.get(key, 0) + amount
            counts[other] = counts.get(other, 0) + other_amount

    def collect(self) -> Iterator[Metric]:
        """The library's form of what was counted."""
        with self._lock:
            counts = dict(self._counts)
            slots = {key: list(values) for key, values in self._slots.items()}
        for name, (text, labels) in COUNTERS.items():
            family = CounterMetricFamily(name, text, labels=labels)
            for (counted, *values), amount in counts.items():
                if counted == name:
                    family.add_metric(values, amount)
            yield family
        for name, (text, labels, bounds) in HISTOGRAMS.items():
            histogram = HistogramMetricFamily(name, text, labels=labels)
            for (observed, *values), found in slots.items():
                if observed == name:
                    histogram.add_metric(values, _cumulated(bounds, found[:-1]), found[-1])
            yield histogram

    def exposition(self) -> bytes:
        """The Prometheus text form."""
        return generate_latest(self.registry)


def _cumulated(bounds: tuple[float, ...], slots: list[float]) -> list[tuple[str, float]]:
    """The library counts, at each bound, all that was not above it."""
    found, total = [], 0.0
    for bound, slot in zip((*map(str, bounds), "+Inf"), slots, strict=True):
        total += slot
        found.append((bound, total))
    return found
