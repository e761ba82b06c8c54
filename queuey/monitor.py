"""Counters and timers of one server, in a registry of its own.

Labels are bounded: applications, routes, methods, codes. Never a queue, a principal or an id.

What is counted on every request is kept in plain dictionaries and only takes the library's form
when it is asked for: the library's own counters took a fifth of an append's time.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

from queuey import __version__

COUNTERS = {
    "queuey_messages_appended": ("Messages acknowledged", ("app",)),
    "queuey_messages_delivered": ("Messages handed to readers", ("app", "way")),
    "queuey_message_bytes": ("Bytes of message bodies", ("app", "direction")),
    "queuey_appends_refused": ("Appends not acknowledged", ("code",)),
    "queuey_auth": ("Credentials looked at", ("kind", "result")),
    "queuey_throttled": ("Requests refused for a limit", ("limit",)),
    "queuey_queue_cache": ("Lookups of queue settings", ("result",)),
}
"""Name without ``_total``: help, labels."""
_LATENCY = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})


class Monitor:
    """All metrics there are; docs/metrics names each. Thread-safe."""

    def __init__(self, backend: str) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, ...], int] = {}
        self._timings: dict[tuple[str, str, int], list[float]] = {}
        self.under_way: Callable[[], float] = lambda: 0
        """Tells how many requests are under way."""
        self.registry = registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        in_progress = Gauge("queuey_http_requests_in_progress", "Requests under way", registry=registry)
        in_progress.set_function(lambda: float(self.under_way()))
        self.watermark_age = Gauge(
            "queuey_watermark_age_seconds", "How far the watermark is behind the clock", registry=registry
        )
        self.storage_problems = Gauge("queuey_storage_problems", "Problems readiness reports", registry=registry)
        Gauge("queuey_build_info", "The version that runs", ("version", "backend"), registry=registry).labels(
            version=__version__, backend=backend
        ).set(1)

    def count(self, name: str, amount: int, *labels: str) -> None:
        """Add to a counter of :data:`COUNTERS`; labels in its order."""
        key = (name, *labels)
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + amount

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """One request was answered."""
        key = (route, method if method in _METHODS else "other", status)
        slot = bisect_left(_LATENCY, seconds)
        with self._lock:
            timing = self._timings.get(key)
            if timing is None:
                timing = self._timings[key] = [0.0] * (len(_LATENCY) + 2)
            timing[slot] += 1
            timing[-1] += seconds

    def appended(self, application: str, messages: int, size: int) -> None:
        """Messages were acknowledged."""
        self.count("queuey_messages_appended", messages, application)
        self.count("queuey_message_bytes", size, application, "in")

    def delivered(self, application: str, way: str, messages: int, size: int) -> None:
        """Messages were handed to a reader."""
        self.count("queuey_messages_delivered", messages, application, way)
        self.count("queuey_message_bytes", size, application, "out")

    def collect(self) -> Iterator[Metric]:
        """The library's form of what was counted."""
        with self._lock:
            counts = dict(self._counts)
            timings = {key: list(timing) for key, timing in self._timings.items()}
        for name, (text, labels) in COUNTERS.items():
            family = CounterMetricFamily(name, text, labels=labels)
            for (counted, *values), amount in counts.items():
                if counted == name:
                    family.add_metric(values, amount)
            yield family
        duration = HistogramMetricFamily(
            "queuey_http_request_duration_seconds",
            "From a request's arrival to its answer",
            labels=("route", "method", "code"),
        )
        for (route, method, status), timing in timings.items():
            duration.add_metric((route, method, str(status)), _cumulated(timing[:-1]), timing[-1])
        yield duration

    def exposition(self) -> bytes:
        """The Prometheus text form."""
        return generate_latest(self.registry)


def _cumulated(slots: list[float]) -> list[tuple[str, float]]:
    """The library counts, at each bound, all that was not above it."""
    found, total = [], 0.0
    for bound, slot in zip((*map(str, _LATENCY), "+Inf"), slots, strict=True):
        total += slot
        found.append((bound, total))
    return found
