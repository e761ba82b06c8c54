"""``python -m tests.bench.asyncio_client``: a program that appends from many tasks at once, by one of several clients."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import cast
from urllib.parse import urlsplit

import aiohttp
import httptools
import httpx
from yarl import URL

from qdo.aio import AsyncClient
from qdo.aio.transport import AsyncTransport
from qdo.client import NewMessage
from qdo.client.steps import NoAnswer, Reply, Request
from tests.bench.plan import BODY, CONNECTIONS, TTL_SECONDS
from tests.bench.servers import APPLICATION, AUTHORIZATION, KEY

Append = Callable[[], Awaitable[object]]
QUEUE = "appended"
PATH = f"/v1/{APPLICATION}/{QUEUE}"
HEADERS = {**AUTHORIZATION, "X-TTL": str(TTL_SECONDS)}


class _Connection(asyncio.Protocol):
    """One connection of the smallest client: it sends a request, and takes the status and the body of the answer."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answered: asyncio.Future[tuple[int, bytes]] | None = None
        self._body = b""
        self._parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, piece: bytes) -> None:
        self._body += piece

    def on_message_complete(self) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result((self._parser.get_status_code(), self._body))
        self._body = b""

    def connection_lost(self, error: Exception | None) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error or ConnectionResetError())

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        assert self._transport is not None
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answered

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class _Pool:
    """The smallest client: connections, and httptools."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url)
        self._idle: list[_Connection] = []
        self._every: list[_Connection] = []

    async def ask(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self._address.netloc}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        connection = self._idle.pop() if self._idle else await self._connected()
        found = await asyncio.wait_for(connection.ask("\r\n".join([*lines, "", ""]).encode() + body), 30)
        self._idle.append(connection)
        return found

    async def _connected(self) -> _Connection:
        host, port = str(self._address.hostname), self._address.port or 80
        _, connection = await asyncio.get_running_loop().create_connection(_Connection, host, port)
        self._every.append(connection)
        return connection

    def close(self) -> None:
        for one in self._every:
            one.close()


@asynccontextmanager
async def by_core(url: str) -> AsyncIterator[Append]:
    pool = _Pool(url)

    async def append() -> None:
        status, body = await pool.ask("POST", PATH, HEADERS, BODY.encode())
        assert status == 201, body
        json.loads(body)

    try:
        yield append
    finally:
        pool.close()


@asynccontextmanager
async def by_aiohttp(url: str) -> AsyncIterator[Append]:
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=30)
    async with aiohttp.ClientSession(
        timeout=timeout, connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar()
    ) as session:

        async def append() -> None:
            where = URL(url + PATH, encoded=True)
            async with session.post(where, data=BODY.encode(), headers=HEADERS, allow_redirects=False) as answer:
                assert answer.status == 201
                json.loads(await answer.read())

        yield append


@asynccontextmanager
async def by_httpx(url: str) -> AsyncIterator[Append]:
    async with httpx.AsyncClient(timeout=30, limits=httpx.Limits(max_connections=None)) as client:

        async def append() -> None:
            answer = await client.post(url + PATH, content=BODY.encode(), headers=HEADERS)
            assert answer.status_code == 201
            json.loads(answer.content)

        yield append


class _OnCore(AsyncTransport):
    """What carries out the calls of the whole client, on the smallest one."""

    def __init__(self, url: str) -> None:
        super().__init__(url, asyncio.sleep)
        self._pool = _Pool(url)

    async def aclose(self) -> None:
        self._pool.close()

    async def _attempt(self, wanted: Request) -> Reply | NoAnswer:
        target = wanted.url.removeprefix(self._root)
        try:
            status, body = await self._pool.ask(wanted.method, target, wanted.headers, bytes(wanted.body or b""))
        except OSError as error:
            return NoAnswer(error)
        return Reply(status, "", {}, body, wanted.url)


@asynccontextmanager
async def by_qdo(url: str, *, on_core: bool = False) -> AsyncIterator[Append]:
    """The whole client: with an idempotency key, repeats and values."""
    async with AsyncClient(url, APPLICATION, KEY) as client:
        if on_core:
            client._transport = _OnCore(url)

        async def append() -> None:
            await client.append(QUEUE, NewMessage(BODY, ttl_seconds=TTL_SECONDS))

        yield append


WAYS: dict[str, Callable[[str], AbstractAsyncContextManager[Append]]] = {
    "core": by_core,
    "aiohttp": by_aiohttp,
    "httpx": by_httpx,
    "qdo.aio": by_qdo,
    "qdo.aio on the core": partial(by_qdo, on_core=True),
}


async def _work(way: str, url: str, seconds: float) -> dict[str, float]:
    async with WAYS[way](url) as append:
        await asyncio.gather(*(append() for _ in range(CONNECTIONS)))
        done, began, used = 0, time.perf_counter(), time.process_time()

        async def repeat() -> None:
            nonlocal done
            while time.perf_counter() - began < seconds:
                await append()
                done += 1

        await asyncio.gather(*(repeat() for _ in range(CONNECTIONS)))
        took, used = time.perf_counter() - began, time.process_time() - used
    return {"rate": done / took, "cpu_us": used / done * 1e6}


if __name__ == "__main__":
    _way, _url, _seconds = sys.argv[1:]
    print(json.dumps(asyncio.run(_work(_way, _url, float(_seconds)))))
