"""What an API function gets and what it returns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import parse_qsl

import orjson

from queuey.errors import InvalidParameter
from queuey.http.admission import EXEMPT, Ticket
from queuey.model import Queue
from queuey.security.permissions import ANONYMOUS, Identity

Headers = list[tuple[str, str]]
JSON = "application/json"
BATCH_JSON = "application/vnd.queuey.batch+json"
NDJSON = "application/x-ndjson"
EVENTS = "text/event-stream"
ARROW = "application/vnd.apache.arrow.stream"
PROBLEM = "application/problem+json"
OCTETS = "application/octet-stream"


NOT_ASCII = "\ufffd"
"""Replaces a header value that is not ASCII. No parser accepts it, so the header is refused, not overlooked."""


RETRY_AFTER_SECONDS = 1
"""Seconds in each refusal that may succeed later."""

MAX_PARAMETERS = 100
MAX_ESCAPES = 2000
"""Percent signs in a path and in a query. Each costs work before the caller is known."""
MAX_ACCEPT = 1024
"""Characters of an Accept header; a longer one is ignored. It is parsed before the caller is known."""


def parse_query(text: str) -> dict[str, str]:
    """Query parameters by name; the last of equal names counts.

    An empty value counts as absent, except for ``partitions``.

    :raises InvalidParameter: bytes that are not UTF-8; or more than 100 parameters or 2000 escapes, since they are
        parsed before the caller is known.

    >>> parse_query("limit=5&since=&partitions=")
    {'limit': '5', 'partitions': ''}
    """
    if not text:
        return {}
    if text.count("&") >= MAX_PARAMETERS:
        raise InvalidParameter(
            problems={"query": f"has more than {MAX_PARAMETERS} parameters: no request needs as many"}
        )
    if text.count("%") > MAX_ESCAPES:
        raise InvalidParameter(problems={"query": f"has more than {MAX_ESCAPES} escapes: no request needs as many"})
    if "%" not in text and "+" not in text:
        pairs = [pair.partition("=")[::2] for pair in text.split("&")]
    else:
        try:
            pairs = parse_qsl(text, keep_blank_values=True, errors="strict")
        except UnicodeDecodeError as error:
            raise InvalidParameter(problems={"query": "has bytes that are not UTF-8"}) from error
    return {name: value for name, value in pairs if value or name == "partitions"}


class Call:
    """One request, from whichever server received it."""

    __slots__ = (
        "_accepted",
        "_media_type",
        "_query",
        "application",
        "below",
        "body",
        "face",
        "headers",
        "identity",
        "in_thread",
        "is_gone",
        "is_left",
        "length",
        "method",
        "named",
        "path",
        "peer",
        "query_string",
        "queue",
        "renew",
        "request_id",
        "ticket",
    )

    def __init__(self, method: str, path: str, query_string: str, headers: Mapping[str, str]) -> None:
        """:param headers: by lower-case name."""
        self.method = method
        self.path = path
        self.query_string = query_string
        self.headers = headers
        self.application = ""
        self.queue = ""
        self.below = ""
        """What the path names below the queue: message ids, or a group."""
        self.length = 0
        self.named: Sequence[Queue] = ()
        """Queues that its body names, as far as they were found."""
        self.ticket: Ticket = EXEMPT
        """The place and the bytes that the call takes; calls about the server itself take none."""
        self.body = b""
        self.identity = ANONYMOUS
        self.request_id = ""
        self.peer = ""
        """The address that the call comes from; behind a proxy it is the proxy's."""
        self.face: Any = None
        """The :class:`~queuey.http.face.Face` that serves it, once it was looked for."""
        self.renew: Callable[[], Identity] | None = None
        """Identifies the caller again while it waits; None: its Authorization header does."""
        self.in_thread = False
        """A thread waits for the answer."""
        self.is_left = False
        """The client has gone, or sends nothing more: it takes an answer at most, and waits for no messages."""
        self.is_gone = False
        """The connection has ended: no answer reaches the client."""
        self._query: dict[str, str] | None = None
        self._media_type: str | None = None
        self._accepted: Mapping[str, float] | None = None

    def known_as(self, identity: Identity) -> None:
        """Note the identified caller, and let it pay for the call."""
        self.identity = identity
        self.ticket.principals = identity.principals

    def is_awaited(self) -> bool:
        """Whether the client still waits for messages, as far as the server knows."""
        return not self.is_left

    def has_gone(self) -> bool:
        """Whether no answer reaches the client any more, as far as the server knows."""
        return self.is_gone

    @property
    def media_type(self) -> str:
        """The body's media type in lower case, without parameters; empty if absent."""
        if self._media_type is None:
            text = self.headers.get("content-type")
            self._media_type = text.partition(";")[0].strip().lower() if text else ""
        return self._media_type

    @property
    def query(self) -> dict[str, str]:
        if self._query is None:
            self._query = parse_query(self.query_string)
        return self._query

    def header(self, name: str) -> str | None:
        """A header's value; None if it is absent or empty."""
        return self.headers.get(name) or None

    def accepts(self, media_type: str) -> bool:
        """Whether Accept prefers this exact media type to JSON, or likes both equally.

        Wildcards mean JSON.
        """
        accept = self.headers.get("accept")
        if accept is None or len(accept) > MAX_ACCEPT or media_type not in accept.lower():
            return False
        if self._accepted is None:
            self._accepted = _qualities(accept)
        quality = self._accepted.get(media_type, 0.0)
        return quality > 0 and quality >= self._accepted.get(JSON, 0.0)


