"""The shipped server in this process: a connection gets its bytes by hand, without a socket."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from queuey.future import run
from queuey.model import Queue
from queuey.monitor.metrics import REQUESTS_IN_PROGRESS
from queuey.server.connection import Connection
from queuey.server.faces import open_pipeline
from queuey.server.loop import LoopServer
from queuey.service import Service
from queuey.service.queues import QueueSettings
from queuey.settings import Settings, load_settings

T = TypeVar("T")
KEY = "b" * 32
PATH = b"/v1/demo/q"
MIB = 1 << 20
LARGE = 8
"""Messages of a MiB each, that :func:`reading` asks for."""


class Wire(asyncio.Transport):
    """The client's side: what it was sent, and how much of it it takes."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection
        self.received = b""
        self.room = 1 << 30
        self.high = 64 << 10
        """Bytes that are held for the client before it counts as taking nothing."""
        self.reading = True
        self.half_closed = False
        self._over = False
        connection.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.half_closed
        self.received += bytes(data)
        self.room -= len(data)
        self._look()

    def takes(self, size: int) -> None:
        """The client takes so much more."""
        self.room += size
        if -self.room <= self.high // 4 and not self.connection.flowing:
            self.connection.resume_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = 64 << 10 if high is None else high
        self._look()

    def _look(self) -> None:
        if -self.room > self.high and self.connection.flowing:
            self.connection.pause_writing()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def write_eof(self) -> None:
        self.half_closed = True

    def is_over(self) -> bool:
        """The server has closed it."""
        return self._over

    def is_ending(self) -> bool:
        """The server sends nothing more."""
        return self._over or self.half_closed

    def close(self) -> None:
        if not self._over:
            self._over = True
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    abort = close


class House:
    """A server over a store in memory, in this process."""

    def __init__(self, **given: Any) -> None:
        self.settings: Settings = load_settings(None, {}, {"storage": {"backend": "memory"}, **given})
        self.service = Service.open(self.settings)
        run(self.service.start(KEY))
        run(self.service.queues.create("demo", "q", QueueSettings()))
        self.server = LoopServer(open_pipeline(self.service))
        self.server.open(asyncio.get_running_loop())
        self.server._timer.cancel()  # seconds pass by pass_time alone, however long a test takes

    def wire(self) -> Wire:
        return Wire(Connection(self.server))

    def find(self, name: str) -> Queue:
        queue = run(self.service.queues.find("demo", name))
        assert queue is not None
        return queue

    async def pass_time(self, seconds: int) -> None:
        """The server's clock moves on by this number of seconds, and what is due happens."""
        for _ in range(seconds + 1):
            self.server.tick()
            await asyncio.sleep(0)

    @property
    def under_way(self) -> float:
        return self.service.monitor.value(REQUESTS_IN_PROGRESS)

    def close(self) -> None:
        self.server.close()
        self.service.close()


def at_home(test: Callable[[House], Coroutine[Any, Any, T]], **given: Any) -> T:
    """Run a test on a loop of its own, with a queue ``q`` at hand."""

    async def main() -> T:
        house = House(**given)
        try:
            return await asyncio.wait_for(test(house), 90)
        finally:
            house.close()

    return asyncio.run(main())


def request(method: bytes, path: bytes, *headers: bytes) -> bytes:
    key = b"Authorization: Application " + KEY.encode()
    return b"\r\n".join([method + b" " + path + b" HTTP/1.1", b"Host: q", key, *headers]) + b"\r\n\r\n"


async def until(look: Callable[[], bool]) -> None:
    while not look():  # noqa: ASYNC110 - it is other threads that are waited for
        await asyncio.sleep(0.001)


async def answered(wire: Wire, count: int = 1) -> list[int]:
    """The statuses of the answers, once there are this many."""
    await until(lambda: len(_statuses(wire)) >= count)
    return _statuses(wire)


def _statuses(wire: Wire) -> list[int]:
    """Of the answers that have begun: the body of the last one may still be on its way."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", wire.received)]


WHOLE = request(b"POST", PATH, b"Content-Length: 5", b"X-Request-Id: mine") + b"hello"


async def reading(house: House, accept: bytes) -> Wire:
    """A client that asks for :data:`LARGE` messages of a MiB each, and takes nothing of the answer yet."""
    for _ in range(LARGE):
        wire = house.wire()
        wire.connection.data_received(request(b"POST", PATH, b"Content-Length: %d" % MIB) + b"x" * MIB)
        await until(lambda wire=wire: b"201 Created" in wire.received)  # type: ignore[misc]
        wire.connection.connection_lost(None)
    wire = house.wire()
    wire.room = 0
    wire.connection.data_received(request(b"GET", PATH, b"Accept: " + accept, b"Connection: close"))
    await until(lambda: wire.room < 0)
    return wire


def status_of(wire: Wire) -> int | None:
    """Of the first answer; None before it has begun."""
    return next(iter(_statuses(wire)), None)
