"""Streams of requests that programs may read differently, and how Queuey, llhttp and nginx read them.

A request is smuggled when a proxy sees its end at one byte and the server behind it at another. So three readers get
the same bytes, and :func:`differences` says where Queuey sees other requests than they do.
"""

from __future__ import annotations

import asyncio
import random
import re
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from httptools import HttpParserError, HttpParserInvalidMethodError, HttpParserUpgrade, HttpRequestParser

from queuey.future import run
from queuey.http.routing import decode_path
from queuey.server import connection
from queuey.server.connection import Connection
from queuey.server.faces import open_pipeline
from queuey.server.http1 import RequestHead, parse_head
from queuey.server.loop import LoopServer
from queuey.service import Service
from queuey.settings import load_settings
from tests.support.raw import send

END = b"\r\n\r\n"
_METHODS = [b"GET", b"POST", b"PUT", b"DELETE", b"HEAD", b"OPTIONS", b"PATCH", b"get", b"ODD", b"PURGE", b"M-SEARCH"]
_TARGETS = [
    *(b"/v1/nobody/q", b"/v1/nobody/q?limit=1", b"/", b"/a%20b", b"/a//b/../c", b"/a;b=c?%0d%0a"),
    *(
        b"/%2e%2e/x",
        b"/%2e%2fx",
        b"http://q/v1/nobody",
        b"HTTP://q:80/a?b",
        b"http://q",
        b"//q/a",
        b"*",
        b"a",
        b"/a#b",
        b"/a?b#c",
        b"/\xc3\xbc",
    ),
    *(b"/a\tb", b"/a b", b"/" + b"x" * 9000, b"http://u@q/a", b"http:///a", b"http://[::1]/a", b"https://q\\/a"),
]
_VERSIONS = [
    b"HTTP/1.0",
    b"HTTP/1.2",
    b"HTTP/2.0",
    b"HTTP/0.9",
    b"HTTP/1.10",
    b"http/1.1",
    b"HTTP/1.1 ",
    b"HTTP/01.1",
    b"",
]
_FRAMING = [
    *(b"Content-Length: %d" % size for size in (0, 1, 2, 3, 5, 8, 40, 200)),
    *(
        b"content-length: 3",
        b"Content-Length:3",
        b"Content-Length:\t3 \t",
        b"Content-Length: 03",
        b"Content-Length: +3",
    ),
    *(
        b"Content-Length: -1",
        b"Content-Length: 3,3",
        b"Content-Length: 3, 5",
        b"Content-Length: 0x3",
        b"Content-Length:",
    ),
    *(
        b"Content-Length: 3\x0b",
        b"Content-Length: 3;",
        b"Content-Length : 3",
        b" Content-Length: 3",
        b"Content_Length: 3",
    ),
    *(
        b"Content-Length: 18446744073709551619",
        b"Content-Length\x00: 3",
        b"Content-Length: 3\x00",
        b"Content-Length\t: 3",
    ),
    *(
        b"Transfer-Encoding: chunked",
        b"transfer-encoding:chunked",
        b"Transfer-Encoding: Chunked",
        b"Transfer-Encoding:",
    ),
    *(b"Transfer-Encoding: identity", b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: chunked, identity"),
    *(b"Transfer-Encoding: xchunked", b"Transfer-Encoding:\x0bchunked", b"Transfer-Encoding : chunked", b"TE: chunked"),
    *(
        b"Transfer-Encoding: chunked;x=y",
        b"Transfer_Encoding: chunked",
        b"Transfer-Encoding:\r\n chunked",
        b"X: y\r\n z",
    ),
    *(b'Transfer-Encoding: "chunked"', b"Transfer-Encoding: chunked,", b"Transfer-Encoding: ,chunked"),
]
_OTHERS = [
    *(
        b"Connection: close",
        b"Connection: keep-alive",
        b"Connection: close, te",
        b"Connection: Close",
        b"Connection:close ",
    ),
    *(
        b"Connection: closed",
        b"Connection: keep-alive, close",
        b"Connection: x\r\nConnection: close",
        b"Connection: Content-Length",
    ),
    *(
        b"Expect: 100-continue",
        b"Expect: x",
        b"Host: other",
        b"Host: a/b",
        b"Host:",
        b"host: q",
        b"Host: q:x",
        b"Host : q",
    ),
    *(
        b"X-Key: \xff\xfe",
        b"X-Key: a\x00b",
        b"X-Key: a\rb",
        b"X-Key: a\nX-TTL: 1",
        b"X-Key",
        b": a",
        b"X Y: a",
        b"X-\xc3: a",
    ),
    *(
        b"X-Long: " + b"y" * 700,
        b"X-Long: " + b"y" * 9000,
        b"Keep-Alive: timeout=5",
        b"X: \x7f",
    ),
    *(
        b"Upgrade: h2c",
        b"Connection: Upgrade\r\nUpgrade: websocket",
        b"Trailer: X",
        b"Range: bytes=0-1",
        b"(x): y",
        b"X@y: z",
    ),
]
_KEYED = [
    b"Idempotency-Key: k%d",
    b"Idempotency-Key: k%d\r\nidempotency-key: a",
    b"Idempotency-Key: %d\r\n b",
    b"Idempotency-Key:%d ",
]
_CHUNKED = [b"Transfer-Encoding: chunked"]
_BODIES = [
    b"",
    b"abc",
    b"3\r\nabc\r\n0\r\n\r\n",
    b"0\r\n\r\n",
    b"5;x=y\r\nhello\r\n0\r\nT: x\r\n\r\n",
    b"ab\r\nc",
    b"3\nabc\n0\n\n",
    b"\r\n",
    b"\n",
]
_BYTES = [
    b"\r\n",
    b"\n",
    b"\r",
    b" ",
    b"\t",
    b"\0",
    b":",
    b",",
    b"\x0b",
    b"\x0c",
    b"\xa0",
    b"\x85",
    b"\x7f",
    b"0",
    b";",
    b"%",
]


def stream(chance: random.Random) -> bytes:
    """One to three requests, of which some are spoiled; the last one is whole in any case."""
    parts = [_request(chance) for _ in range(chance.randint(1, 3))]
    raw = b"".join(parts)
    for _ in range(chance.choice((0, 0, 0, 0, 1, 2))):
        raw = _spoiled(chance, raw)
    return raw + b"GET /v1/nobody/last HTTP/1.1\r\nHost: q" + END


def _request(chance: random.Random) -> bytes:
    """Often good, or else with one or two things that may be read in two ways."""
    odd = chance.choice((0, 0, 1, 1, 2))
    ways = chance.choices(("method", "target", "version", "host", "framing", "framing", "header", "header"), k=odd)
    method = chance.choice(_METHODS if "method" in ways else _METHODS[:7])
    target = chance.choice(_TARGETS if "target" in ways else _TARGETS[:6])
    version = chance.choice(_VERSIONS) if "version" in ways else b"HTTP/1.1"
    body = chance.choice(_BODIES)
    lines = [] if "host" in ways else [b"Host: q"]
    if "framing" not in ways or chance.random() < 0.3:
        lines += chance.choice(([b"Content-Length: %d" % len(body)], [b"Content-Length: %d" % len(body)], _CHUNKED))
    if chance.random() < 0.2:
        lines.append(chance.choice(_KEYED) % chance.randrange(100))
    for way in ways:
        if way in ("framing", "header"):
            lines.insert(chance.randint(0, len(lines)), chance.choice(_FRAMING if way == "framing" else _OTHERS))
    return b"\r\n".join([b" ".join((method, target, version)), *lines]) + END + body


def _spoiled(chance: random.Random, raw: bytes) -> bytes:
    # Most of what matters is where a line ends or a value begins.
    places = [found.start() for found in re.finditer(rb"[\r\n: ]", raw)] or [0]
    at = chance.choice(places) if chance.random() < 0.8 else chance.randrange(len(raw))
    at += chance.choice((0, 0, 1, 2))
    return (
        raw[:at] + (chance.choice(_BYTES) if chance.random() < 0.8 else b"") + raw[at + chance.choice((0, 0, 1, 2)) :]
    )


class Request(NamedTuple):
    """A request as a reader saw it."""

    method: str
    path: str
    query: str
    body: bytes | None
    """None where the reader does not look for its end."""


@dataclass
class Reading:
    """What one reader made of a stream."""

    requests: list[Request] = field(default_factory=list)
    """Whole ones."""
    stopped: bool = False
    """It reads no further, by a refusal or because the connection was to end here; others may."""
    knows: bool = True
    """It reads what comes behind these requests as HTTP, too."""


def differences(ours: Reading, theirs: Reading) -> str | None:
    """Where Queuey sees other requests than somebody else; None if it does not.

    To stop earlier is no difference: what a refusal leaves unread is no request for anybody. Nor is one whose body's
    end Queuey does not look for: it ends the connection.
    """
    for number, (our, their) in enumerate(zip(ours.requests, theirs.requests, strict=False), start=1):
        if our[:3] != their[:3] or (our.body is not None and our.body != their.body):
            return f"request {number} is {our} and {their}"
    whole = [request for request in ours.requests if request.body is not None]
    more = len(whole if len(ours.requests) > len(theirs.requests) else ours.requests) - len(theirs.requests)
    if more > 0 and theirs.knows and not theirs.stopped:
        return f"Queuey sees {more} more"
    if more < 0 and not ours.stopped:
        return f"Queuey sees {-more} less, and does not say so"
    return None


def _request_of(method: str, target: bytes, body: bytes | None) -> Request:
    text = re.sub(r"^https?://[^/?]*", "", target.decode("latin-1"), flags=re.IGNORECASE)
    path, _, query = (text or "/").partition("?")
    return Request(method, decode_path(path), query, body)


# llhttp


class _Messages:
    def __init__(self) -> None:
        self.found: list[tuple[str, bytes, bytes]] = []
        self.parser = HttpRequestParser(self)
        self._target = self._body = b""

    def on_message_begin(self) -> None:
        self._target = self._body = b""

    def on_url(self, target: bytes) -> None:
        self._target += target

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        self.found.append((self.parser.get_method().decode(), self._target, self._body))


def by_llhttp(raw: bytes) -> Reading:
    """As llhttp reads it, strictly."""
    messages = _Messages()
    reading = Reading()
    try:
        messages.parser.feed_data(raw)
    except HttpParserUpgrade:
        reading.knows = False
        messages.found.pop()  # from the end of its head on it would be another protocol
    except HttpParserInvalidMethodError:
        reading.knows = False  # it has no word for it
    except HttpParserError:
        pass  # what it refuses, Queuey refuses: more requests than these are too many
    reading.requests = [_request_of(*found) for found in messages.found]
    return reading


# nginx, and the client behind it


class Backend(socketserver.ThreadingTCPServer):
    """Takes what nginx sends on, and keeps it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Behind)
        self.requests: list[Request] = []
        self.raw = b""

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Behind(socketserver.StreamRequestHandler):
    server: Backend

    def handle(self) -> None:
        while line := self.rfile.readline():
            head, length = line, 0
            while (header := self.rfile.readline()) != b"\r\n":
                head += header
                name, _, value = header.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            body = self.rfile.read(length)
            method, target, _ = line.split(b" ")
            self.server.requests.append(_request_of(method.decode(), target, body))
            self.server.raw += head + b"\r\n" + body
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


@contextmanager
def backend() -> Iterator[Backend]:
    with Backend() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


_OWN_REFUSAL = re.compile(rb"HTTP/1\.1 [45][0-9][0-9] ")


def by_nginx(port: int, behind: Backend, raw: bytes) -> Reading:
    """As nginx reads it; what it sends on is :attr:`Backend.raw`."""
    behind.requests, behind.raw = [], b""
    answers = send(port, raw, half_close=True)
    # The backend answers 200 alone.
    closed = b"Connection: close" in answers
    return Reading(list(behind.requests), stopped=closed or bool(_OWN_REFUSAL.search(answers)))


# Queuey


class Reader:
    """The shipped server's connections over a store in memory, in this process; it keeps the heads that they see."""

    def __init__(self, port: int, heads: list[tuple[bytes, RequestHead]]) -> None:
        self._port = port
        self._heads = heads

    def read(self, raw: bytes) -> Reading:
        """:raises AssertionError: the next request is not looked for where the one before it ends."""
        self._heads.clear()
        answers = send(self._port, raw, half_close=True)
        assert not re.search(rb"HTTP/1\.1 5[0-9][0-9] ", answers), answers
        reading = Reading(stopped=b"connection: close" in answers)
        at = 0
        for head_bytes, head in self._heads:
            begins = raw.index(head_bytes, at)
            assert raw[at:begins] in (b"", b"\r\n"), (raw[at:begins], self._heads)
            at = begins + len(head_bytes)
            if head.length is None:
                reading.requests.append(Request(head.method, head.path, head.query, None))
                assert reading.stopped
                assert len(reading.requests) == len(self._heads)
            elif at + head.length > len(raw):
                reading.stopped = True  # its body is cut short
            else:
                body = raw[at : at + head.length]
                reading.requests.append(Request(head.method, head.path, head.query, body))
                at += head.length
        return reading


@contextmanager
def queuey(spoil: Callable[[bytes], bytes] = bytes) -> Iterator[Reader]:
    """:param spoil: a fault, planted: heads are read as if they had come like this."""
    heads: list[tuple[bytes, RequestHead]] = []

    def kept(raw: bytes) -> RequestHead:
        head = parse_head(spoil(raw))
        heads.append((raw, head))
        return head

    listening: list[int] = []
    ready, over = threading.Event(), threading.Event()

    async def serve() -> None:
        service = Service.open(load_settings(None, {}, {"storage": {"backend": "memory"}}))
        run(service.start(None))
        running = LoopServer(open_pipeline(service))
        loop = asyncio.get_running_loop()
        running.open(loop)
        server = await loop.create_server(lambda: Connection(running), "127.0.0.1", 0)
        listening.append(server.sockets[0].getsockname()[1])
        ready.set()
        try:
            await asyncio.to_thread(over.wait)
            server.close()
            await running.stop()
        finally:
            running.close()
            service.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "parse_head", kept)
        thread = threading.Thread(target=asyncio.run, args=(serve(),))
        thread.start()
        try:
            assert ready.wait(30)
            yield Reader(listening[0], heads)
        finally:
            over.set()
            thread.join()
