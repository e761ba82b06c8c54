"""The trace that a request or a message is part of: the headers of W3C Trace Context, and that of AWS X-Ray.

A message keeps what the request that stored it had, as two headers of its own. So whoever works on it goes on with the trace.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["TRACEPARENT", "TRACESTATE", "trace_context", "trace_id", "traceparent_of_xray"]

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
MAX_TRACESTATE = 512
"""Characters. A longer one is left out; the trace goes on without it."""
_XRAY_ROOT = re.compile(r"1-([0-9a-f]{8})-([0-9a-f]{24})")
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


def traceparent_of_xray(text: str) -> str | None:
    """What stands in a header of X-Ray as a ``traceparent``; None if it names no trace, or no segment of one.

    >>> traceparent_of_xray("Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1")
    '00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01'
    >>> traceparent_of_xray("Root=1-5759e988-bd862e3fe1be46a994272793") is None
    True
    """
    said = dict(part.strip().partition("=")[::2] for part in text.split(";"))
    root = _XRAY_ROOT.fullmatch(said.get("Root", ""))
    if root is None:
        return None
    sampled = "01" if said.get("Sampled") == "1" else "00"
    parent = f"00-{root[1]}{root[2]}-{said.get('Parent', '')}-{sampled}"
    return parent if trace_id(parent) else None
