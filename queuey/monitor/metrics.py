"""The metrics of one server: each declared once, and counted by its object.

Labels are bounded: applications, routes, methods, codes, and the queues that ``[metrics] queues`` names. Never any other
queue, a user or an id. docs/metrics.md names each metric.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from queuey._version import __version__
from queuey.monitor.declared import Counter, Declarations, Labels, MetricSet, Newest

SERVER_METRICS = Declarations()
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_STORAGE_SECONDS = (0.00005, 0.0001, 0.00025, *_SECONDS)
_LONG_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 3600.0, 86400.0)
_MESSAGES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 5000.0)

MESSAGES_APPENDED = SERVER_METRICS.counter("queuey_messages_appended", "Messages acknowledged", ("app",))
MESSAGES_DELIVERED = SERVER_METRICS.counter("queuey_messages_delivered", "Messages handed to readers", ("app", "way"))
MESSAGE_BYTES = SERVER_METRICS.counter("queuey_message_bytes", "Bytes of message bodies", ("app", "direction"))
APPENDS_REFUSED = SERVER_METRICS.counter("queuey_appends_refused", "Appends not acknowledged", ("code",))
AUTH = SERVER_METRICS.counter("queuey_auth", "Credentials looked at", ("kind", "result"))
THROTTLED = SERVER_METRICS.counter("queuey_throttled", "Requests refused for a limit", ("limit",))
WAITERS_REFUSED = SERVER_METRICS.counter("queuey_waiters_refused", "Readers that were not let wait", ("limit",))
QUEUE_CACHE = SERVER_METRICS.counter("queuey_queue_cache", "Lookups of queue settings", ("result",))
STORAGE_ERRORS = SERVER_METRICS.counter(
    "queuey_storage_errors", "Calls of the store that failed", ("backend", "op", "code")
)
MESSAGES_RECEIVED = SERVER_METRICS.counter("queuey_messages_received", "Messages leased or popped", ("app",))
LEASES_SETTLED = SERVER_METRICS.counter("queuey_leases_settled", "Leases settled or extended", ("app", "action"))
LEASES_EXPIRED = SERVER_METRICS.counter(
    "queuey_leases_expired", "Messages handed out again since their lease ran out", ("app",)
)
LEASES_STALE = SERVER_METRICS.counter("queuey_lease_receipts_stale", "Receipts of leases that had ended", ("app",))
LEASE_DUPLICATES = SERVER_METRICS.counter(
    "queuey_lease_duplicates", "Messages of weak groups handed out while they had a receiver of another server"
)
LEASE_TRANSACTIONS = SERVER_METRICS.counter(
    "queuey_lease_transactions", "Transactions of lease groups on Cassandra", ("result",)
)
LEASE_STEPS_HANDED_OVER = SERVER_METRICS.counter(
    "queuey_lease_steps_handed_over", "Steps of lease groups handed over to another server", ("result",)
)
LEASE_STATE_BYTES = SERVER_METRICS.counter(
    "queuey_lease_state_bytes", "Bytes written of what lease groups hold: leases, settles, and states that are folded"
)
LEASE_AHEAD_WASTED = SERVER_METRICS.counter(
    "queuey_lease_ahead_wasted", "Messages read for receivers, and forgotten before they were handed out"
)
DEAD_LETTERS = SERVER_METRICS.counter("queuey_dead_letters", "Messages given up", ("app", "result"))
BREAKERS_TRIPPED = SERVER_METRICS.counter(
    "queuey_lease_breakers_tripped", "Lease groups paused by their breakers", ("app",)
)
DEAD_LETTERS_MOVED = SERVER_METRICS.counter(
    "queuey_dead_letters_redriven", "Dead letters that a redrive looked at to move them", ("app", "result")
)
MESSAGES_PURGED = SERVER_METRICS.counter("queuey_messages_purged", "Messages removed by purges", ("app",))
MESSAGES_SETTLED_REMOVED = SERVER_METRICS.counter(
    "queuey_settled_messages_removed", "Messages removed since all lease groups have settled them", ("app",)
)
TASKS_ENDED = SERVER_METRICS.counter("queuey_tasks_ended", "Tasks that have ended", ("app", "task", "state"))
APPENDS_RESTAMPED = SERVER_METRICS.counter(
    "queuey_appends_restamped", "Appends that took longer than the write budget, and were tried again"
)
REQUEST_DURATION = SERVER_METRICS.histogram(
    "queuey_http_request_duration_seconds",
    "From a request's arrival to its answer",
    ("route", "method", "code"),
    buckets=_SECONDS,
)
STORAGE_DURATION = SERVER_METRICS.histogram(
    "queuey_storage_duration_seconds", "Time in the store", ("backend", "op"), buckets=_STORAGE_SECONDS
)
COMMIT_BATCH = SERVER_METRICS.histogram(
    "queuey_commit_batch_messages", "Messages that shared a commit", buckets=_MESSAGES
)
COMMIT_SWITCHES = SERVER_METRICS.counter(
    "queuey_commit_switches", "How often commits of the embedded store went on elsewhere", ("to",)
)
LEASE_DWELL = SERVER_METRICS.histogram(
    "queuey_lease_dwell_seconds",
    "From when a message is due to its first lease, of the oldest message of each answer",
    ("app",),
    buckets=_LONG_SECONDS,
)
LEASE_WORK = SERVER_METRICS.histogram(
    "queuey_lease_work_seconds",
    "From a lease to its acknowledgement, of the first message of each request",
    ("app",),
    buckets=_LONG_SECONDS,
)
LEASE_K = SERVER_METRICS.histogram(
    "queuey_lease_k", "K of receives of weak groups whose K is automatic", buckets=_MESSAGES
)
LEASE_GROUPS = SERVER_METRICS.gauge(
    "queuey_lease_groups",
    "Lease groups that this server has used last, 1,000 at most: those of the next gauges",
    ("app",),
)
LEASE_GROUPS_HELD = SERVER_METRICS.gauge(
    "queuey_lease_groups_held", "Messages that these groups hold: leased, waiting, or given up", ("app",)
)
LEASE_GROUPS_LEASED = SERVER_METRICS.gauge(
    "queuey_lease_groups_leased",
    "Messages that receivers of these groups have, or had when their lease ran out",
    ("app",),
)
LEASE_GROUPS_CLOSED_KEYS = SERVER_METRICS.gauge(
    "queuey_lease_groups_closed_keys", "Keys of these groups of which messages wait behind others", ("app",)
)
LEASE_GROUPS_OLDEST = SERVER_METRICS.gauge(
    "queuey_lease_groups_oldest_seconds", "Age of the oldest message that one of these groups has not settled", ("app",)
)
REQUESTS_IN_PROGRESS = SERVER_METRICS.gauge("queuey_http_requests_in_progress", "Requests under way")
BYTES_IN_FLIGHT = SERVER_METRICS.gauge("queuey_http_in_flight_bytes", "Bytes of bodies and large answers in flight")
WAITERS = SERVER_METRICS.gauge("queuey_waiters", "Readers and receivers that wait for messages")
WATERMARK_AGE = SERVER_METRICS.gauge("queuey_watermark_age_seconds", "How far the watermark is behind the clock")
STORAGE_PROBLEMS = SERVER_METRICS.gauge("queuey_storage_problems", "Problems readiness reports")
STORAGE_WARNINGS = SERVER_METRICS.gauge("queuey_storage_warnings", "Warnings readiness reports")
CLOCK_SKEW = SERVER_METRICS.gauge(
    "queuey_clock_skew_seconds", "How far the clock may be off those of the store's nodes, or was set back"
)
DISK_FREE = SERVER_METRICS.gauge("queuey_disk_free_bytes", "Free disk for the embedded store")
DISK_RESERVE = SERVER_METRICS.gauge("queuey_disk_reserve_bytes", "Free disk below which appends are refused")
CERTIFICATE_EXPIRY = SERVER_METRICS.gauge(
    "queuey_certificate_expiry_timestamp_seconds", "When the server's certificate ends, seconds since 1970"
)
KEY_CREATED = SERVER_METRICS.gauge(
    "queuey_key_created_timestamp_seconds",
    "When the oldest key in force was made, seconds since 1970; keys of the ini file have no date",
    ("app",),
)
ISSUER_KEYS_AGE = SERVER_METRICS.gauge(
    "queuey_issuer_keys_age_seconds", "How long ago the public keys of an issuer were read", ("issuer",)
)
QUEUE_DEPTH = SERVER_METRICS.gauge(
    "queuey_queue_depth_messages", "Live messages of a queue that [metrics] queues names", ("app", "queue")
)
QUEUE_SCHEDULED = SERVER_METRICS.gauge(
    "queuey_queue_scheduled_messages", "Those of them that are not due yet", ("app", "queue")
)
QUEUE_BYTES = SERVER_METRICS.gauge("queuey_queue_size_bytes", "Bytes of their bodies", ("app", "queue"))
QUEUE_OLDEST = SERVER_METRICS.gauge("queuey_queue_oldest_seconds", "Age of the oldest of them", ("app", "queue"))
QUEUE_GROUP_OLDEST = SERVER_METRICS.gauge(
    "queuey_queue_group_oldest_seconds",
    "Age of the oldest message that a group of such a queue has not finished; kind is lease or offsets",
    ("app", "queue", "group", "kind"),
)
BUILD_INFO = SERVER_METRICS.gauge("queuey_build_info", "The version that runs", ("version", "backend"))

MAX_TRACEPARENT = 55
"""Characters that are kept of a request."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})


