"""Metrics as objects: what is declared is what can be counted, and what Prometheus reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from qdo.worker.metrics import WORKER_METRICS
from queuey.monitor.declared import Counter, Declarations, Histogram, Metric, MetricSet
from queuey.monitor.exposition import registry_of, text_of
from queuey.monitor.metrics import (
    MESSAGES_APPENDED,
    MESSAGES_DELIVERED,
    REQUEST_DURATION,
    REQUESTS_IN_PROGRESS,
    SERVER_METRICS,
    STORAGE_DURATION,
    WATERMARK_AGE,
    Monitor,
)
from tests.support.openmetrics import families_of


@pytest.mark.parametrize("declarations", [SERVER_METRICS, WORKER_METRICS])
def test_every_declared_metric_is_exposed_under_its_name_before_it_has_a_value(declarations: Declarations) -> None:
    told = list(text_string_to_metric_families(text_of(MetricSet(declarations)).decode()))

    ours = [one for one in told if not one.name.startswith("process_")]
    assert [(family.name, family.documentation) for family in ours] == [
        (metric.name, metric.help) for metric in declarations.metrics
    ]
    assert {"process_cpu_seconds", "process_resident_memory_bytes", "process_open_fds"} <= {one.name for one in told}


@pytest.mark.parametrize("metric", [*SERVER_METRICS.metrics, *WORKER_METRICS.metrics], ids=lambda one: one.name)
def test_names_follow_the_convention(metric: Metric) -> None:
    """A unit is the last word and a base unit; only the exposition of a counter ends in ``_total``."""
    words = metric.name.split("_")
    assert words[0] in ("queuey", "qdo")
    assert not {"ms", "milliseconds", "minutes", "hours", "days", "kb", "mb", "mib", "percent", "total"} & set(words)
    units = {"seconds", "bytes", "messages"} & set(words)
    if isinstance(metric, Histogram) and metric.name != "queuey_lease_k":
        assert words[-1] in units
    assert metric.exposed.endswith("_total") == isinstance(metric, Counter)


def test_a_gauge_takes_exactly_the_series_it_is_given() -> None:
    declarations = Declarations()
    gauge = declarations.gauge("queuey_x", "Some", ("app",))
    metrics = MetricSet(declarations)

    metrics.replace(gauge, {("a",): 1.0, ("b",): 2.0})
    metrics.replace(gauge, {("b",): 3.0, ("c",): 4.0})

    assert [metrics.value(gauge, name) for name in "abc"] == [0, 3, 4]
    ((_, series),) = metrics.figures()
    assert series.keys() == {("b",), ("c",)}


def test_no_name_is_declared_twice() -> None:
    names = [metric.exposed for metric in (*SERVER_METRICS.metrics, *WORKER_METRICS.metrics)]

    assert len(set(names)) == len(names)


def test_a_metric_of_another_program_is_not_counted() -> None:
    with pytest.raises(KeyError):
        Monitor("memory").count(Counter("queuey_messages_appended", "Not the one that is declared"), 1)


def test_counters_add_up_by_their_labels() -> None:
    monitor = Monitor("memory")

    monitor.appended("a", 2, 10)
    monitor.appended("a", 3, 10)
    monitor.count(MESSAGES_APPENDED, 1, "b")

    assert [monitor.value(MESSAGES_APPENDED, app) for app in "abc"] == [5, 1, 0]
    assert b'queuey_messages_appended_total{app="a"} 5.0' in text_of(monitor)
    assert b'queuey_message_bytes_total{app="a",direction="in"} 20.0' in text_of(monitor)


def test_a_gauge_is_set_or_asked_for() -> None:
    monitor = Monitor("memory")

    monitor.set(WATERMARK_AGE, 0.5)
    monitor.ask(REQUESTS_IN_PROGRESS, lambda: 7)

    assert (monitor.value(WATERMARK_AGE), monitor.value(REQUESTS_IN_PROGRESS)) == (0.5, 7)
    assert b"queuey_watermark_age_seconds 0.5" in text_of(monitor)
    assert b"queuey_http_requests_in_progress 7.0" in text_of(monitor)


def shown_exemplars(monitor: Monitor) -> dict[str, tuple[dict[str, str], float]]:
    """Those of the durations of requests, by the bounds of their buckets."""
    families = list(families_of(text_of(monitor, openmetrics=True).decode()))
    return {
        sample.labels["le"]: (dict(sample.exemplar.labels), sample.exemplar.value)
        for family in families
        for sample in family.samples
        if sample.exemplar is not None and family.name == "queuey_http_request_duration_seconds"
    }


def test_the_newest_request_of_a_bucket_is_its_exemplar() -> None:
    monitor, trace = Monitor("memory"), "4bf92f3577b34da6a3ce929d0e0e4736"
    monitor.request("queue", "POST", 201, 0.0011, "first")
    monitor.request("queue", "POST", 201, 0.0012, "second", f"00-{trace}-00f067aa0ba902b7-01")
    monitor.request("queue", "POST", 201, 99.0, 'with "quotes"', "no trace")
    monitor.request("queue", "POST", 201, 0.03, "x" * 128, f"00-{trace}-00f067aa0ba902b7-01")
    monitor.request("queue", "POST", 201, 0.3, "x" * 128)

    assert shown_exemplars(monitor) == {
        "0.002": ({"request_id": "second", "trace_id": trace}, 0.0012),
        "0.05": ({"trace_id": trace}, 0.03),
        "+Inf": ({"request_id": 'with "quotes"'}, 99.0),
    }
    assert b"request_id" not in text_of(monitor)


def test_what_a_client_sends_as_its_trace_is_kept_only_if_it_is_short() -> None:
    monitor = Monitor("memory")
    monitor.request("queue", "POST", 201, 0.0011, "one", "x" * 16_000)

    (exemplar,) = monitor.exemplars(REQUEST_DURATION, ("queue", "POST", "201")).values()
    assert exemplar.traceparent is None


@pytest.mark.parametrize("declarations", [SERVER_METRICS, WORKER_METRICS])
def test_every_declared_metric_is_one_of_openmetrics(declarations: Declarations) -> None:
    text = text_of(MetricSet(declarations), openmetrics=True).decode()

    names = [one.name for one in families_of(text)]
    assert {metric.name for metric in declarations.metrics} <= {*names}
    assert text.endswith("# EOF\n")


@given(st.lists(st.floats(0, 20)))
def test_a_histogram_counts_at_each_bound_what_is_not_above_it(seconds: list[float]) -> None:
    monitor = Monitor("memory")
    for value in seconds:
        monitor.took("read", value)

    def sample(name: str, **labels: str) -> float | None:
        return registry_of(monitor).get_sample_value(name, {"backend": "memory", "op": "read", **labels})

    for bound in STORAGE_DURATION.buckets:
        found = sample("queuey_storage_duration_seconds_bucket", le=str(bound))
        assert (found or 0) == sum(value <= bound for value in seconds)
    assert (sample("queuey_storage_duration_seconds_count") or 0) == len(seconds)
    assert (sample("queuey_storage_duration_seconds_sum") or 0) == pytest.approx(sum(seconds))


def test_a_total_is_of_all_series_or_of_those_that_begin_with_a_label() -> None:
    monitor = Monitor("memory")
    for app, way, messages in (("demo", "json", 1), ("demo", "raw", 2), ("other", "raw", 4)):
        monitor.delivered(app, way, messages, 8)

    given = [("", ""), ("demo", ""), ("demo", "raw"), ("", "raw"), ("nobody", "")]

    assert [monitor.total(MESSAGES_DELIVERED, *one) for one in given] == [7, 3, 2, 6, 0]
