"""One HTTP/1.1 connection that costs little: requests are bytes made once, answers are taken apart just as far as needed.

The clients of applications spend some 300 µs of processor time on a request; a generator must not be what is measured.
There is one for a thread, and one for a task of an event loop.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import NamedTuple, Protocol, cast
from urllib.parse import urlsplit

from queuey.errors import ConfigurationError, OutcomeUnknown, ServerUnreachable

CONNECT_SECONDS = 5.0
MOST_HEAD = 64 * 1024


class HttpAnswer(NamedTuple):
    """An answer, with the names of its headers in small letters."""

    status: int
    headers: Mapping[bytes, bytes]
    body: bytes


class HttpPlace(NamedTuple):
    """Where requests go."""

    host: str
    port: int
    name: bytes
    """As requests call it."""

    @classmethod
    def of(cls, url: str) -> HttpPlace:
        """:raises ConfigurationError: the URL is not one of plain HTTP."""
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ConfigurationError(f"{url}: this driver speaks plain HTTP: http://HOST:PORT")
        return cls(parts.hostname, parts.port or 80, parts.netloc.rpartition("@")[2].encode())

    def request(self, method: bytes, path: bytes, headers: bytes, body: bytes) -> bytes:
        """:param headers: whole lines, each with its CR LF."""
        form = b"%b %b HTTP/1.1\r\nHost: %b\r\nContent-Length: %d\r\n%b\r\n"
        return form % (method, path, self.name, len(body), headers) + body

    def unreachable(self, error: OSError) -> ServerUnreachable:
        return ServerUnreachable(f"{self.host}:{self.port}: {error}")


class AnswerReader:
    """Takes answers out of what a connection brings, one after the other."""

    __slots__ = ("_came", "_head", "_size")

    def __init__(self) -> None:
        self._came = bytearray()
        self._head: tuple[int, dict[bytes, bytes]] | None = None
        self._size = 0
        """Bytes of the body, once the head is there."""

    def feed(self, piece: bytes) -> HttpAnswer | None:
        """The answer, if it is whole with this piece.

        :raises ValueError: these are no answers, or none of a known length.
        """
        came = self._came
        came += piece
        if self._head is None:
            end = came.find(b"\r\n\r\n")
            if end < 0:
                if len(came) > MOST_HEAD:
                    raise ValueError("the head of the answer has no end")
                return None
            self._take_head(bytes(came[:end]))
            del came[: end + 4]
        if self._head is None or len(came) < self._size:
            return None
        status, headers = self._head
        body = bytes(came[: self._size])
        del came[: self._size]
        self._head = None
        return HttpAnswer(status, headers, body)

    def _take_head(self, head: bytes) -> None:
        first, *lines = head.split(b"\r\n")
        status = int(first[9:12])
        headers = {name.lower(): value.strip() for name, _, value in (one.partition(b":") for one in lines)}
        if status in (204, 304):
            self._size = 0
        elif b"content-length" in headers:
            self._size = int(headers[b"content-length"])
        else:
            raise ValueError("the answer does not say how long it is")
        self._head = status, headers


def _is_last(answer: HttpAnswer) -> bool:
    """The server closes the connection after it."""
    return answer.headers.get(b"connection", b"").lower() == b"close"


class HttpConnection:
    """A connection of a thread to one server, opened when it is needed."""

    def __init__(self, url: str, timeout_seconds: float) -> None:
        """:raises ConfigurationError: the URL is not one of plain HTTP."""
        self._place = HttpPlace.of(url)
        self._timeout = timeout_seconds
        self._socket: socket.socket | None = None
        self._reader = AnswerReader()

    def ask(self, method: bytes, path: bytes, headers: bytes, body: bytes) -> HttpAnswer:
        """Send a request and wait for its answer.

        :param headers: whole lines, each with its CR LF.
        :raises ServerUnreachable: no connection was made, so nothing was sent.
        :raises OutcomeUnknown: the connection broke off, or no answer came in time.
        """
        line = self.open()
        try:
            line.sendall(self._place.request(method, path, headers, body))
            while (answer := self._reader.feed(self._more(line))) is None:
                """More of it has to come."""
        except (OSError, ValueError) as error:
            self.close()
            raise OutcomeUnknown(f"no answer: {error}") from error
        if _is_last(answer):
            self.close()
        return answer

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._reader = None, AnswerReader()

    def open(self) -> socket.socket:
        """Connect, if it is not connected.

        :raises ServerUnreachable: nobody listens there.
        """
        if self._socket is None:
            try:
                self._socket = socket.create_connection(self._place[:2], CONNECT_SECONDS)
            except OSError as error:
                raise self._place.unreachable(error) from error
            self._socket.settimeout(self._timeout)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket

    @staticmethod
    def _more(line: socket.socket) -> bytes:
        piece = line.recv(1 << 18)
        if not piece:
            raise ConnectionResetError("the server closed the connection")
        return piece


class HttpLine(Protocol):
    """A connection as coroutines use it, in a thread or in an event loop."""

    async def ask(self, method: bytes, path: bytes, headers: bytes, body: bytes) -> HttpAnswer:
        """As :meth:`HttpConnection.ask`."""

    def close(self) -> None: ...


class BlockingLine:
    """That of a thread: its coroutine is over when it returns."""

    __slots__ = ("_connection",)

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    async def ask(self, method: bytes, path: bytes, headers: bytes, body: bytes) -> HttpAnswer:
        return self._connection.ask(method, path, headers, body)

    def close(self) -> None:
        self._connection.close()


class _LoopStream(asyncio.Protocol):
    """One connection of a task, from its opening to its end."""

    def __init__(self) -> None:
        self._reader = AnswerReader()
        self._answer: asyncio.Future[HttpAnswer] | None = None
        self.transport: asyncio.Transport | None = None
        """None once it is closed."""

    def ask(self, request: bytes) -> asyncio.Future[HttpAnswer]:
        """:raises ConnectionResetError: it is closed, and nothing was sent."""
        if self.transport is None:
            raise ConnectionResetError("the server closed the connection")
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self._answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """:param transport: of a socket."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """What comes is of the request that is under way."""
        try:
            answer = self._reader.feed(data)
        except ValueError as error:
            self._fail(error)
            return
        if answer is not None and self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """The request that is under way has no answer."""
        self.transport = None
        self._fail(exc if isinstance(exc, OSError) else ConnectionResetError("the server closed the connection"))

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)


class LoopLine:
    """That of a task: other tasks go on while it waits. One request at a time."""

    __slots__ = ("_place", "_stream", "_timeout")

    def __init__(self, url: str, timeout_seconds: float) -> None:
        """:raises ConfigurationError: the URL is not one of plain HTTP."""
        self._place = HttpPlace.of(url)
        self._timeout = timeout_seconds
        self._stream: _LoopStream | None = None

    async def ask(self, method: bytes, path: bytes, headers: bytes, body: bytes) -> HttpAnswer:
        """As :meth:`HttpConnection.ask`."""
        stream = await self._open()
        try:
            async with asyncio.timeout(self._timeout):
                answer = await stream.ask(self._place.request(method, path, headers, body))
        except (OSError, ValueError) as error:
            self.close()
            raise OutcomeUnknown(f"no answer: {str(error) or 'none came in time'}") from error
        if _is_last(answer):
            self.close()
        return answer

    def close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None and stream.transport is not None:
            stream.transport.abort()

    async def _open(self) -> _LoopStream:
        if self._stream is None or self._stream.transport is None:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    loop = asyncio.get_running_loop()
                    _, self._stream = await loop.create_connection(_LoopStream, self._place.host, self._place.port)
            except OSError as error:
                raise self._place.unreachable(error) from error
        return self._stream