class LeasesCounted(NamedTuple):
    """What one step of lease groups did."""

    received: int
    expired: int
    """Of the received messages, those whose lease had run out."""
    dwell_seconds: float | None
    work_seconds: float | None
    stale: int
    settled: Mapping[str, int]
    """By action."""


class _StepFigures(NamedTuple):
    """The figures of the steps of one application."""

    received: list[float]
    expired: list[float]
    stale: list[float]
    dwell: list[float]
    work: list[float]
    settled: dict[str, list[float]]
    """By action."""


class LeaseMonitor:
    """Counts what a store does for lease groups. Thread-safe.

    It is the store's :class:`queuey.storage.observing.LeaseObserver`.
    """

    def __init__(self, counted: MetricSet) -> None:
        self._counted = counted

    def wrote_state(self, size: int) -> None:
        """A transaction writes changes of states."""
        self._counted.count(LEASE_STATE_BYTES, size)

    def wasted_ahead(self, messages: int) -> None:
        """Messages were read for receivers, and forgotten before they were handed out."""
        self._counted.count(LEASE_AHEAD_WASTED, messages)

    def compared_and_set(self, *, is_lost: bool) -> None:
        """The store tried a transaction of a lease group."""
        self._counted.count(LEASE_TRANSACTIONS, 1, "lost" if is_lost else "done")

    def handed_over(self, result: str) -> None:
        """The store handed a step of a lease group over to another server."""
        self._counted.count(LEASE_STEPS_HANDED_OVER, 1, result)

    def handed_twice(self, messages: int) -> None:
        """Messages of a weak group had two receivers."""
        self._counted.count(LEASE_DUPLICATES, messages)

    def picked_among(self, k: int) -> None:
        """K of a receive of a weak group."""
        self._counted.observe(LEASE_K, k)


