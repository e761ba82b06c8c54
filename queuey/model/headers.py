"""Headers of a message: names and values that travel beside its body.

Stores have them encoded, as one value beside the body. The encoding is that of a ``map<text, blob>`` in CQL, so
Cassandra takes it unchanged: a count, then each name and each value after its length, all lengths in four bytes,
big-endian. Names rise in the order of their bytes, so equal headers have equal encodings.
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Mapping

__all__ = [
    "MAX_HEADERS",
    "MAX_HEADERS_BYTES",
    "MAX_HEADER_NAME",
    "MessageHeaders",
    "decode_headers",
    "encode_headers",
    "header_in_any_case",
    "header_to_json",
]

MAX_HEADERS = 64
"""Headers of one message."""
MAX_HEADER_NAME = 128
"""Characters of a name."""
MAX_HEADERS_BYTES = 64 << 10
"""Bytes of all names and values of one message together."""

MessageHeaders = Mapping[str, bytes]

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_LENGTH = struct.Struct(">i")


def encode_headers(headers: MessageHeaders, *, bounded: bool = True) -> bytes | None:
    """Headers in the form that stores use; None if there are none.

    :param bounded: False for what the server itself adds to the headers of a message: there may be more of them.
    :raises ValueError: a name is no token of 1 to 128 characters, there are more than 64 headers, or more than 64 KiB.

    >>> encode_headers({"b": b"2", "a": b"1"}) == encode_headers({"a": b"1", "b": b"2"})
    True
    """
    if not headers:
        return None
    if bounded and len(headers) > MAX_HEADERS:
        raise ValueError(f"{len(headers)} headers: a message has at most {MAX_HEADERS}")
    pairs = sorted(headers.items())
    size = 0
    parts = [_LENGTH.pack(len(pairs))]
    for name, value in pairs:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{name[:40]!r} is no name of a header: 1 to {MAX_HEADER_NAME} letters, digits and !#$%&'*+-.^_`|~"
            )
        size += len(name) + len(value)
        parts += (_LENGTH.pack(len(name)), name.encode(), _LENGTH.pack(len(value)), value)
    if bounded and size > MAX_HEADERS_BYTES:
        raise ValueError(f"{size} bytes of headers: a message has at most {MAX_HEADERS_BYTES}")
    return b"".join(parts)


def decode_headers(encoded: bytes | None) -> dict[str, bytes]:
    r"""The headers of a stored message, by name in rising order.

    :raises ValueError: this is no encoding of headers.

    >>> decode_headers(encode_headers({"kind": b"order", "n": bytes([255])}))
    {'kind': b'order', 'n': b'\xff'}
    """
    if encoded is None:
        return {}
    try:
        (count,) = _LENGTH.unpack_from(encoded)
        at, found = _LENGTH.size, dict[str, bytes]()
        for _ in range(count):
            name, at = _piece(encoded, at)
            found[name.decode()], at = _piece(encoded, at)
    except struct.error as error:
        raise ValueError(f"no encoding of headers: {error}") from error
    if at != len(encoded):
        raise ValueError("no encoding of headers: bytes are left over")
    return found


def header_to_json(value: bytes) -> str | dict[str, str]:
    """The value of a header as JSON has it: a text, or ``{"base64": "..."}`` for bytes that are not UTF-8.

    >>> header_to_json(b"order"), header_to_json(bytes([255]))
    ('order', {'base64': '/w=='})
    """
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _piece(encoded: bytes, at: int) -> tuple[bytes, int]:
    (length,) = _LENGTH.unpack_from(encoded, at)
    begin, end = at + _LENGTH.size, at + _LENGTH.size + length
    if length < 0 or end > len(encoded):
        raise ValueError("no encoding of headers: it is cut short")
    return encoded[begin:end], end


def header_in_any_case(headers: Mapping[str, bytes], name: str) -> bytes | None:
    """A header whose name is in lower case, as it is or in other letters: some HTTP clients write each word with a capital.

    >>> header_in_any_case({"Kind": b"a", "queuey-task": b"b", "Queuey-Task": b"c"}, "queuey-task")
    b'b'
    >>> header_in_any_case({"Queuey-Task": b"c"}, "queuey-task")
    b'c'
    """
    if name in headers:
        return headers[name]
    return next((value for given, value in headers.items() if given.lower() == name), None)
