"""A worker's figures in Prometheus' text format, at an address of their own.

The values of labels are bounded: a label is never a queue, a partition or an id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from prometheus_client import start_http_server

from qdo.client.tracing import current_trace
from qdo.worker.work import WorkerFigures
from queuey.errors import ConfigurationError
from queuey.model.trace_context import TRACEPARENT
from queuey.monitor.declared import Declarations, Labels, Metric, MetricSet
from queuey.monitor.exposition import registry_of

__all__ = ["WORKER_METRICS", "WorkerMetrics", "serve_metrics"]

WORKER_METRICS = Declarations()

JOB_DURATION = WORKER_METRICS.histogram(
    "qdo_job_duration_seconds",
    "From a job's call to its return, whether it failed or not",
    buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0),
)
JOBS = WORKER_METRICS.counter(
    "qdo_jobs", "Messages that are done, attempts that failed, messages given up (dead letters)", ("result",)
)
COMMITS = WORKER_METRICS.counter("qdo_commits", "Commits; each records the offsets of all partitions that moved")
COMMITS_REFUSED = WORKER_METRICS.counter(
    "qdo_commits_refused", "Partitions whose commit came too late: another worker owns them"
)
LEASES_LOST = WORKER_METRICS.counter(
    "qdo_leases_lost", "Leases that ended before their messages were settled: somebody else does these messages"
)
REBALANCES = WORKER_METRICS.counter("qdo_rebalances", "How often the set of owned partitions has changed")
PARTITIONS_OWNED = WORKER_METRICS.gauge("qdo_partitions_owned", "Partitions that this worker owns")
PREFETCHED = WORKER_METRICS.gauge("qdo_prefetched_messages", "Messages fetched and not finished")
CONNECTED = WORKER_METRICS.gauge("qdo_coordinator_connected", "1 while it is certain that the group knows this worker")
LAG = WORKER_METRICS.gauge(
    "qdo_lag_seconds",
    "Age of the first unfinished message, over the owned partitions; 0 where none is fetched",
    ("stat",),
)


class WorkerMetrics(MetricSet):
    """What one worker counts. docs/metrics.md names each metric."""

    def __init__(self, figures: Callable[[], WorkerFigures]) -> None:
        super().__init__(WORKER_METRICS)
        self._now = figures

    def took(self, seconds: float) -> None:
        """A job has returned or failed."""
        self.observe(JOB_DURATION, seconds, traceparent=current_trace().get(TRACEPARENT))

    def figures(self) -> Sequence[tuple[Metric, Mapping[Labels, list[float]]]]:
        """Read everything but the durations of jobs from the worker, which counts it."""
        now = self._now()
        counts = now.counts
        for result, count in (("done", counts.done), ("failed", counts.failed), ("dead", counts.dead)):
            self.set(JOBS, count, result)
        self.set(COMMITS, counts.commits)
        self.set(COMMITS_REFUSED, counts.refused)
        self.set(LEASES_LOST, counts.lost)
        self.set(REBALANCES, now.rebalances)
        self.set(PARTITIONS_OWNED, now.owned)
        self.set(PREFETCHED, now.prefetched)
        self.set(CONNECTED, now.connected)
        self.set(LAG, sum(now.lag_seconds), "sum")
        self.set(LAG, max(now.lag_seconds, default=0.0), "max")
        return super().figures()


def serve_metrics(metrics: WorkerMetrics, address: str) -> str:
    """Answer at ``HOST:PORT`` from a thread. Port 0 takes a free port.

    :returns: the URL.
    :raises ConfigurationError: the address does not exist, or another program has it.

    >>> serve_metrics(WorkerMetrics(WorkerFigures), "here")
    Traceback (most recent call last):
    queuey.errors.ConfigurationError: metrics at 'here': expected HOST:PORT, such as 127.0.0.1:9110
    """
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise ConfigurationError(f"metrics at {address!r}: expected HOST:PORT, such as 127.0.0.1:9110")
    try:
        server, _ = start_http_server(int(port), host, registry_of(metrics))
    except OSError as error:
        raise ConfigurationError(f"metrics at {address}: {error.strerror or error}") from error
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{server.server_port}/metrics"
