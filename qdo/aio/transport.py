"""Carries out the steps of calls in an event loop."""

from __future__ import annotations

import asyncio
import io
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import CancelledError as LoopEnded
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import urlsplit
from weakref import WeakSet

import aiohttp
import requests
from aiohttp.connector import Connection
from yarl import URL

from qdo.client.steps import InThread, Items, Listing, NoAnswer, Pause, Read, Reply, Request, Step, Steps, advance
from qdo.client.surroundings import TLS_HINT, proxy_for, trusted_context
from queuey.errors import ConfigurationError

__all__ = ["AsyncTransport", "GivenUp"]

T = TypeVar("T")
GivenUp = Callable[[Request, asyncio.CancelledError], None]
"""Learns that a call was cancelled, and the request that may be under way."""

_PIECE_BYTES = 1 << 16
_HEADER_BYTES = 1 << 16
"""Of one header. A cursor of many partitions is long."""
_LARGE_BYTES = 1 << 20
"""A larger body goes in pieces, so that other tasks run meanwhile."""


class AsyncTransport:
    """One pool of connections, for one event loop.

    Each call has a connection while it runs, so a receiver that waits holds up no other call.
    """

    def __init__(self, root: str, sleep: Callable[[float], Awaitable[None]]) -> None:
        """:param root: the address of the server."""
        self._root, self._sleep = root, sleep
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def aclose(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def do(self, steps: Steps[T], given_up: GivenUp | None = None) -> T:
        """Carry out a call."""
        outcome: Any = None
        asked: Request | None = None
        try:
            while True:
                step = advance(steps, outcome)
                asked = step if isinstance(step, Request) else asked
                outcome = await self._outcome(step)
        except StopIteration as end:
            result: T = end.value
            return result
        except asyncio.CancelledError as error:
            if asked is not None and given_up is not None:
                given_up(asked, error)
            raise
        finally:
            steps.close()

    async def each(self, steps: Listing[T]) -> AsyncGenerator[T, None]:
        """Carry out a call whose results come one after the other."""
        outcome: Any = None
        try:
            while True:
                step = advance(steps, outcome)
                outcome = None
                if isinstance(step, Items):
                    for item in step.items:
                        yield item
                else:
                    outcome = await self._outcome(step)
        except StopIteration:
            return
        finally:
            steps.close()

    async def _outcome(self, step: Step) -> Any:
        match step:
            case Request():
                return await self._attempt(step)
            case Pause(seconds):
                return await self._sleep(seconds)
            case InThread(function):
                return await asyncio.to_thread(function)
            case Read(answer, seconds):
                return await answer.source.next(seconds) if isinstance(answer.source, _Source) else b""

    async def _attempt(self, wanted: Request) -> Reply | NoAnswer:
        body = wanted.body
        try:
            response = await self._opened().request(
                wanted.method,
                URL(wanted.url, encoded=True),
                data=io.BytesIO(body) if body is not None and len(body) > _LARGE_BYTES else body,
                headers=wanted.headers,
                allow_redirects=False,
                timeout=_timeout(wanted.connect_seconds, wanted.silence_seconds),
                middlewares=() if wanted.method in ("GET", "POST") else (_send_once,),
            )
            if wanted.is_stream and response.status < 300:
                source = _Source(response, asyncio.get_running_loop())
                return Reply(response.status, response.reason or "", response.headers, b"", wanted.url, source)
            whole = await response.read()  # this ends with the connection back in the pool, or closed
        except (aiohttp.ClientError, OSError) as error:
            return _no_answer(error)
        return Reply(response.status, response.reason or "", response.headers, whole, wanted.url)

    def _opened(self) -> aiohttp.ClientSession:
        """:raises ConfigurationError: the client belongs to another event loop."""
        loop = asyncio.get_running_loop()
        if self._session is None:
            self._session, self._loop = _session(self._root), loop
        if self._loop is not loop:
            raise ConfigurationError("a client belongs to the event loop of its first call: make one in each loop")
        return self._session


@lru_cache(64)
def _timeout(connect_seconds: float, silence_seconds: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, sock_connect=connect_seconds, sock_read=silence_seconds)


def _session(root: str) -> aiohttp.ClientSession:
    """A session that goes through the same proxy and trusts the same authorities as the blocking client."""
    proxy = _proxy(proxy_for(root))
    trusted = trusted_context(root) if root.startswith("https:") else True
    return aiohttp.ClientSession(
        connector=_Connector(limit=0, ssl=trusted),
        proxy=proxy,
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=["Content-Type"],
        max_field_size=_HEADER_BYTES,
        max_line_size=_HEADER_BYTES,
    )


def _proxy(named: str | None) -> str | None:
    """:raises ConfigurationError: it is none for HTTP. The error does not show it: it may have a password."""
    if named is None:
        return None
    try:
        proxy: str = requests.utils.prepend_scheme_if_needed(named, "http")  # type: ignore[no-untyped-call]
        parts = urlsplit(proxy)
    except ValueError:
        raise ConfigurationError("a proxy of the environment is none for HTTP") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(f"a proxy of the environment is none for HTTP: {parts.scheme}")
    return proxy


class _Connector(aiohttp.TCPConnector):
    """Takes up no connection on which something came that nobody asked for: it would be the answer to the next request."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self._used = WeakSet[asyncio.BaseProtocol]()

    async def connect(self, *args: Any, **named: Any) -> Connection:
        """A connection, new or from the pool."""
        while True:
            connection = await super().connect(*args, **named)
            protocol = connection.protocol
            if protocol is None or protocol not in self._used or not protocol.should_close:
                break
            connection.close()
        if protocol is not None:
            self._used.add(protocol)
        return connection


async def _send_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Keep aiohttp from repeating a PUT or DELETE by itself: a lost answer must be known as one."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientConnectionError(str(error)) from error


def _no_answer(error: Exception) -> NoAnswer:
    if isinstance(error, ssl.SSLError | ssl.CertificateError):
        return NoAnswer(f"{error}; {TLS_HINT}", is_final=True)
    if isinstance(error, aiohttp.ClientHttpProxyError) and 400 <= error.status < 500:
        # Not the error's own text: it has the password of the proxy.
        return NoAnswer(f"the proxy refuses: {error.status} {error.message}", is_final=True)
    kinds = aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | aiohttp.ClientHttpProxyError
    never_sent = isinstance(error, kinds)
    by_proxy = isinstance(error, aiohttp.ClientProxyConnectionError | aiohttp.ClientHttpProxyError)
    return NoAnswer(str(error) or type(error).__name__, never_sent=never_sent, by_proxy=by_proxy)


@dataclass(frozen=True, slots=True)
class _Source:
    """The unread body of a response."""

    response: aiohttp.ClientResponse
    loop: asyncio.AbstractEventLoop

    def close(self) -> None:
        self.response.close()

    interrupt = close

    def file(self) -> Any:
        return _BlockingFile(self)

    async def next(self, seconds: float | None) -> bytes | NoAnswer | None:
        """:param seconds: None if nothing comes in this time; nothing is lost then."""
        try:
            async with asyncio.timeout(seconds):
                return await self.read()
        except TimeoutError:
            return None

    async def read(self, size: int = _PIECE_BYTES) -> bytes | NoAnswer:
        try:
            return await self.response.content.read(size)
        except (aiohttp.ClientError, OSError) as error:
            return NoAnswer(error)


class _BlockingFile(io.RawIOBase):
    """The bytes of a response for a thread beside the event loop."""

    def __init__(self, source: _Source) -> None:
        self._source = source

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """All of these bytes, or fewer at the end.

        :raises OSError: the answer broke off, or the event loop ended.
        """
        found = bytearray()
        while len(found) < size:
            try:
                piece = asyncio.run_coroutine_threadsafe(
                    self._source.read(size - len(found)), self._source.loop
                ).result()
            except (RuntimeError, LoopEnded) as error:
                raise OSError("the event loop ended") from error
            if isinstance(piece, NoAnswer):
                raise OSError(str(piece))
            if not piece:
                break
            found += piece
        return bytes(found)
