"""Metrics as objects: each is declared once.

The server's metrics are declared in :mod:`queuey.monitor.metrics`, a worker's in :mod:`qdo.worker.metrics`. Both count in
a :class:`MetricSet`; :mod:`queuey.monitor.exposition` is their one way into Prometheus' text form.

Figures stay in plain lists, and take the library's form only when somebody reads them: the
library's own counters took a fifth of an append's time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from queuey.locks import new_lock
from queuey.model.trace_context import trace_id

__all__ = ["Counter", "Declarations", "Exemplar", "Gauge", "Histogram", "Labels", "Metric", "MetricSet"]

M = TypeVar("M", bound="Metric")
Labels = tuple[str, ...]
"""The values of a metric's labels, in the order of its declaration. Few of each: never a queue, a user or an id."""


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """What every metric has.

    Two metrics are never equal, so finding the values of one compares no texts.
    """

    name: str
    """As the library takes it: a counter's without ``_total``."""
    help: str
    labels: tuple[str, ...] = ()

    @property
    def exposed(self) -> str:
        """Its name on ``/metrics``."""
        return self.name

    def zero(self) -> list[float]:
        """The figures of one series, before anything is counted."""
        return [0.0]


@dataclass(frozen=True, slots=True, eq=False)
class Counter(Metric):
    """A sum that only grows."""

    @property
    def exposed(self) -> str:
        return f"{self.name}_total"


@dataclass(frozen=True, slots=True, eq=False)
class Gauge(Metric):
    """A value that goes up and down."""


@dataclass(frozen=True, slots=True, eq=False)
class Histogram(Metric):
    """Values by the first of its buckets that they do not exceed, and their sum."""

    buckets: tuple[float, ...] = ()
    """Upper bounds, ascending; one more, without a bound, follows by itself."""

    def zero(self) -> list[float]:
        return [0.0] * (len(self.buckets) + 2)

    def add(self, figures: list[float], value: float) -> None:
        """Note a value in the figures of a series; the caller holds the lock."""
        figures[bisect_left(self.buckets, value)] += 1
        figures[-1] += value


MAX_EXEMPLAR = 128
"""Characters of names and values of an exemplar, by OpenMetrics."""


class Exemplar(NamedTuple):
    """The newest value of a bucket, and what tells more of it."""

    value: float
    request_id: str = ""
    """As the log has it."""
    traceparent: str | None = None
    """See :mod:`queuey.model.trace_context`."""

    @property
    def labels(self) -> dict[str, str]:
        """Which trace and which request it was, as far as there is room for it; empty if nothing tells more."""
        trace = trace_id(self.traceparent)
        found = {} if trace is None else {"trace_id": trace}
        room = MAX_EXEMPLAR - sum([len(name) + len(value) for name, value in found.items()]) - len("request_id")
        return {**found, "request_id": self.request_id} if 0 < len(self.request_id) <= room else found


Newest = list[tuple[float, str, str | None] | None]
"""The fields of an :class:`Exemplar` for each bucket; None of one without any. A plain tuple takes a tenth of the time."""


@dataclass(frozen=True, slots=True)
class Declarations:
    """The metrics of one program, in the order of the docs."""

    metrics: list[Metric] = field(default_factory=list)

    def counter(self, name: str, help: str, labels: tuple[str, ...] = ()) -> Counter:  # noqa: A002  the library's word
        """Declare a counter; ``name`` without ``_total``."""
        return self._add(Counter(name, help, labels))

    def gauge(self, name: str, help: str, labels: tuple[str, ...] = ()) -> Gauge:  # noqa: A002
        """Declare a gauge."""
        return self._add(Gauge(name, help, labels))

    def histogram(
        self,
        name: str,
        help: str,  # noqa: A002
        labels: tuple[str, ...] = (),
        *,
        buckets: tuple[float, ...],
    ) -> Histogram:
        """Declare a histogram."""
        return self._add(Histogram(name, help, labels, buckets))

    def _add(self, metric: M) -> M:
        self.metrics.append(metric)
        return metric


