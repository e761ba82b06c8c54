"""A worker's figures in Prometheus' text format, at an address of their own.

The values of labels are bounded: a label is never a queue, a partition or an id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from queuey.clock import SystemClock
from queuey.errors import ConfigurationError
from queuey.ids import TICKS_PER_SECOND

if TYPE_CHECKING:
    from qdo.groups.coordination import Coordinator
    from qdo.worker import Worker

__all__ = ["WorkerFigures", "WorkerMetrics", "figures_of", "serve_metrics"]

_JOB_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0)


@dataclass(frozen=True)
class WorkerFigures:
    """How a worker is doing at one moment."""

    done: int = 0
    failed: int = 0
    dead: int = 0
    commits: int = 0
    refused: int = 0
    rebalances: int = 0
    owned: int = 0
    prefetched: int = 0
    lag_seconds: Sequence[float] = ()
    """Of each partition that it owns."""
    connected: bool = False


def figures_of(worker: Worker, coordinator: Coordinator) -> WorkerFigures:
    """The figures as they are now; sends no request."""
    counts, waiting, now = worker.counts, worker.waiting(), SystemClock().now_ticks()
    return WorkerFigures(
        counts.done,
        counts.failed,
        counts.dead,
        counts.commits,
        counts.refused,
        worker.group.rebalances,
        len(worker.group.held),
        sum(messages for messages, _ in waiting),
        [0.0 if first is None else max(now - first.ticks, 0) / TICKS_PER_SECOND for _, first in waiting],
        coordinator.trusted(),
    )


class WorkerMetrics:
    """All metrics of a worker; docs/metrics names each."""

    def __init__(self, figures: Callable[[], WorkerFigures]) -> None:
        self._figures = figures
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)
        self._durations = Histogram(
            "qdo_job_duration_seconds",
            "From a job's call to its return, whether it failed or not",
            registry=self.registry,
            buckets=_JOB_SECONDS,
        )

    def took(self, seconds: float) -> None:
        """A job has returned or failed."""
        self._durations.observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """Metrics that are read from the worker instead of counted here."""
        now = self._figures()
        jobs = CounterMetricFamily(
            "qdo_jobs",
            "Messages that are done, attempts that failed, messages given up (dead letters)",
            labels=("result",),
        )
        for result in ("done", "failed", "dead"):
            jobs.add_metric([result], getattr(now, result))
        yield jobs
        for name, said, count in (
            ("qdo_commits", "Commits; each records the offsets of all partitions that moved", now.commits),
            ("qdo_commits_refused", "Partitions whose commit came too late: another worker owns them", now.refused),
            ("qdo_rebalances", "How often the set of owned partitions has changed", now.rebalances),
        ):
            yield CounterMetricFamily(name, said, value=count)
        for name, said, value in (
            ("qdo_partitions_owned", "Partitions that this worker owns", now.owned),
            ("qdo_prefetched_messages", "Messages fetched and not finished", now.prefetched),
            ("qdo_coordinator_connected", "1 while it is certain that the group knows this worker", now.connected),
        ):
            yield GaugeMetricFamily(name, said, value=float(value))
        lag = GaugeMetricFamily(
            "qdo_lag_seconds",
            "Age of the first unfinished message, over the owned partitions; 0 where none is fetched",
            labels=("stat",),
        )
        lag.add_metric(["sum"], sum(now.lag_seconds))
        lag.add_metric(["max"], max(now.lag_seconds, default=0.0))
        yield lag


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
        server, _ = start_http_server(int(port), host, metrics.registry)
    except OSError as error:
        raise ConfigurationError(f"metrics at {address}: {error.strerror or error}") from error
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{server.server_port}/metrics"
