"""The trace that a request or a message is part of: the headers of W3C Trace Context.

A message keeps what the request that stored it had, as two headers of its own. So whoever works on it goes on with the trace.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["TRACEPARENT", "TRACESTATE", "trace_context", "trace_id"]

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
MAX_TRACESTATE = 512
"""Characters. A longer one is left out; the trace goes on without it."""
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def trace_id(traceparent: str | None) -> str | None:
    """The id of the trace, 32 hexadecimal digits; None if this names none.

    >>> trace_id("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    '4bf92f3577b34da6a3ce929d0e0e4736'
    >>> trace_id("00-00000000000000000000000000000000-00f067aa0ba902b7-01") is trace_id(None) is None
    True
    """
    found = _TRACEPARENT.fullmatch(traceparent) if traceparent else None
    return found[1] if found else None


def trace_context(headers: Mapping[str, str]) -> Mapping[str, str]:
    """The trace context among headers of a request; empty if they have none, or one that is not valid.

    :param headers: by lower-case name.

    >>> trace_context({"tracestate": "a=1", "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"})
    {'traceparent': '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01', 'tracestate': 'a=1'}
    >>> trace_context({"traceparent": "mine"})
    {}
    """
    parent = headers.get(TRACEPARENT)
    if parent is None or trace_id(parent) is None:
        return {}
    state = headers.get(TRACESTATE, "")
    if not state or len(state) > MAX_TRACESTATE or not (state.isascii() and state.isprintable()):
        return {TRACEPARENT: parent}
    return {TRACEPARENT: parent, TRACESTATE: state}