class Monitor(MetricSet):
    """What one server counts. Thread-safe.

    It is the store's :class:`queuey.storage.observing.Observer`.
    """

    def __init__(self, backend: str) -> None:
        super().__init__(SERVER_METRICS)
        self.leases = LeaseMonitor(self)
        self._backend = backend
        self._requests: dict[tuple[str, str, int], tuple[list[float], Newest]] = {}
        """Figures of :data:`REQUEST_DURATION` and what exemplars are made of, with the status as it comes."""
        self.times_calls = False
        """Whether :attr:`seconds_here` is kept: the request log needs it."""
        self._here = threading.local()
        self._traffic: dict[Labels, tuple[list[float], list[float]]] = {}
        """Figures of messages appended (by application) or delivered (by application and way), and of their bytes."""
        self._steps: dict[str, _StepFigures] = {}
        """By application."""
        self.set(BUILD_INFO, 1, __version__, backend)

    def request(
        self, route: str, method: str, status: int, seconds: float, request_id: str = "", traceparent: str | None = None
    ) -> None:
        """One request was answered.

        :param traceparent: the request's own; it may be anything.
        """
        if traceparent is not None and len(traceparent) > MAX_TRACEPARENT:
            traceparent = None
        known = method if method in _METHODS else "other"
        figures, newest = self._requests.get((route, known, status)) or self._new_requests(route, known, status)
        bucket = bisect_left(_SECONDS, seconds)
        with self._lock:
            figures[bucket] += 1
            figures[-1] += seconds
            newest[bucket] = seconds, request_id, traceparent

    def answered(self) -> tuple[float, float, Sequence[float]]:
        """Requests and errors (5xx) since the start, and the requests by the buckets of their duration.

        The time for which a reader waits for messages does not count.
        """
        buckets, errors = [0.0] * (len(_SECONDS) + 1), 0.0
        with self._lock:
            for (_, _, status), figures in self._series[REQUEST_DURATION].items():
                for place, count in enumerate(figures[:-1]):
                    buckets[place] += count
                if status.startswith("5"):
                    errors += sum(figures[:-1])
        return sum(buckets), errors, buckets

    def refused(self, method: str, status: int) -> None:
        """One request found no room, and was answered before it was looked at."""
        known = method if method in _METHODS else "other"
        figures, _ = self._requests.get(("none", known, status)) or self._new_requests("none", known, status)
        with self._lock:
            self._figures(THROTTLED, ("in_flight",))[0] += 1
            figures[0] += 1

    def _new_requests(self, route: str, method: str, status: int) -> tuple[list[float], Newest]:
        labels = (route, method, str(status))
        with self._lock:
            both = self._figures(REQUEST_DURATION, labels), self._newest_of(REQUEST_DURATION, labels)
            self._requests[route, method, status] = both
        return both

    def took(self, operation: str, seconds: float) -> None:
        """The store did something."""
        self.observe(STORAGE_DURATION, seconds, self._backend, operation)
        if self.times_calls:
            self._here.seconds = self.seconds_here + seconds

    @property
    def seconds_here(self) -> float:
        """The time of the store's calls in this thread, while :attr:`times_calls`."""
        return getattr(self._here, "seconds", 0.0)

    def committed(self, messages: int, seconds: float) -> None:
        """The store put messages on disk together."""
        self.observe(COMMIT_BATCH, messages)
        self.took("commit", seconds)

    def commits_switched(self, to: str) -> None:
        """The event loop carries commits from now on, or the thread."""
        self.count(COMMIT_SWITCHES, 1, to)

    def failed(self, operation: str, code: str) -> None:
        """A call of the store failed."""
        self.count(STORAGE_ERRORS, 1, self._backend, operation, code)

    def restamped(self) -> None:
        """An append took too long, and is tried again."""
        self.count(APPENDS_RESTAMPED, 1)

    def stepped(self, application: str, counted: LeasesCounted) -> None:
        """A step of lease groups was done."""
        received, expired, dwell_seconds, work_seconds, stale, settled = counted
        figures = self._steps.get(application) or self._new_steps(application)
        with self._lock:  # once for all of them
            figures.received[0] += received
            if dwell_seconds is not None:
                LEASE_DWELL.add(figures.dwell, dwell_seconds)
            if work_seconds is not None:
                LEASE_WORK.add(figures.work, work_seconds)
            if expired or stale:
                figures.expired[0] += expired
                figures.stale[0] += stale
            for action, number in settled.items():
                if action not in figures.settled:
                    figures.settled[action] = self._figures(LEASES_SETTLED, (application, action))
                figures.settled[action][0] += number

    def _new_steps(self, application: str) -> _StepFigures:
        labels = (application,)
        with self._lock:
            found = self._steps[application] = _StepFigures(
                self._figures(MESSAGES_RECEIVED, labels),
                self._figures(LEASES_EXPIRED, labels),
                self._figures(LEASES_STALE, labels),
                self._figures(LEASE_DWELL, labels),
                self._figures(LEASE_WORK, labels),
                {},
            )
        return found

    def appended(self, application: str, messages: int, size: int) -> None:
        """Messages were acknowledged."""
        labels = (application,)
        both = self._traffic.get(labels) or self._new_traffic(MESSAGES_APPENDED, labels, "in")
        with self._lock:
            both[0][0] += messages
            both[1][0] += size

    def delivered(self, application: str, way: str, messages: int, size: int) -> None:
        """Messages were handed to a reader."""
        labels = (application, way)
        both = self._traffic.get(labels) or self._new_traffic(MESSAGES_DELIVERED, labels, "out")
        with self._lock:
            both[0][0] += messages
            both[1][0] += size

    def _new_traffic(self, counter: Counter, labels: Labels, direction: str) -> tuple[list[float], list[float]]:
        with self._lock:
            both = self._figures(counter, labels), self._figures(MESSAGE_BYTES, (labels[0], direction))
            self._traffic[labels] = both
        return both
