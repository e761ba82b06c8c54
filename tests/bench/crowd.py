"""``python -m tests.bench.crowd HOST PORT CONNECTIONS SECONDS``: a crowd that asks again at once, whatever it is answered.

Each connection sends an append, waits for the answer and sends the next one: a refusal and its Retry-After change nothing.
It runs in a process of its own and prints the result as one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from time import perf_counter

import uvloop

from tests.bench.drivers import append_one
from tests.bench.measure import percentile

CONNECT_AT_ONCE = 200
WARM_SECONDS = 2.0
QUEUE = "crowded"
_END_OF_HEAD = b"\r\n\r\n"
_LENGTH = b"content-length: "


class _Client(asyncio.Protocol):
    """One connection. Answers have a length; one that is cut in two is put together."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._rest = b""
        self._sent = 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def send(self) -> None:
        if self._transport is not None:
            self._sent = perf_counter()
            self._transport.write(self._crowd.request)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data if self._rest else data
        end = data.find(_END_OF_HEAD)
        at = data.find(_LENGTH)
        if end < 0 or at < 0 or len(data) < end + 4 + int(data[at + 16 : data.index(b"\r", at)]):
            self._rest = data
            return
        self._rest = b""
        self._crowd.answered(data[9:12], perf_counter() - self._sent)
        self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._crowd.lost += 1


class Crowd:
    """What all of them have been answered."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.lost = 0
        self.refused = 0
        self.took: list[float] = []
        self.others: set[bytes] = set()

    def answered(self, status: bytes, took: float) -> None:
        if status == b"201":
            self.took.append(took)
        elif status == b"429":
            self.refused += 1
        else:
            self.others.add(status)

    def forget(self) -> None:
        """Count from now on."""
        self.took, self.refused = [], 0


async def _ask(host: str, port: int, connections: int, seconds: float) -> Crowd:
    loop = asyncio.get_running_loop()
    crowd = Crowd(append_one(QUEUE).encode())
    clients: list[_Client] = []
    for start in range(0, connections, CONNECT_AT_ONCE):
        some = range(min(CONNECT_AT_ONCE, connections - start))
        made = await asyncio.gather(*(loop.create_connection(lambda: _Client(crowd), host, port) for _ in some))
        clients += [client for _, client in made]
    for client in clients:
        client.send()
    await asyncio.sleep(WARM_SECONDS)
    crowd.forget()
    await asyncio.sleep(seconds)
    return crowd


def main(host: str, port: int, connections: int, seconds: float) -> None:
    crowd = uvloop.run(_ask(host, port, connections, seconds))
    took = crowd.took or [float("inf")]
    said = {
        "accepted": len(crowd.took) / seconds,
        "refused": crowd.refused / seconds,
        "p50_ms": percentile(took, 0.5) * 1000,
        "p99_ms": percentile(took, 0.99) * 1000,
        "lost": crowd.lost,
        "others": sorted(status.decode() for status in crowd.others),
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
