"""A TCP proxy that loses some of what passes through it."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from typing import Self

PIECE = 1 << 16


class Proxy:
    """Stands before a server on a port of its own, and breaks connections in the middle of requests and answers.

    The server may be another one each time: its port is asked for with each connection.
    """

    def __init__(self, upstream: Callable[[], int], loses: float, chance: random.Random) -> None:
        """:param loses: the share of pieces, of requests and of answers, that break their connection."""
        self._upstream = upstream
        self._loses = loses
        self._chance = chance
        self.lost_requests = 0
        self.lost_answers = 0
        self.port = 0
        self._listening = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._listening.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._over = asyncio.Event()
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._listening.set()
        await self._over.wait()
        server.close()

    async def _connection(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        to_server: asyncio.StreamWriter | None = None
        try:
            server, to_server = await asyncio.open_connection("127.0.0.1", self._upstream())
            there = asyncio.ensure_future(self._carry(client, to_server, self._request_lost))
            back = asyncio.ensure_future(self._carry(server, to_client, self._answer_lost))
            await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
            for task in (there, back):
                task.cancel()
            await asyncio.gather(there, back, return_exceptions=True)
        except OSError:
            pass  # the server is away: so is this connection
        finally:
            for end in (to_client, to_server):
                if end is not None:
                    end.transport.abort()

    async def _carry(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, lost: Callable[[], bool]
    ) -> None:
        """Pass on what comes until the end, or until a piece is lost: sometimes after the first half of it."""
        while piece := await source.read(PIECE):
            broken = lost()
            if broken and self._chance.random() < 0.5:
                return
            target.write(piece[: len(piece) // 2] if broken else piece)
            await target.drain()
            if broken:
                return

    def _request_lost(self) -> bool:
        lost = self._chance.random() < self._loses
        self.lost_requests += lost
        return lost

    def _answer_lost(self) -> bool:
        lost = self._chance.random() < self._loses
        self.lost_answers += lost
        return lost
