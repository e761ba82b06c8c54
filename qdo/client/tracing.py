"""The trace that a caller is part of, where its program uses OpenTelemetry.

Nothing here loads a library: a program without OpenTelemetry has no trace, and pays one look-up in a dictionary.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace

from qdo.client.values import NewMessage
from queuey.model.trace_context import TRACEPARENT

__all__ = ["API", "current_trace", "traced_headers", "traced_message"]

API = "opentelemetry.trace"
"""The module that every program has loaded that makes spans."""


def current_trace() -> dict[str, str]:
    """The trace context of the span that is current here, as headers; empty without one."""
    found: dict[str, str] = {}
    if API in sys.modules:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        TraceContextTextMapPropagator().inject(found)
    return found


def traced_headers(given: Mapping[str, str] | None) -> dict[str, str]:
    """Headers of a request with the trace context of the caller, unless they bring one."""
    headers = dict(given or {})
    if any(name.lower() == TRACEPARENT for name in headers):
        return headers
    return {**current_trace(), **headers}


def traced_message(new: NewMessage) -> NewMessage:
    """A message with the trace context of the caller, unless it brings one.

    For a message that another request stores than one of the caller's.
    """
    if TRACEPARENT in new.headers or not (trace := current_trace()):
        return new
    return replace(new, headers={**new.headers, **trace})
