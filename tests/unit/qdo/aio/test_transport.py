"""The pool of connections of the client for asyncio."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

from qdo.aio import AsyncClient
from tests.support.client_answers import HEX

WAIT_SECONDS = 60


def answer_of(name: str) -> bytes:
    body = json.dumps({"messages": [{"message_id": HEX, "partition": 1, "timestamp": "1.0", "body": name}]}).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


class TalkativeServer:
    """It answers each request by the name of its queue, and at :attr:`say_more` what nobody asked for, on all connections."""

    def __init__(self, listening: socket.socket) -> None:
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self.connections: list[socket.socket] = []
        self._listening = listening

    def run(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as requests:
            while line := requests.readline():
                if line.startswith(b"GET"):
                    name = line.decode().split("/")[3]
                if line == b"\r\n":
                    connection.sendall(answer_of(name))

    def say_more(self) -> None:
        for connection in self.connections:
            connection.sendall(answer_of("another"))


@contextmanager
def talkative_server() -> Iterator[TalkativeServer]:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        server = TalkativeServer(listening)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(WAIT_SECONDS)


async def _seen(client: AsyncClient) -> None:
    """Let the event loop take what has come on the connections of the pool."""
    for _ in range(10):
        await asyncio.sleep(0)
    await asyncio.get_running_loop().run_in_executor(None, lambda: None)


def test_an_answer_that_nobody_asked_for_is_not_the_answer_to_the_next_request() -> None:
    async def scenario(url: str, server: TalkativeServer) -> list[str]:
        async with AsyncClient(url, "app", "key", retries=0) as client:
            first = await asyncio.gather(*(client.get(name, HEX) for name in "ab"))
            server.say_more()
            await _seen(client)
            second = await asyncio.gather(*(client.get(name, HEX) for name in "cd"))
            return [one.text for (one,) in (*first, *second)]

    with talkative_server() as server:
        found = asyncio.run(asyncio.wait_for(scenario(server.url, server), WAIT_SECONDS))

    assert found == ["a", "b", "c", "d"]
    assert len(server.connections) == 4
