"""A network that misbehaves on demand: a TCP proxy before one server.

The faults are those of networks, changed while connections are open, for one way or both:

- ``delay``: what passes arrives later, in order, however much is under way;
- ``throttle``: a bound on the bytes a second of each connection;
- ``drop``: nothing arrives, and neither end notices. TCP repeats what is lost: after ``heal`` all of it comes, late;
- ``cut``: connections are reset, and new ones too, until ``heal``;
- ``lose``: each piece that passes may break its connection, some of them after half of it has arrived.
"""

from __future__ import annotations

import asyncio
import math
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from enum import Enum
from typing import Any, Self, TypeVar

T = TypeVar("T")
Address = tuple[str, int]
Line = asyncio.Queue[tuple[float, bytes | None]]
"""What is under way: when it arrives, and what; nothing in it is an end, None a reset."""

PIECE = 1 << 16
PIECES_UNDER_WAY = 256
RESET_WHEN_CLOSED = struct.pack("ii", 1, 0)
"""SO_LINGER on, for no time: the other end learns of a reset instead of an end."""


class Way(Enum):
    """Which way a fault is for."""

    THERE = "there"
    """From clients to the server: requests."""
    BACK = "back"
    """From the server to clients: answers."""


BOTH = (Way.THERE, Way.BACK)


class Conditions:
    """What one way is like now."""

    def __init__(self) -> None:
        self.passes = asyncio.Event()
        self.lost = 0
        self.under_way = Counter[Address]()
        """By the client's address of the connection."""
        self.heal()

    def heal(self) -> None:
        self.delay_seconds = 0.0
        self.bytes_per_second = math.inf
        self.loses = 0.0
        self.passes.set()


class Lost(ConnectionError):
    """A piece broke its connection."""


class Proxy:
    """Stands before a server, on an address of its own, while it is open as a context manager.

    A verb has happened when it returns; any thread may call it.
    """

    def __init__(
        self,
        upstream: Callable[[], Address],
        *,
        listen: Address = ("127.0.0.1", 0),
        chance: random.Random | None = None,
    ) -> None:
        """:param upstream: where the server is; asked with each connection, since it may be another one each time.
        :param chance: decides what is lost.
        """
        self._upstream = upstream
        self._listen = listen
        self._chance = chance or random.Random()
        self._ways = {way: Conditions() for way in Way}
        self._is_cut = False
        self._connections: set[asyncio.Task[None]] = set()
        self._open: set[asyncio.WriteTransport] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._server = self._within(asyncio.start_server(self._accept, *self._listen))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._within(self._close())
        self._end()

    @property
    def address(self) -> Address:
        """Where clients connect."""
        host, port = self._server.sockets[0].getsockname()
        return host, port

    @property
    def url(self) -> str:
        host, port = self.address
        return f"http://{host}:{port}"

    def lost(self, way: Way) -> int:
        """How many pieces have broken their connection since the proxy began."""
        return self._ways[way].lost

    def under_way(self, way: Way, *, besides: Address | None = None) -> int:
        """How many pieces are held back now; only right as long as no connection has broken meanwhile.

        :param besides: the client's address of a connection that does not count.
        """
        return sum(pieces for client, pieces in [*self._ways[way].under_way.items()] if client != besides)

    def delay(self, seconds: float, ways: Iterable[Way] = BOTH) -> None:
        self._change(ways, lambda way: setattr(way, "delay_seconds", seconds))

    def throttle(self, bytes_per_second: float, ways: Iterable[Way] = BOTH) -> None:
        self._change(ways, lambda way: setattr(way, "bytes_per_second", bytes_per_second))

    def drop(self, ways: Iterable[Way] = BOTH) -> None:
        self._change(ways, lambda way: way.passes.clear())

    def lose(self, share: float, ways: Iterable[Way] = BOTH) -> None:
        """:param share: of the pieces, each of them mostly what the sender wrote at once."""
        self._change(ways, lambda way: setattr(way, "loses", share))

    def cut(self) -> None:
        self._within(self._cut())

    def heal(self) -> None:
        """The network is fine again; what was cut stays so, and may connect anew."""
        self._is_cut = False
        self._change(BOTH, Conditions.heal)

    def _within(self, work: Coroutine[Any, Any, T]) -> T:
        """Have something done by the proxy's own thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _change(self, ways: Iterable[Way], change: Callable[[Conditions], object]) -> None:
        async def apply() -> None:
            for way in ways:
                change(self._ways[way])

        self._within(apply())

    async def _cut(self) -> None:
        self._is_cut = True
        for transport in list(self._open):
            _reset(transport)

    async def _close(self) -> None:
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _accept(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        connection = self._loop.create_task(self._connection(client, to_client))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _connection(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """Carry what comes both ways until both have ended, or one of them breaks."""
        ends, address = [to_client.transport], to_client.get_extra_info("peername")
        self._open.add(to_client.transport)
        try:
            if self._is_cut:
                return
            server, to_server = await asyncio.open_connection(*self._upstream())
            ends.append(to_server.transport)
            self._open.add(to_server.transport)
            async with asyncio.TaskGroup() as carrying:
                for source, target, way in ((client, to_server, Way.THERE), (server, to_client, Way.BACK)):
                    line: Line = asyncio.Queue(PIECES_UNDER_WAY)
                    carrying.create_task(self._take(source, line, self._ways[way], address))
                    carrying.create_task(self._give(line, target, self._ways[way], address))
            for end in (to_client, to_server):
                end.close()
                await end.wait_closed()
        except* OSError:
            pass  # broken on purpose, or the server is away: so is this connection
        finally:
            for transport in ends:
                _reset(transport)
                self._open.discard(transport)

    async def _take(self, source: asyncio.StreamReader, line: Line, way: Conditions, client: Address) -> None:
        piece: bytes | None = None
        while piece != b"":
            try:
                piece = await source.read(PIECE)
            except OSError:
                piece = None
            way.under_way[client] += 1
            await line.put((self._loop.time() + way.delay_seconds, piece))
            if piece is None:
                return

    async def _give(self, line: Line, target: asyncio.StreamWriter, way: Conditions, client: Address) -> None:
        while True:
            due, piece = await line.get()
            await asyncio.sleep(due - self._loop.time())
            await way.passes.wait()
            way.under_way[client] -= 1
            if piece is None:
                raise ConnectionResetError
            if not piece:
                target.write_eof()
                return
            await asyncio.sleep(len(piece) / way.bytes_per_second)
            broken = self._chance.random() < way.loses
            if broken:
                piece = piece[: len(piece) // 2] if self._chance.random() < 0.5 else b""
            target.write(piece)
            await target.drain()
            if broken:
                way.lost += 1
                raise Lost


def _reset(transport: asyncio.WriteTransport) -> None:
    if not transport.is_closing():
        connection: socket.socket = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_WHEN_CLOSED)
        transport.abort()