class MetricSet:
    """The values of declared metrics. Thread-safe."""

    def __init__(self, declared: Declarations) -> None:
        self._lock = new_lock()
        self._series: dict[Metric, dict[Labels, list[float]]] = {metric: {} for metric in declared.metrics}
        self._by_first: dict[Metric, dict[str, list[tuple[Labels, list[float]]]]] = {
            metric: {} for metric in declared.metrics
        }
        """The series of each metric, by the value of its first label."""
        self._asked: dict[Gauge, Callable[[], float]] = {}
        self._newest: dict[tuple[Histogram, Labels], Newest] = {}
        """What exemplars are made of, of the series that have any."""

    def count(self, counter: Counter, amount: int, *labels: str) -> None:
        """Add to a counter.

        :raises KeyError: the counter is not one of this program's declarations.
        """
        with self._lock:
            self._figures(counter, labels)[0] += amount

    def observe(self, histogram: Histogram, value: float, *labels: str, traceparent: str | None = None) -> None:
        """Note a value in a histogram.

        :param traceparent: of the trace that the value is of.
        :raises KeyError: as :meth:`count`.
        """
        with self._lock:
            histogram.add(self._figures(histogram, labels), value)
            if traceparent is not None:
                newest = self._newest_of(histogram, labels)
                newest[bisect_left(histogram.buckets, value)] = value, "", traceparent

    def exemplars(self, histogram: Histogram, labels: Labels) -> Mapping[int, Exemplar]:
        """The newest values of a series of which more is known, by the numbers of their buckets."""
        newest = self._newest.get((histogram, labels), ())
        found = {bucket: Exemplar(*one) for bucket, one in enumerate(list(newest)) if one is not None}
        return {bucket: one for bucket, one in found.items() if one.labels}

    def _newest_of(self, histogram: Histogram, labels: Labels) -> Newest:
        """What the exemplars of a series are made of; the caller holds the lock."""
        return self._newest.setdefault((histogram, labels), [None] * (len(histogram.buckets) + 1))

    def set(self, metric: Gauge | Counter, value: float, *labels: str) -> None:
        """Set a gauge, or a counter that is counted elsewhere.

        :raises KeyError: as :meth:`count`.
        """
        with self._lock:
            self._figures(metric, labels)[0] = value

    def replace(self, gauge: Gauge, values: Mapping[Labels, float]) -> None:
        """Let a gauge have these series and no others.

        :raises KeyError: as :meth:`count`.
        """
        with self._lock:
            self._series[gauge] = {labels: [value] for labels, value in values.items()}
            by_first = self._by_first[gauge] = {}
            for labels, figures in self._series[gauge].items():
                if labels:
                    by_first.setdefault(labels[0], []).append((labels, figures))

    def ask(self, gauge: Gauge, value: Callable[[], float]) -> None:
        """Ask this function whenever the value of a gauge without labels is wanted."""
        self._asked[gauge] = value

    def value(self, metric: Gauge | Counter, *labels: str) -> float:
        """What a gauge or a counter has now; 0 if it never had a value."""
        if isinstance(metric, Gauge) and metric in self._asked:
            return self._asked[metric]()
        with self._lock:
            return self._series[metric].get(labels, [0.0])[0]

    def total(self, counter: Counter, first: str = "", second: str = "") -> float:
        """The sum of all series of a counter.

        :param first: only those with this value of the first label; they are found without looking at the others.
        :param second: only those with this value of the second label.
        """
        with self._lock:
            found = self._by_first[counter].get(first, ()) if first else self._series[counter].items()
            series = list(found)  # the sum is made without the lock: an append must not wait for it
        return sum([figures[0] for labels, figures in series if not second or labels[1] == second])

    def figures(self) -> Sequence[tuple[Metric, Mapping[Labels, list[float]]]]:
        """A copy of all that was counted, by metric and labels."""
        for gauge, value in self._asked.items():
            self.set(gauge, value())
        with self._lock:
            return [
                (metric, {labels: list(figures) for labels, figures in series.items()})
                for metric, series in self._series.items()
            ]

    def _figures(self, metric: Metric, labels: Labels) -> list[float]:
        """The figures of a series, made if it is new; the caller holds the lock."""
        series = self._series[metric]
        figures = series.get(labels)
        if figures is None:
            figures = series[labels] = metric.zero()
            if labels:
                self._by_first[metric].setdefault(labels[0], []).append((labels, figures))
        return figures
