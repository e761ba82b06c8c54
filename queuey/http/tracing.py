"""The trace context of a request, kept with the messages that it stores.

A message that brings a ``traceparent`` of its own keeps that one. A message that would be too large with the request's goes
without: a trace must not cost a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from queuey.http.exchange import Call
from queuey.model import (
    MAX_HEADERS,
    MAX_HEADERS_BYTES,
    Alike,
    Draft,
    Drafts,
    MessageHeaders,
    decode_headers,
    encode_headers,
)
from queuey.model.trace_context import TRACEPARENT, TRACESTATE, trace_context

__all__ = ["trace_of", "traced_drafts", "traced_headers"]


def trace_of(call: Call) -> MessageHeaders:
    """The trace context of a request as headers of a message; empty without one."""
    if TRACEPARENT not in call.headers:
        return _NONE
    return {name: value.encode() for name, value in trace_context(call.headers).items()}


_NONE: MessageHeaders = {}


def traced_drafts(drafts: Sequence[Draft], trace: MessageHeaders, most: int) -> Sequence[Draft]:
    """The same drafts with a trace context.

    :param trace: not empty.
    :param most: bytes that a message's body and headers may have.
    """
    if isinstance(drafts, Drafts):
        headers: Sequence[bytes | None]
        alone = encode_headers(trace) or b""
        if type(drafts.headers) is Alike and drafts.headers.value is None and drafts.size + len(alone) <= most:
            headers = Alike(alone, len(drafts))
        else:
            each = zip(drafts.headers, drafts.bodies, strict=True)
            headers = [traced_headers(given, len(body), trace, most) for given, body in each]
        return replace(drafts, headers=headers)
    return [one._replace(headers=traced_headers(one.headers, len(one.body), trace, most)) for one in drafts]


def traced_headers(headers: bytes | None, size: int, trace: MessageHeaders, most: int) -> bytes | None:
    """The headers of a message with a trace context.

    :param size: bytes of its body.
    :param trace: not empty.
    :param most: as of :func:`traced_drafts`.
    """
    given = decode_headers(headers)
    lowered = {name.lower() for name in given}
    joined = {**given, **trace}
    length = sum([len(name) + len(value) for name, value in joined.items()])
    if TRACEPARENT in lowered or TRACESTATE in lowered or len(joined) > MAX_HEADERS or length > MAX_HEADERS_BYTES:
        return headers
    encoded = encode_headers(joined) or b""
    return encoded if size + len(encoded) <= most else headers
