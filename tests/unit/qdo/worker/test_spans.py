"""Spans of jobs: in the trace of their message, current in the job, wherever it runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from qdo import Context, Message, NewMessage, StopWorker
from qdo.client.tracing import current_trace, traced_headers, traced_message
from qdo.groups.assign import Partition
from qdo.groups.coordination import Claim
from qdo.worker import spans as job_spans
from qdo.worker.metrics import JOB_DURATION, WorkerMetrics
from qdo.worker.options import WorkerOptions
from qdo.worker.work import JobCaller, WorkerFigures
from queuey.clock import ManualClock
from queuey.ids import MessageId

IDS = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
PARENT = f"00-{IDS[0]}-{IDS[1]}-01"


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Spans that were made in this process."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    monkeypatch.setattr(job_spans, "_tracer", lambda: tracer)
    yield exporter
    provider.shutdown()


@pytest.fixture
def context() -> Context:
    return Context(Claim(Partition("mail", 1), 1), member="m", group="g", clock=ManualClock(), value=None)


def message(parent: str | None = PARENT, number: int = 1) -> Message:
    headers = {} if parent is None else {"traceparent": parent.encode()}
    return Message(MessageId(1, number), 1, b"", headers=headers)


def say(what: Any, context: Context) -> None:
    """A job that tells what is current where it runs."""
    raise RuntimeError(current_trace().get("traceparent", "none"))


async def say_in_a_loop(what: Any, context: Context) -> None:
    say(what, context)


@pytest.mark.parametrize(
    ("job", "options"),
    [(say, WorkerOptions()), (say_in_a_loop, WorkerOptions()), (say, WorkerOptions(processes=1))],
    ids=["here", "loop", "process"],
)
def test_a_job_runs_in_the_trace_of_its_message(
    kept: InMemorySpanExporter, context: Context, job: Any, options: WorkerOptions
) -> None:
    caller = JobCaller(job, options)
    try:
        with pytest.raises(RuntimeError) as raised:
            caller.call([message()], context)
    finally:
        caller.close()

    (span,) = kept.get_finished_spans()
    assert span.parent is not None
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == IDS
    assert str(raised.value) == f"00-{IDS[0]}-{span.context.span_id:016x}-01"
    assert (span.name, span.kind) == ("process mail", SpanKind.CONSUMER)
    assert span.status.status_code == StatusCode.ERROR
    assert [event.name for event in span.events] == ["exception"]


def test_a_batch_begins_a_trace_with_a_link_to_each_message(kept: InMemorySpanExporter, context: Context) -> None:
    caller = JobCaller(lambda messages, context: None, WorkerOptions(batch=3))

    caller.call([message(), message(None, 2), message("broken", 3)], context)

    (span,) = kept.get_finished_spans()
    assert span.parent is None
    assert [(f"{one.context.trace_id:032x}", f"{one.context.span_id:016x}") for one in span.links] == [IDS]
    assert span.attributes is not None
    assert span.attributes["messaging.batch.message_count"] == 3


def test_a_trace_is_found_in_any_case(kept: InMemorySpanExporter, context: Context) -> None:
    sent = Message(MessageId(1, 1), 1, b"", headers={"Traceparent": PARENT.encode()})

    JobCaller(lambda message, context: None, WorkerOptions()).call([sent], context)

    (span,) = kept.get_finished_spans()
    assert span.parent is not None


def test_a_message_without_a_trace_begins_one_whatever_is_current(kept: InMemorySpanExporter, context: Context) -> None:
    caller = JobCaller(lambda message, context: None, WorkerOptions())

    with trace.use_span(trace.NonRecordingSpan(trace.SpanContext(1, 2, is_remote=False))):
        caller.call([message(None)], context)

    (span,) = kept.get_finished_spans()
    assert span.parent is None
    assert span.status.status_code == StatusCode.UNSET


def test_a_worker_that_is_told_to_stop_has_no_error(kept: InMemorySpanExporter, context: Context) -> None:
    def stop(message: Message, context: Context) -> None:
        raise StopWorker

    with pytest.raises(StopWorker):
        JobCaller(stop, WorkerOptions()).call([message()], context)

    assert kept.get_finished_spans()[0].status.status_code == StatusCode.UNSET


class SilentError(Exception):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("error", [ValueError("a name \udcff"), ValueError("long " * 1_000_000), SilentError()])
def test_a_span_tells_of_any_error_in_bounds_and_the_error_stays(
    kept: InMemorySpanExporter, context: Context, error: Exception
) -> None:
    def fail(message: Message, context: Context) -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        JobCaller(fail, WorkerOptions()).call([message()], context)

    assert raised.value is error
    (event,) = kept.get_finished_spans()[0].events
    assert event.attributes is not None
    assert list(event.attributes) == ["exception.type", "exception.message", "exception.stacktrace"]
    assert all(len(str(said).encode()) < 10_000 for said in event.attributes.values())


def test_the_duration_of_a_job_has_its_trace_as_exemplar(kept: InMemorySpanExporter, context: Context) -> None:
    metrics = WorkerMetrics(WorkerFigures)
    caller = JobCaller(lambda message, context: None, WorkerOptions())
    caller.took = metrics.took

    caller.call([message()], context)

    (exemplar,) = metrics.exemplars(JOB_DURATION, ()).values()
    assert exemplar.labels == {"trace_id": IDS[0]}


def test_where_nothing_is_traced_nothing_is_noted(monkeypatch: pytest.MonkeyPatch, context: Context) -> None:
    monkeypatch.setattr(job_spans, "API", "no.such.module")
    monkeypatch.setattr("qdo.client.tracing.API", "no.such.module")
    metrics = WorkerMetrics(WorkerFigures)
    caller = JobCaller(lambda message, context: None, WorkerOptions())
    caller.took = metrics.took

    caller.call([message()], context)

    assert metrics.exemplars(JOB_DURATION, ()) == {}
    assert (current_trace(), traced_headers({"A": "b"})) == ({}, {"A": "b"})


def test_a_request_and_a_message_get_the_current_trace_unless_they_bring_one() -> None:
    plain, own = NewMessage("a"), NewMessage("a", headers={"traceparent": PARENT})
    with trace.use_span(trace.NonRecordingSpan(trace.SpanContext(1, 2, is_remote=False))):
        here = current_trace()
        assert traced_headers({"A": "b"}) == {**here, "A": "b"}
        assert traced_headers({"Traceparent": PARENT}) == {"Traceparent": PARENT}
        assert traced_message(plain).headers["traceparent"] == here["traceparent"].encode()
        assert traced_message(own) is own
    assert traced_message(plain) is plain
