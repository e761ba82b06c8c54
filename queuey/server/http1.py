"""HTTP/1.1 as bytes: the head of a request in, the head of an answer out.

llhttp, by way of httptools, checks the grammar strictly. This module checks what llhttp leaves open. It refuses
everything that two programs might read differently, since that is how a request is smuggled past a proxy
(docs/security.md). Each head has a parser of its own: one request changes nothing in how the next is read, and a
connection at rest has no parser. Bytes that come again and again are not parsed again, on any connection; a plain target
and an idempotency key in them may differ.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache, partial
from http import HTTPStatus
from typing import NamedTuple

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from queuey.errors import HeadersTooLarge, MalformedRequest, PathTooLong
from queuey.http.exchange import NOT_ASCII, Headers
from queuey.http.routing import decode_path
from queuey.recent import Recent

END_OF_HEAD = b"\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
END_OF_CHUNKS = b"0\r\n\r\n"
MAX_LINE_BYTES = 16 << 10
"""Bytes of the request line. The path in it has its own limit; a query can hold a long cursor."""
MAX_HEADER_BYTES = 32 << 10
MAX_HEADERS = 100

_METHODS = {name.encode(): name for name in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")}
_METHOD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}")
_CLOSE = re.compile(r"(?:^|,)[ \t]*close[ \t]*(?:,|$)", re.IGNORECASE | re.ASCII)
_HOST = re.compile(r"(?:\[[0-9A-Za-z:.%_~-]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(?::[0-9]*)?")
"""RFC 3986's host and port; empty where the client has no name for the server."""
_LONE = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)")
"""A line feed without its carriage return, or a carriage return without its line feed."""
_KNOWN = (
    "Host Authorization Content-Type Content-Length Accept Accept-Encoding User-Agent Connection X-TTL X-Partition X-Key "
    "X-Delay X-Deliver-At X-Request-Id Idempotency-Key X-Forwarded-For X-Forwarded-Proto "
    "X-Amz-Date X-Amz-Target X-Amzn-Query-Mode Amz-Sdk-Invocation-Id Amz-Sdk-Request"
)

_MESSAGE_HEADER = re.compile("queuey-header(?:64)?-")


class _Names(dict[bytes, str]):
    """Header names in lower case; usual spellings are cached.

    Other spellings are converted each time, so that clients cannot fill the cache.
    """

    def __missing__(self, name: bytes) -> str:
        text = name.decode("latin-1")
        lower = text.lower()
        found = _MESSAGE_HEADER.match(lower)
        # The name of a message header keeps its case: it is the writer's data, not HTTP's.
        return found[0] + text[found.end() :] if found else lower


_NAMES = _Names({form.encode(): name.lower() for name in _KNOWN.split() for form in (name, name.lower(), name.title())})


class RequestHead(NamedTuple):
    """The part of a request before its body."""

    method: str
    path: str
    """The path with its escapes decoded."""
    query: str
    headers: Mapping[str, str]
    """By lower-case name. Headers that came more than once are joined, as WSGI servers do."""
    length: int | None
    """Bytes of the body, as announced; None if only its chunks tell where it ends."""
    lasting: bool
    """The client may use the connection for another request."""
    knows_chunks: bool


_new_head = partial(tuple.__new__, RequestHead)
"""Without the interpreter step that the constructor takes."""


class _Sink:
    """What the parser calls. A dictionary's own method costs least."""

    __slots__ = ("on_header",)

    def __init__(self, on_header: object) -> None:
        self.on_header = on_header


RECENT_HEADS = 512
"""Recent heads, which need no parsing: a client that appends mostly repeats its head."""
RECENT_HEAD_BYTES = 1 << 10
"""Bytes of a head. Longer ones are parsed each time."""
_PLAIN_LINE = re.compile(
    rb"(?:GET|POST|PUT|DELETE) (/[A-Za-z0-9_./~-]*)(?:\?([A-Za-z0-9_.=&~-]*))?(?= HTTP/1\.1\r\n)"
).match
"""A method, and a target that has nothing to decode and means the same to every program."""
_KEY = "idempotency-key"
_KEY_LINE = b"\r\nIdempotency-Key: "
"""The header as our client and most libraries spell it; other spellings are parsed with the whole head."""
_INVOCATION = "amz-sdk-invocation-id"
_INVOCATION_LINE = b"\r\namz-sdk-invocation-id: "
"""As SDKs of AWS spell it, beside a signature."""
_PLAIN = re.compile(rb"[!-~]+").fullmatch
_AUTHORIZATION = (b"Authorization: AWS4-", b"authorization: AWS4-")
_SIGNATURE = b"Signature="
_SIGNATURE_BYTES = 64
_IS_SIGNATURE = re.compile(rb"[0-9a-f]{64}\r\n").match


