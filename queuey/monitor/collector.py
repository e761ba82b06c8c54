"""Sends spans and metrics to a collector, with the SDK of OpenTelemetry.

Everything but the address is as the SDK's own variables say: OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER,
OTEL_EXPORTER_OTLP_HEADERS and so on.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context, set_tracer_provider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from queuey._version import __version__
from queuey.background import BackgroundWork
from queuey.monitor.declared import Counter, Histogram, Labels, Metric, MetricSet

__all__ = ["Collector"]

_W3C = TraceContextTextMapPropagator()
METRIC_SECONDS = 60.0
"""Between two reports, where OTEL_METRIC_EXPORT_INTERVAL names no other time."""
CLOSE_SECONDS = 5.0
"""For what is left when a program ends. A collector that is away keeps no program from ending."""
_UNITS = {"seconds": "s", "bytes": "By"}
"""Of metrics, by the last words of their names."""


class Collector:
    """See :class:`queuey.monitor.telemetry.Telemetry`."""

    def __init__(
        self,
        endpoint: str,
        name: str,
        *,
        spans: SpanExporter | None = None,
        metrics: sdk.MetricExporter | None = None,
    ) -> None:
        """:param endpoint: as of :func:`queuey.monitor.telemetry.open_telemetry`.
        :param spans: where spans go in its place.
        :param metrics: where metrics go in its place.
        """
        root = endpoint.rstrip("/")
        is_named = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get(
            "OTEL_RESOURCE_ATTRIBUTES", ""
        )
        named = {} if is_named else {"service.name": name}
        self._resource = Resource.create({"service.version": __version__, **named})
        self._provider = TracerProvider(resource=self._resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(spans or OTLPSpanExporter(f"{root}/v1/traces")))
        self._tracer = self._provider.get_tracer("queuey", __version__)
        self._metrics = metrics or OTLPMetricExporter(f"{root}/v1/metrics")
        self._reports: list[_Reports] = []

    def call_span(self, name: str, headers: Mapping[str, str], attributes: Mapping[str, str]) -> _CallSpan:
        """See :class:`queuey.monitor.telemetry.Telemetry`."""
        parent = _W3C.extract(headers)
        return _CallSpan(
            self._tracer.start_span(name, context=parent, kind=SpanKind.SERVER, attributes=dict(attributes))
        )

    def use_everywhere(self) -> None:
        """See :class:`queuey.monitor.telemetry.Telemetry`."""
        set_tracer_provider(self._provider)

    def report(self, look: Callable[[], MetricSet]) -> None:
        """See :class:`queuey.monitor.telemetry.Telemetry`."""
        reports = _Reports(look, self._metrics, self._resource)
        self._reports.append(reports)
        reports.wake()
        reports.start()

    def close(self) -> None:
        """See :class:`queuey.monitor.telemetry.Telemetry`."""
        ending = threading.Thread(target=self._end, name="telemetry ends", daemon=True)
        ending.start()
        ending.join(CLOSE_SECONDS)

    def _end(self) -> None:
        self._provider.shutdown()  # sends what is left
        for reports in self._reports:
            reports.stop()
            reports.send()
        self._metrics.shutdown()


class _CallSpan:
    """See :class:`queuey.monitor.telemetry.CallSpan`."""

    def __init__(self, span: Span) -> None:
        self._span = span

    @property
    def carried(self) -> Mapping[str, str]:
        found: dict[str, str] = {}
        if self._span.get_span_context().trace_flags.sampled:
            _W3C.inject(found, set_span_in_context(self._span))
        return found

    def end(self, status: int) -> None:
        self._span.set_attribute("http.response.status_code", status)
        if status >= 500:
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()


class _Reports(BackgroundWork):
    """Sends the figures of one program."""

    def __init__(self, look: Callable[[], MetricSet], exporter: sdk.MetricExporter, resource: Resource) -> None:
        given = os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", "")
        milliseconds = int(given) if given.isdecimal() else 0
        super().__init__("telemetry", milliseconds / 1000 or METRIC_SECONDS)
        self._look, self._exporter, self._resource = look, exporter, resource
        self._scope = InstrumentationScope("queuey", __version__)
        self._began = time.time_ns()

    async def turn(self) -> None:
        """Send all figures. Another turn follows."""
        self.wake()
        self.send()

    def send(self) -> None:
        """Send all figures now."""
        now = time.time_ns()
        metrics = [
            sdk.Metric(metric.name, metric.help, _unit(metric), _data(metric, series, self._began, now))
            for metric, series in self._look().figures()
            if series
        ]
        scope = sdk.ScopeMetrics(self._scope, metrics, "")
        self._exporter.export(sdk.MetricsData([sdk.ResourceMetrics(self._resource, [scope], "")]))


def _unit(metric: Metric) -> str:
    return _UNITS.get(metric.name.rpartition("_")[2], "1")


def _data(metric: Metric, series: Mapping[Labels, list[float]], began: int, now: int) -> sdk.DataT:
    """The SDK's form of all series of a metric."""
    if isinstance(metric, Histogram):
        return sdk.Histogram(
            [
                sdk.HistogramDataPoint(
                    dict(zip(metric.labels, labels, strict=True)),
                    began,
                    now,
                    count=int(sum(figures[:-1])),
                    sum=figures[-1],
                    bucket_counts=[int(count) for count in figures[:-1]],
                    explicit_bounds=metric.buckets,
                    min=float("nan"),
                    max=float("nan"),
                )
                for labels, figures in series.items()
            ],
            sdk.AggregationTemporality.CUMULATIVE,
        )
    points = [*_points(metric, series, began, now)]
    if isinstance(metric, Counter):
        return sdk.Sum(points, sdk.AggregationTemporality.CUMULATIVE, is_monotonic=True)
    return sdk.Gauge(points)


def _points(
    metric: Metric, series: Mapping[Labels, list[float]], began: int, now: int
) -> Iterator[sdk.NumberDataPoint]:
    for labels, (value,) in series.items():
        yield sdk.NumberDataPoint(dict(zip(metric.labels, labels, strict=True)), began, now, float(value))
