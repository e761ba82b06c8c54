"""Spans of jobs: each call of a job is one, in the trace of its message.

A worker makes them where its program has loaded OpenTelemetry, with whatever provider that program has set.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

from qdo.client.tracing import API
from qdo.client.values import Message
from qdo.worker.job import Context, StopWorker, first_line_of, reason_of
from queuey import tracebacks
from queuey._version import __version__
from queuey.model.headers import header_in_any_case
from queuey.model.trace_context import TRACEPARENT, TRACESTATE

__all__ = ["continued", "job_span", "name_span"]

_NO_SPAN: AbstractContextManager[None] = nullcontext()


def job_span(messages: Sequence[Message], context: Context, *, together: bool) -> AbstractContextManager[None]:
    """The span of one call of a job, current while it runs.

    Of a single message it is a child of the span that stored the message. Of several it begins a trace, with a link to each.

    :param together: the job gets a list of messages.
    """
    return _span(messages, context, together=together) if API in sys.modules else _NO_SPAN


@contextmanager
def _span(messages: Sequence[Message], context: Context, *, together: bool) -> Iterator[None]:
    from opentelemetry import trace

    origins = [_context(_carried(message)) for message in messages]
    links = []
    if together:
        known = [trace.get_current_span(one).get_span_context() for one in origins]
        links = [trace.Link(one) for one in known if one.is_valid]
    attributes: dict[str, str | int] = {
        "messaging.system": "queuey",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": context.queue,
        "messaging.destination.partition.id": str(messages[0].partition),
        "messaging.consumer.group.name": context.group,
        "queuey.attempt": context.attempt,
    }
    if together:
        attributes["messaging.batch.message_count"] = len(messages)
    else:
        attributes["messaging.message.id"] = messages[0].id.hex
    with _tracer().start_as_current_span(
        f"process {context.queue}",
        _context({}) if together else origins[0],
        trace.SpanKind.CONSUMER,
        attributes,
        links,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except StopWorker:
            raise
        except Exception as error:
            span.add_event("exception", _told(error))  # the library's own event has no bound, and no care for UTF-8
            span.set_status(trace.Status(trace.StatusCode.ERROR, reason_of(error)))
            raise


def _told(error: Exception) -> dict[str, str]:
    """What the event of a span says of an error, under OpenTelemetry's names."""
    kind = type(error)
    return {
        "exception.type": kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}",
        "exception.message": first_line_of(error),
        "exception.stacktrace": tracebacks.text_of(error, error.__traceback__),
    }


def name_span(text: str) -> None:
    """Give the span of the job under way a name that says more than its queue does."""
    if API in sys.modules:
        from opentelemetry import trace

        trace.get_current_span().update_name(text)


def continued(trace: Mapping[str, str]) -> AbstractContextManager[None]:
    """Let spans of this process be part of a trace of another one.

    :param trace: what :func:`qdo.client.tracing.current_trace` gave there; empty changes nothing.
    """
    return _continued(trace) if trace else _NO_SPAN


@contextmanager
def _continued(trace: Mapping[str, str]) -> Iterator[None]:
    from opentelemetry import context as api

    token = api.attach(_context(trace))
    try:
        yield
    finally:
        api.detach(token)


@cache
def _tracer() -> Any:
    from opentelemetry import trace

    return trace.get_tracer("qdo", __version__)


def _carried(message: Message) -> Mapping[str, str]:
    found = {name: header_in_any_case(message.headers, name) for name in (TRACEPARENT, TRACESTATE)}
    return {name: value.decode("ascii", "replace") for name, value in found.items() if value is not None}


def _context(trace: Mapping[str, str]) -> Any:
    """A context of OpenTelemetry in which only this trace is known."""
    from opentelemetry.context import Context as ApiContext
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract(trace, ApiContext())