def parse_head(raw: bytes) -> RequestHead:
    r"""Parse a request's head.

    :param raw: the whole head, with the empty line at its end.
    :raises MalformedRequest: it is not unambiguous HTTP/1.1 or 1.0.
    :raises HeadersTooLarge, PathTooLong: it exceeds the limits.

    >>> parse_head(b"GET /v1/demo?limit=1 HTTP/1.1\r\nHost: q\r\n\r\n")[:5]
    ('GET', '/v1/demo', 'limit=1', {'host': 'q'}, 0)
    """
    if len(raw) > RECENT_HEAD_BYTES:
        return _parse(raw)
    begins = raw.find(_KEY_LINE)
    if begins >= 0:
        return _parse_keyed(raw, begins, _KEY, _KEY_LINE)
    at = raw.find(_SIGNATURE)
    return _recent[raw] if at < 0 else _parse_signed(raw, at + len(_SIGNATURE))


def _parse_keyed(raw: bytes, begins: int, name: str, line: bytes) -> RequestHead:
    """Parse a head with a line that is different each time.

    Without it the head is often a recent one. A value of visible characters between two line ends changes nothing in how
    the other lines are read.

    :param begins: where the line end before that line is.
    :param name: of its header, in lower case.
    :param line: a line end and the beginning of the line, up to its value.
    """
    ends = raw.find(b"\r\n", begins + len(line))
    value = raw[begins + len(line) : ends]
    if not _PLAIN(value):
        return _parse(raw)
    head = parse_head(raw[:begins] + raw[ends:])
    method, path, query, headers, length, lasting, knows_chunks = head
    if name in headers or len(headers) >= MAX_HEADERS:
        return _parse(raw)
    return RequestHead(method, path, query, {**headers, name: value.decode()}, length, lasting, knows_chunks)


def _parse_signed(raw: bytes, begins: int) -> RequestHead:
    """Parse a head with a signature, which is different each time. Without it the head is often a recent one.

    :param begins: where the signature may begin: at the end of the line of the Authorization header.
    """
    ends = begins + _SIGNATURE_BYTES
    line = raw.rfind(b"\r\n", 0, begins) + 2
    if not raw.startswith(_AUTHORIZATION, line) or not _IS_SIGNATURE(raw, begins):
        return _recent[raw]
    at = raw.find(_INVOCATION_LINE)
    if at >= 0:
        return _parse_keyed(raw, at, _INVOCATION, _INVOCATION_LINE)
    method, path, query, headers, length, lasting, knows_chunks = _recent[raw[:begins] + raw[ends:]]
    before = headers["authorization"]
    if before.find("Signature=") != len(before) - len(_SIGNATURE):
        return _parse(raw)  # it came more than once
    signed = {**headers, "authorization": before + raw[begins:ends].decode()}
    return RequestHead(method, path, query, signed, length, lasting, knows_chunks)


def _parse(raw: bytes) -> RequestHead:
    line, *lines, _, _ = raw.split(b"\r\n")
    if len(raw) > MAX_LINE_BYTES or len(lines) > MAX_HEADERS:
        _check_sizes(len(line), len(raw) - len(line), len(lines))
    try:
        word, target, version = line.split(b" ")
    except ValueError:
        raise MalformedRequest("the request line is not a method, a target and a version, one blank apart") from None
    method = _METHODS.get(word)
    if method is None:
        method, raw = _other_method(word, raw)
    fields: dict[bytes, bytes] = {}
    _feed(raw, fields.__setitem__)
    if raw.isascii():
        headers = {_NAMES[name]: value.rstrip().decode() for name, value in fields.items()}
    else:
        headers = {_NAMES[name]: _text(value) for name, value in fields.items()}
    if len(headers) != len(lines):
        headers = _joined(raw)
    recent = version == b"HTTP/1.1"
    if recent:
        if "host" not in headers:
            raise MalformedRequest("a request of HTTP/1.1 has a Host header")
        if not _HOST.fullmatch(headers["host"]):
            raise MalformedRequest("the Host header is not a name or an address, with a port or without")
    elif version != b"HTTP/1.0":
        raise MalformedRequest("this server speaks HTTP/1.1 and 1.0")
    path, _, query = _origin(target.decode("latin-1")).partition("?")
    length = headers.get("content-length")
    chunked = "transfer-encoding" in headers
    return RequestHead(
        method,
        decode_path(path) if "%" in path else path,
        query,
        headers,
        int(length) if length else None if chunked else 0,
        recent and not chunked and ("connection" not in headers or not _says_close(headers["connection"])),
        recent,
    )


_parse_rest = lru_cache(RECENT_HEADS)(_parse)


