"""Prometheus' form of what was counted.

The library takes 3 MiB of memory and a tenth of a second to load. So a server loads this module when somebody reads its
metrics for the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar as Shown

from queuey.monitor.declared import Counter, Exemplar, Histogram, Labels, Metric, MetricSet

__all__ = ["registry_of", "text_of"]


def text_of(metrics: MetricSet, *, openmetrics: bool = False) -> bytes:
    """The text form of all that was counted, and of what the system knows of the process.

    :param openmetrics: as OpenMetrics, which has exemplars, and not as Prometheus' own form.
    """
    registry = registry_of(metrics)
    ProcessCollector(registry=registry)
    make: Callable[[CollectorRegistry], bytes] = generate_openmetrics if openmetrics else generate_latest
    return make(registry)


def registry_of(metrics: MetricSet) -> CollectorRegistry:
    """A registry from which the library reads what was counted, whenever it is asked."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(metrics))
    return registry


class _Families(Collector):
    def __init__(self, metrics: MetricSet) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Family]:
        for metric, series in self._metrics.figures():
            yield self._family(metric, series)

    def _family(self, metric: Metric, series: Mapping[Labels, list[float]]) -> Family:
        """The library's form of all series of a metric."""
        if isinstance(metric, Histogram):
            histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
            for labels, figures in series.items():
                exemplars = self._metrics.exemplars(metric, labels)
                histogram.add_metric(labels, _cumulated(metric, figures, exemplars), figures[-1])
            return histogram
        kind = CounterMetricFamily if isinstance(metric, Counter) else GaugeMetricFamily
        family = kind(metric.name, metric.help, labels=metric.labels)
        for labels, (value,) in series.items():
            family.add_metric(labels, value)
        return family


def _cumulated(
    histogram: Histogram, figures: list[float], exemplars: Mapping[int, Exemplar]
) -> list[tuple[str, float] | tuple[str, float, Shown]]:
    """The library counts, at each bound, all that was not above it."""
    found: list[tuple[str, float] | tuple[str, float, Shown]] = []
    total = 0.0
    for bucket, bound in enumerate((*map(str, histogram.buckets), "+Inf")):
        total += figures[bucket]
        one = exemplars.get(bucket)
        found.append((bound, total) if one is None else (bound, total, Shown(one.labels, one.value)))
    return found
