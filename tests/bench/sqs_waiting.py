"""Long polls of SQS clients, thousands of them, and how long a message takes to one of them.

``python -m tests.bench.sqs_waiting PORT COUNT`` is such a crowd: it reads a line of JSON with the requests of each
connection, waits, deletes what comes, waits again, and prints how long each message took, in milliseconds, once it has
them all. Datagrams to the port that it prints first say how late it is itself: their times come with the others.
"""

from __future__ import annotations

import asyncio
import json
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import orjson
import uvloop
from botocore.credentials import Credentials

from tests.bench.arrival import RATE, WAIT_SECONDS, Asking
from tests.bench.measure import BenchFailed, percentile, until
from tests.bench.plan import BODY_BYTES, Plan
from tests.bench.servers import ROOT, Server, access_key, queuey
from tests.bench.sqs import OPEN, make_queue, signed
from tests.bench.table import Row, times

POLLS = 5_000
QUEUES = 100
_START_SECONDS = _PATIENCE_SECONDS = 60
_LENGTH = re.compile(rb"content-length: (\d+)\r\n", re.IGNORECASE)
_END_OF_HEAD = b"\r\n\r\n"


class _Poll(asyncio.Protocol):
    """One connection: it waits for messages, deletes what has come, and waits again."""

    def __init__(self, poll: str, delete: list[str], arrived: _Arrived) -> None:
        """:param poll: a request for messages.
        :param delete: a request up to the length of its body, and that body with ``@`` for a receipt handle.
        """
        self._poll = poll.encode()
        self._head, self._body = delete
        self._arrived, self._got, self._handles = arrived, b"", list[str]()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        transport.write(self._poll)

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, found, rest = self._got.partition(_END_OF_HEAD)
        length = _LENGTH.search(head + b"\r\n")
        if not found or length is None or len(rest) < int(length[1]):
            return
        now = time.monotonic_ns()
        self._got = b""
        if not head.startswith(b"HTTP/1.1 200 "):
            self._arrived.fail(f"{head!r} {rest!r}")
            return
        for message in orjson.loads(rest).get("Messages", ()):
            self._arrived.note((now - int(message["Body"].split(" ")[0])) / 1e6)
            self._handles.append(message["ReceiptHandle"])
        if self._transport is not None:
            self._transport.write(self._deletion() if self._handles else self._poll)

    def _deletion(self) -> bytes:
        body = self._body.replace("@", self._handles.pop())
        return f"{self._head}Content-Length: {len(body)}\r\n\r\n{body}".encode()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived.fail("the server closed a connection")


class _Arrived:
    """How long messages took, until all have come."""

    def __init__(self, count: int) -> None:
        self._count, self._took = count, list[float]()
        self.all: asyncio.Future[list[float]] = asyncio.get_running_loop().create_future()

    def note(self, milliseconds: float) -> None:
        self._took.append(milliseconds)
        if len(self._took) == self._count:
            self.all.set_result(self._took)

    def fail(self, why: str) -> None:
        if not self.all.done():
            self.all.set_exception(BenchFailed(why))


class _Own(asyncio.DatagramProtocol):
    """How long datagrams took that the sender of the messages sends as well: what the crowd itself takes."""

    def __init__(self) -> None:
        self.took: list[float] = []

    def datagram_received(self, data: bytes, addr: object) -> None:
        self.took.append((time.monotonic_ns() - int(data)) / 1e6)


async def _crowd(port: int, count: int, asked: list[tuple[str, list[str]]]) -> list[list[float]]:
    loop, arrived = asyncio.get_running_loop(), _Arrived(count)
    transport, own = await loop.create_datagram_endpoint(_Own, ("127.0.0.1", 0))
    print(transport.get_extra_info("sockname")[1], flush=True)
    began = loop.time()
    for at, one in enumerate(asked):
        await asyncio.sleep(began + at * WAIT_SECONDS / len(asked) - loop.time())
        await loop.create_connection(partial(_Poll, *one, arrived), "127.0.0.1", port)
    return [await arrived.all, own.took]


