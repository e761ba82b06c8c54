"""Message headers on the wire: HTTP headers of a raw message, members of JSON."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any

from queuey.api.params import Problems
from queuey.http.exchange import NOT_ASCII, Call
from queuey.model import MAX_HEADERS, decode_headers, encode_headers, header_to_json

__all__ = [
    "COMMON",
    "has_headers",
    "headers_of_call",
    "headers_of_entry",
    "headers_of_row",
    "http_headers",
    "shown_headers",
]

_TEXT = "queuey-header-"
"""Stands before a name whose value is printable ASCII."""
_BASE64 = "queuey-header64-"
"""Stands before a name whose value is base64, for any bytes."""
COMMON = frozenset(
    [
        "host",
        "authorization",
        "content-type",
        "content-length",
        "accept",
        "accept-encoding",
        "user-agent",
        "connection",
        "x-ttl",
        "x-partition",
        "x-key",
        "idempotency-key",
        "x-request-id",
    ]
)
"""A request that has only these carries no message headers: one comparison is enough."""


def has_headers(call: Call) -> bool:
    """Whether a raw message has headers."""
    names = call.headers.keys()
    return not names <= COMMON and any(name.startswith((_TEXT, _BASE64)) for name in names)


def headers_of_call(call: Call, problems: Problems) -> bytes | None:
    """The headers of a raw message.

    They come from ``Queuey-Header-<Name>`` and ``Queuey-Header64-<Name>``.
    """
    found: dict[str, bytes] = {}
    for field, value in call.headers.items():
        if field.startswith(_TEXT):
            name, taken = field.removeprefix(_TEXT), _ascii(value)
            hint = "is not ASCII: send other bytes as base64, in Queuey-Header64-<Name>"
        elif field.startswith(_BASE64):
            name, taken = field.removeprefix(_BASE64), _decoded(value)
            hint = "is not base64"
        else:
            continue
        if name in found:
            problems.add(f"headers.{name}", "stands twice: as Queuey-Header-<Name> and as Queuey-Header64-<Name>")
        elif taken is None:
            problems.add(f"headers.{name}", hint)
        else:
            found[name] = taken
    return _encoded(found, "headers", problems)


def headers_of_entry(value: Any, field: str, problems: Problems) -> bytes | None:
    """The headers of a batch entry.

    The member is an object of texts, and of ``{"base64": "..."}`` for other bytes.

    :param field: the member's name in problems.
    """
    if value is None:
        return None
    if not isinstance(value, dict):
        problems.add(field, 'must be an object: names, and texts or {"base64": "..."}')
        return None
    found: dict[str, bytes] = {}
    for name, given in value.items():
        taken = given.encode() if isinstance(given, str) else _from_object(given)
        if taken is None:
            problems.add(f"{field}.{name[:40]}", 'must be a text, or {"base64": "..."} for other bytes')
        else:
            found[name] = taken
    return _encoded(found, field, problems)


def headers_of_row(row: Any) -> bytes | None:
    """The headers of one Arrow row.

    :param row: an Arrow map, which becomes objects only if it has at most 64 pairs.
    :raises ValueError: a name stands twice, a value is null, or as :func:`~queuey.model.encode_headers` says.
    """
    if len(row) > MAX_HEADERS:
        raise ValueError(f"{len(row)} headers: a message has at most {MAX_HEADERS}")
    pairs = row.as_py()
    found = {name: value.encode() if isinstance(value, str) else value for name, value in pairs}
    if len(found) < len(pairs):
        raise ValueError("has a name that stands twice")
    if None in found.values():
        raise ValueError("has a value that is null")
    return encode_headers({name: value for name, value in found.items() if value is not None})


def shown_headers(encoded: bytes) -> dict[str, Any]:
    """Headers as a JSON member. Bytes that are not UTF-8 are ``{"base64": "..."}``.

    >>> shown_headers(encode_headers({"kind": b"order", "sign": bytes([255])}))
    {'kind': 'order', 'sign': {'base64': '/w=='}}
    """
    return {name: header_to_json(value) for name, value in decode_headers(encoded).items()}


def http_headers(encoded: bytes | None) -> Iterator[tuple[str, str]]:
    """The headers of a raw answer, each in the form that fits its value."""
    for name, value in decode_headers(encoded).items():
        text = value.decode("latin-1")
        if value.isascii() and (not text or text.isprintable()) and text.strip() == text:
            yield _TEXT + name, text
        else:
            yield _BASE64 + name, base64.b64encode(value).decode()


def _encoded(headers: dict[str, bytes], field: str, problems: Problems) -> bytes | None:
    try:
        return encode_headers(headers)
    except ValueError as error:
        problems.add(field, str(error))
        return None


def _ascii(value: str) -> bytes | None:
    return None if value == NOT_ASCII or not value.isascii() else value.encode()


def _decoded(value: str) -> bytes | None:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return None


def _from_object(given: Any) -> bytes | None:
    if isinstance(given, dict) and given.keys() == {"base64"} and isinstance(given["base64"], str):
        return _decoded(given["base64"])
    return None
