"""From the moment an append is sent to the moment a reader that asks again and again has the message.

Writer and reader are processes of their own, and speak HTTP over plain sockets: what they would
spend on a client library would be measured as the server's. ``python -m tests.bench.arrival PORT
COUNT`` is the writer.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from socket import IPPROTO_TCP, TCP_NODELAY, create_connection
from typing import Any, TypeVar

import orjson

from tests.bench.drivers import request
from tests.bench.measure import BenchFailed
from tests.bench.plan import BODY_BYTES, TTL_SECONDS, Plan
from tests.bench.servers import APPLICATION, ROOT, Server, queuey
from tests.bench.table import Row, times

T = TypeVar("T")

QUEUE = "arrival"
RATE = 200
_PATH = f"/v1/{APPLICATION}/{QUEUE}"
_PATIENCE_SECONDS = 30
WAIT_SECONDS = 20
MOST_RECEIVED = 100


class Asking:
    """One kept connection, one request at a time."""

    def __init__(self, port: int) -> None:
        self._socket = create_connection(("127.0.0.1", port), timeout=_PATIENCE_SECONDS)
        self._socket.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        self._got = b""

    def ask(self, text: str) -> tuple[dict[bytes, bytes], bytes]:
        """Headers, by lower-case name, and body of the answer."""
        self._socket.sendall(text.encode())
        while b"\r\n\r\n" not in self._got:
            self._receive()
        head, _, rest = self._got.partition(b"\r\n\r\n")
        status, *lines = head.split(b"\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(b": ") for line in lines)}
        self._got = rest
        length = int(headers[b"content-length"])
        while len(self._got) < length:
            self._receive()
        body, self._got = self._got[:length], self._got[length:]
        if status.split(b" ")[1][:1] != b"2":
            raise BenchFailed(f"{status!r}: {body!r}")
        return headers, body

    def _receive(self) -> None:
        data = self._socket.recv(1 << 18)
        if not data:
            raise BenchFailed("the server closed a connection")
        self._got += data


def write(port: int, count: int) -> None:
    """Append ``count`` messages at an even rate; each says when it was sent, or was due if that was earlier."""
    asking, began, answered = Asking(port), time.monotonic_ns(), 0
    for turn in range(count):
        due = began + turn * 1_000_000_000 // RATE
        time.sleep(max(due - time.monotonic_ns(), 0) / 1e9)
        sent = time.monotonic_ns() if answered <= due else due
        body = f"{turn} {sent} ".ljust(BODY_BYTES, "x")
        asking.ask(request("POST", _PATH, body, X_TTL=str(TTL_SECONDS)))
        answered = time.monotonic_ns()


def follow(port: int, count: int, *, wait_seconds: int = 0) -> tuple[list[float], int]:
    """Ask until ``count`` messages have come.

    :returns: milliseconds that each took, and how often was asked.
    """
    asking, took, asked = Asking(port), list[float](), 0
    wait = f"wait={wait_seconds}&" if wait_seconds else ""
    query = wait
    while len(took) < count:
        headers, body = asking.ask(request("GET", f"{_PATH}?{query}"))
        now = time.monotonic_ns()
        query = f"{wait}cursor={headers[b'queuey-cursor'].decode()}"
        asked += 1
        note_arrivals(orjson.loads(body)["messages"], now, took)
    return took, asked


def receive(port: int, count: int) -> list[float]:
    """Wait for leases until ``count`` messages have come, and acknowledge with the next request.

    :returns: milliseconds that each took.
    """
    asking, took, settled = Asking(port), list[float](), list[str]()
    while len(took) < count:
        wanted = {"acknowledge": settled, "receive": {"max": MOST_RECEIVED, "wait": WAIT_SECONDS}}
        _, body = asking.ask(request("POST", f"{_PATH}/leases/bench", orjson.dumps(wanted).decode()))
        now = time.monotonic_ns()
        messages = orjson.loads(body)["messages"]
        settled = [message["receipt"] for message in messages]
        note_arrivals(messages, now, took)
    return took


def note_arrivals(messages: list[dict[str, Any]], now: int, took: list[float]) -> None:
    """Add the milliseconds that each of these messages took."""
    for message in messages:
        turn, sent, _ = message["body"].split(" ")
        if int(turn) != len(took):
            raise BenchFailed(f"message {turn} came in place {len(took)}")
        took.append((now - int(sent)) / 1e6)


def measure(plan: Plan) -> Iterator[Row]:
    """200 appends a second, one reader that never rests."""
    with queuey(plan.fresh("arrival")) as server:
        server.create(QUEUE)
        took, asked = beside_a_writer(server, round(RATE * plan.seconds * plan.rounds), follow)
    yield times(
        f"append to arrival at a reader that asks again and again, {RATE} appends/s",
        took,
        more=f"; {asked / len(took):.0f} questions a message",
        first="p99 <= 10 ms",
        goal="p50 <= 0.8 ms, p99 <= 4 ms",
    )


def beside_a_writer(server: Server, count: int, follow: Callable[[int, int], T]) -> T:
    """What ``follow`` gives for a port and a number of messages, of a queue that is empty so far, beside a writer."""
    command = [sys.executable, "-m", "tests.bench.arrival", str(server.port), str(count)]
    with subprocess.Popen(command, cwd=ROOT) as writer:
        try:
            return follow(server.port, count)
        finally:
            writer.terminate()


if __name__ == "__main__":
    write(int(sys.argv[1]), int(sys.argv[2]))