def main(port: int, count: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(json.dumps(uvloop.run(_crowd(port, count, json.loads(sys.stdin.readline())))))


def measure(plan: Plan) -> Iterator[Row]:
    """200 sends a second, over a hundred queues with fifty long polls each."""
    folder = plan.fresh("sqs-waiting")
    key = Credentials(*access_key(folder))
    with queuey(folder, OPEN) as server:
        urls = [make_queue(server, key, f"q{turn}") for turn in range(QUEUES)]
        count = round(RATE * plan.seconds * plan.rounds)
        with _waiting(server, key, urls, count) as (crowd, own):
            busy = server.cpu_seconds()
            _send(server, key, urls, count, own)
            share = (server.cpu_seconds() - busy) / (count / RATE)
            said = crowd.stdout.read() if crowd.stdout is not None else ""
            crowd.wait(_PATIENCE_SECONDS)
        if crowd.returncode:
            raise BenchFailed("the long polls did not last: see above")
        took, late = json.loads(said)
    yield times(
        f"SQS: send to a long poll, {RATE} sends/s, {POLLS:,} long polls of {QUEUES} queues wait",
        took,
        more=f"; a datagram to the same clients p99 {percentile(late, 0.99):.2f} ms; {share:.0%} of a core",
        first="p99 <= 10 ms",
        goal="p99 <= 5 ms",
    )


def _send(server: Server, key: Credentials, urls: list[str], count: int, own: int) -> None:
    """Send at an even rate; each message says when it was sent, or was due if that was earlier.

    :param own: a port of the crowd: half-way between two messages it gets a datagram.
    """
    sent_at = "0" * 19
    body = f"{sent_at} ".ljust(BODY_BYTES, "x")
    texts = [signed(key, "SendMessage", {"QueueUrl": url, "MessageBody": body}).split(sent_at) for url in urls]
    asking, began, answered = Asking(server.port), time.monotonic_ns(), 0
    with socket.socket(type=socket.SOCK_DGRAM) as beside:
        for turn in range(count):
            due = began + turn * 1_000_000_000 // RATE
            _sleep_until(due)
            sent = time.monotonic_ns() if answered <= due else due
            asking.ask(f"{sent:019}".join(texts[turn % len(texts)]))
            answered = time.monotonic_ns()
            _sleep_until(due + 500_000_000 // RATE)
            beside.sendto(str(time.monotonic_ns()).encode(), ("127.0.0.1", own))


def _sleep_until(moment: int) -> None:
    time.sleep(max(moment - time.monotonic_ns(), 0) / 1e9)


@contextmanager
def _waiting(
    server: Server, key: Credentials, urls: list[str], count: int
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The crowd, of which all wait, and its port for datagrams.

    Its connections begin one after the other over as long as a long poll lasts, so their long polls end evenly.

    :param count: messages that will come.
    """
    asked = []
    for turn in range(POLLS):
        url = urls[turn % len(urls)]
        poll = signed(key, "ReceiveMessage", {"QueueUrl": url, "WaitTimeSeconds": WAIT_SECONDS})
        body = json.dumps({"QueueUrl": url, "ReceiptHandle": "@"})
        asked.append((poll, [signed(key, "DeleteMessage", {}).partition("Content-Length")[0], body]))
    command = [sys.executable, "-m", "tests.bench.sqs_waiting", str(server.port), str(count)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdin is None or process.stdout is None:
                raise BenchFailed("the crowd has no standard input or output")
            process.stdin.write(json.dumps(asked) + "\n")
            process.stdin.flush()
            own = int(process.stdout.readline())
            until(lambda: server.waiters() >= POLLS * 0.99, _START_SECONDS, f"{POLLS} long polls to wait")
            yield process, own
        finally:
            process.kill()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
