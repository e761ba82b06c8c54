"""Counters and timers of one server, in a registry of its own.

Labels are bounded: applications, routes, methods, codes. Never a queue, a principal or an id.
"""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from queuey import __version__

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
_MAX_CHILDREN = 10_000
_LATENCY = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Monitor:
    """All metrics there are; docs/metrics names each."""

    def __init__(self, backend: str) -> None:
        self.registry = registry = CollectorRegistry(auto_describe=False)
        self.requests = Histogram(
            "queuey_http_request_duration_seconds",
            "From a request's arrival to its answer",
            ("route", "method", "code"),
            registry=registry,
            buckets=_LATENCY,
        )
        self.in_progress = Gauge("queuey_http_requests_in_progress", "Requests under way", registry=registry)
        self.appended = Counter("queuey_messages_appended", "Messages acknowledged", ("app",), registry=registry)
        self.delivered = Counter(
            "queuey_messages_delivered", "Messages handed to readers", ("app", "way"), registry=registry
        )
        self.message_bytes = Counter(
            "queuey_message_bytes", "Bytes of message bodies", ("app", "direction"), registry=registry
        )
        self.refused = Counter("queuey_appends_refused", "Appends not acknowledged", ("code",), registry=registry)
        self.auth = Counter("queuey_auth", "Credentials looked at", ("kind", "result"), registry=registry)
        self.throttled = Counter("queuey_throttled", "Requests refused for a limit", ("limit",), registry=registry)
        self.queue_cache = Counter("queuey_queue_cache", "Lookups of queue settings", ("result",), registry=registry)
        self.watermark_age = Gauge(
            "queuey_watermark_age_seconds", "How far the watermark is behind the clock", registry=registry
        )
        self.storage_problems = Gauge("queuey_storage_problems", "Problems readiness reports", registry=registry)
        Gauge("queuey_build_info", "The version that runs", ("version", "backend"), registry=registry).labels(
            version=__version__, backend=backend
        ).set(1)

        self._children: dict[tuple[object, ...], Any] = {}

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """One request was answered."""
        key = (route, method, status)
        child = self._children.get(key)
        if child is None:
            known = method if method in _METHODS else "other"
            child = self._children[key] = self.requests.labels(route=route, method=known, code=str(status))
            if len(self._children) > _MAX_CHILDREN:
                self._children.clear()
        child.observe(seconds)

    def appending(self, application: str, messages: int, size: int) -> None:
        """Messages were acknowledged."""
        self._count(self.appended, messages, application)
        self._count(self.message_bytes, size, application, "in")

    def delivery(self, application: str, way: str, messages: int, size: int) -> None:
        """Messages were handed to a reader."""
        self._count(self.delivered, messages, application, way)
        self._count(self.message_bytes, size, application, "out")

    def _count(self, counter: Counter, amount: int, *labels: str) -> None:
        """Add to a counter; finding its child by labels each time costs more than adding."""
        key = (counter, *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = counter.labels(*labels)
        child.inc(amount)

    def exposition(self) -> bytes:
        """The Prometheus text form."""
        return generate_latest(self.registry)