def _parse_like_recent(raw: bytes) -> RequestHead:
    """Parse a head. Without its target it is often a recent one: a client uses many queues, or reads on from where it was."""
    line = _PLAIN_LINE(raw)
    if line is None:
        return _parse(raw)
    path, query = line.groups(b"")
    begins, ends = line.start(1), line.end()
    method, _, _, headers, length, lasting, knows_chunks = _parse_rest(raw[:begins] + b"/" + raw[ends:])
    return _new_head((method, path.decode(), query.decode(), headers, length, lasting, knows_chunks))


_recent = Recent(_parse_like_recent, RECENT_HEADS)


def _check_sizes(line: int, headers: int, count: int) -> None:
    if line > MAX_LINE_BYTES:
        raise PathTooLong(f"the request line is longer than {MAX_LINE_BYTES} bytes")
    if count > MAX_HEADERS or headers > MAX_HEADER_BYTES:
        raise HeadersTooLarge


def _other_method(word: bytes, raw: bytes) -> tuple[str, bytes]:
    """A method that no resource has, and the head with one that the parser accepts.

    The parser refuses other methods, or treats them specially.
    """
    if not _METHOD.fullmatch(word):
        raise MalformedRequest("the method is not a word")
    return word.decode(), b"PATCH" + raw[len(word) :]


def _feed(raw: bytes, on_header: object) -> None:
    try:
        HttpRequestParser(_Sink(on_header)).feed_data(raw)
    except HttpParserUpgrade:
        pass  # an offer to switch protocols, which this server ignores
    except HttpParserError as error:
        raise MalformedRequest(f"this is not HTTP: {error}") from error


def _text(value: bytes) -> str:
    return value.rstrip().decode() if value.isascii() else NOT_ASCII


def _joined(raw: bytes) -> dict[str, str]:
    """Headers of which some came more than once. A part that is not ASCII spoils the whole, as on WSGI servers."""
    pairs: list[tuple[bytes, bytes]] = []
    _feed(raw, lambda name, value: pairs.append((name, value)))
    headers: dict[str, bytes] = {}
    for raw_name, value in pairs:
        name = _NAMES[raw_name]
        if name == "host" and name in headers:
            raise MalformedRequest("a request has one Host header")
        headers[name] = b"%b, %b" % (headers[name].rstrip(), value) if name in headers else value
    return {name: _text(value) for name, value in headers.items()}


def _origin(target: str) -> str:
    """A target as path and query, even if scheme and host stand before them."""
    if "#" in target:
        raise MalformedRequest("a target has no fragment")
    if target.startswith("/"):
        return target
    scheme, _, rest = target.partition("://")
    if scheme.lower() not in ("http", "https"):
        raise MalformedRequest("the target is not a path")
    host, slash, path = rest.partition("/")
    if "?" in host:
        raise MalformedRequest("the target has no path")
    if not host:
        raise MalformedRequest("the target has no host")
    return slash + path if slash else "/"


def _says_close(connection: str) -> bool:
    return _CLOSE.search(connection) is not None


def check_beginning(raw: bytes, looked: int) -> None:
    """Refuse an incomplete head that cannot become valid.

    :param looked: bytes of it that were checked before.
    :raises MalformedRequest: a line ends with CR or LF alone, so the end of the head might never come.
    :raises PathTooLong, HeadersTooLarge: it exceeds the limits.
    """
    if _LONE.search(raw, max(looked - 1, 0)):
        raise MalformedRequest("lines end with CR and LF")
    if len(raw) > MAX_LINE_BYTES:
        line = len(raw.partition(b"\r\n")[0])
        _check_sizes(line, len(raw) - line, 0)


_STATUS_LINES = {found.value: f"HTTP/1.1 {found.value} {found.phrase}\r\n" for found in HTTPStatus}


def answer_head(
    status: int, date: str, headers: Headers, length: int | None, *, framed: bool = False, lasting: bool = True
) -> bytes:
    r"""The head of an answer.

    The length stands first: a client that takes a truncated head for a whole one then sees that the body is incomplete.

    :param date: the Date header, with its line end.
    :param length: bytes of the body; None if not known.
    :param framed: the body goes in chunks.
    :param lasting: the client may send another request.

    >>> answer_head(200, "date: today\r\n", [("content-type", "text/plain")], 2)
    b'HTTP/1.1 200 OK\r\ncontent-length: 2\r\ndate: today\r\ncontent-type: text/plain\r\n\r\n'
    """
    named = "".join([f"{name}: {value}\r\n" for name, value in headers])
    if named.count("\n") != len(headers) or "\0" in named:
        raise AssertionError("a header of an answer has a line end or a NUL")
    size = "transfer-encoding: chunked\r\n" if framed else "" if length is None else f"content-length: {length}\r\n"
    last = "\r\n" if lasting or ("connection", "close") in headers else "connection: close\r\n\r\n"
    return f"{_STATUS_LINES[status]}{size}{date}{named}{last}".encode("latin-1")
