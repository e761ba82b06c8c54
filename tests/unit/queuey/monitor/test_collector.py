"""Spans and metrics as the SDK of OpenTelemetry has them, without a network."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from queuey.errors import ConfigurationError
from queuey.model.trace_context import trace_context, trace_id
from queuey.monitor.collector import Collector
from queuey.monitor.metrics import Monitor
from queuey.monitor.telemetry import open_telemetry

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Kept(sdk.MetricExporter):
    """Keeps what it is to send."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[sdk.MetricsData] = []

    def export(self, metrics_data: sdk.MetricsData, timeout_millis: float = 0, **_: Any) -> sdk.MetricExportResult:
        self.sent.append(metrics_data)
        return sdk.MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 0) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 0, **_: Any) -> None:
        """It has nothing to let go of."""


def collector() -> tuple[Collector, InMemorySpanExporter, Kept]:
    spans, metrics = InMemorySpanExporter(), Kept()
    return Collector("http://127.0.0.1:9", "queuey", spans=spans, metrics=metrics), spans, metrics


def test_a_span_of_a_call_is_a_child_of_its_client_and_the_parent_of_what_it_stores() -> None:
    made, spans, _ = collector()

    span = made.call_span("POST queue", {"traceparent": f"00-{TRACE}-{SPAN}-01"}, {"http.request.method": "POST"})
    carried = dict(span.carried)
    span.end(503)
    made.close()

    (told,) = spans.get_finished_spans()
    assert told.parent is not None
    assert (f"{told.context.trace_id:032x}", f"{told.parent.span_id:016x}") == (TRACE, SPAN)
    assert carried == {"traceparent": f"00-{TRACE}-{told.context.span_id:016x}-01"}
    assert (told.kind, told.status.status_code, told.name) == (SpanKind.SERVER, StatusCode.ERROR, "POST queue")
    assert told.attributes == {"http.request.method": "POST", "http.response.status_code": 503}
    assert told.resource.attributes["service.name"] == "queuey"


def test_what_is_not_recorded_is_not_carried() -> None:
    made, spans, _ = collector()

    span = made.call_span("POST queue", {"traceparent": f"00-{TRACE}-{SPAN}-00"}, {})
    assert span.carried == {}
    span.end(201)
    made.close()

    assert spans.get_finished_spans() == ()


def test_metrics_have_their_kinds_labels_and_units() -> None:
    made, _, metrics = collector()
    monitor = Monitor("memory")
    monitor.appended("demo", 3, 30)
    monitor.request("queue", "POST", 201, 0.003)

    made.report(lambda: monitor)
    made.close()

    found = {one.name: one for one in metrics.sent[-1].resource_metrics[0].scope_metrics[0].metrics}
    appended, duration = found["queuey_messages_appended"], found["queuey_http_request_duration_seconds"]
    assert isinstance(appended.data, sdk.Sum)
    assert appended.data.is_monotonic
    assert [(one.attributes, one.value) for one in appended.data.data_points] == [({"app": "demo"}, 3)]
    assert isinstance(duration.data, sdk.Histogram)
    (point,) = duration.data.data_points
    assert (point.count, point.sum, sum(point.bucket_counts)) == (1, 0.003, 1)
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    assert (duration.unit, appended.unit, found["queuey_message_bytes"].unit) == ("s", "1", "By")
    assert isinstance(found["queuey_build_info"].data, sdk.Gauge)


def test_the_service_has_the_name_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "billing-queues")
    made, spans, _ = collector()
    made.call_span("GET queue", {}, {}).end(200)
    made.close()

    assert spans.get_finished_spans()[0].resource.attributes["service.name"] == "billing-queues"


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "queuey.monitor.collector", None)

    with pytest.raises(ConfigurationError, match=r"pip install '/path/to/queuey\[telemetry\]'"):
        open_telemetry("http://127.0.0.1:4318", "queuey")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mine",
        f"00-{TRACE}-{SPAN}",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE}-{SPAN}-01-more",
    ],
)
def test_what_names_no_trace_is_none(text: str) -> None:
    assert trace_id(text) is None
    assert trace_context({"traceparent": text, "tracestate": "a=1"}) == {}


def test_a_long_or_strange_tracestate_is_left_out() -> None:
    parent = f"00-{TRACE}-{SPAN}-01"
    for state in ("", "a" * 513, "a=\u00e9", "a=\t"):
        assert trace_context({"traceparent": parent, "tracestate": state}) == {"traceparent": parent}


@pytest.mark.parametrize(("given", "seconds"), [("1500", 1.5), ("0", 60), ("", 60), ("often", 60)])
def test_reports_rest_between_each_other(monkeypatch: pytest.MonkeyPatch, given: str, seconds: float) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", given)
    made, _, _ = collector()

    made.report(lambda: Monitor("memory"))
    (reports,) = made._reports
    made.close()

    assert reports._rest_seconds == seconds