def _qualities(accept: str) -> dict[str, float]:
    """Media types of an Accept header with their quality; 1 without a ``q``.

    >>> _qualities("application/json;q=0.5, text/html")
    {'application/json': 0.5, 'text/html': 1.0}
    """
    found = {}
    for part in accept.split(","):
        media_type, *parameters = [piece.strip().lower() for piece in part.split(";")]
        given = [text[2:] for text in parameters if _QUALITY.fullmatch(text)]
        found[media_type] = float(given[0]) if given else 1.0
    return found


_QUALITY = re.compile(r"q=(?:0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)")


Chunk = bytes | Sequence[bytes | memoryview]
"""A part of a body: one piece, or several that are sent one after the other and never joined."""


class BodyStream(Protocol):
    """A body whose length is not known before its end."""

    @property
    def waits(self) -> bool:
        """Whether chunks come when there is news, at any time.

        Such a stream takes no place among the calls, and nothing in it blocks. The chunks of any other are made by a
        thread, and its call holds the bytes of :attr:`Answer.held_bytes` to the end.
        """

    async def more(self) -> Chunk | None:
        """The next chunk once there is one; None at the end.

        Call it after the client has taken the last chunk.
        """

    def close(self) -> None:
        """End the stream: no more chunks are taken. May be called again."""


class MadeStream:
    """A :class:`BodyStream` of what an iterator makes."""

    waits = False

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self._chunks = chunks

    async def more(self) -> Chunk | None:
        """See :class:`BodyStream`."""
        return next(self._chunks, None)

    def close(self) -> None:
        """Do nothing: an iterator that nothing refers to ends by itself, and a thread may still run it."""


def joined(chunk: Chunk) -> bytes:
    """A chunk as one piece."""
    return chunk if isinstance(chunk, bytes) else b"".join(chunk)


_WITHOUT_LENGTH = frozenset({204, 304})
"""A client knows that these end with their head."""


class Answer:
    """One response. It has a ``body`` or a ``stream``."""

    __slots__ = ("body", "headers", "held_bytes", "status", "stream")

    def __init__(
        self,
        status: int,
        body: bytes = b"",
        headers: Headers | None = None,
        stream: BodyStream | None = None,
        held_bytes: int | None = None,
    ) -> None:
        """:param held_bytes: bytes that the answer holds in memory until it is sent; None for the size of ``body``."""
        self.stream = stream
        self.held_bytes = len(body) if held_bytes is None else held_bytes
        self.status = status
        self.body = body
        self.headers: Headers = headers if headers is not None else [("content-type", JSON)]

    @property
    def length(self) -> int | None:
        """What Content-Length says; None for a stream, and for an answer that has no such header (RFC 9110, 8.6)."""
        return None if self.stream is not None or self.status in _WITHOUT_LENGTH else len(self.body)


def json_answer(content: Any, status: int = 200, headers: Headers | None = None) -> Answer:
    """A JSON body, with extra headers beside its content type."""
    return Answer(status, orjson.dumps(content), [("content-type", JSON), *(headers or ())])


class Target:
    """What a call is about: an application, and the queue of its path if it exists."""

    __slots__ = ("_queue", "application")

    def __init__(self, application: str = "", queue: Queue | None = None) -> None:
        self.application = application
        self._queue = queue

    @property
    def has_queue(self) -> bool:
        return self._queue is not None

    @property
    def queue(self) -> Queue:
        """The queue. The pipeline has refused the call already if there is none."""
        if self._queue is None:
            raise AssertionError("a call on a queue got past the pipeline without one")
        return self._queue
