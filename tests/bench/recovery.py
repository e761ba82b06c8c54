"""Velti's recovery: a server is killed with five million messages in its store, and hands all of them out while it serves.

Velti's queue read its store anew after a failure: five million messages in under an hour, beside 500 requests a second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec

from qdo.bench.drivers.http1 import HttpConnection
from tests.bench.drivers import append_one, drive, in_turn
from tests.bench.measure import BenchFailed, percentile
from tests.bench.plan import BODY, CONNECTIONS, Plan
from tests.bench.servers import APPLICATION, KEY, Server, queuey
from tests.bench.store import fill, make_queue, open_store
from tests.bench.table import Row

QUEUE, OTHER, GROUP = "recovered", "beside", "workers"
PARTITIONS = 4
RECEIVERS = 4
BATCH = 1000
BESIDE = 500
"""Requests a second that the server takes meanwhile."""
LINES = 25
"""Connections of these: one that waits for its answer keeps none of the others back."""
GOAL_SECONDS = 60
PATIENCE_SECONDS = 3600
_HEAD = f"Content-Type: application/json\r\nAuthorization: Application {KEY}\r\n".encode()


class _Leased(msgspec.Struct):
    receipt: str


class _Answer(msgspec.Struct):
    messages: list[_Leased] = []


_decoded = msgspec.json.Decoder(_Answer).decode


def measure(plan: Plan) -> Iterator[Row]:
    """Fill, kill, start again, and count."""
    folder = plan.fresh("recovered")
    plan.tell(f"storing {plan.stored:,} messages")
    with open_store(folder) as store:
        fill(store, [make_queue(store, QUEUE, PARTITIONS)], plan.stored)
        make_queue(store, OTHER, 1)
    _kill_under_load(folder)
    with queuey(folder) as server:
        first = server.started_seconds + _first(server)
        began = time.monotonic()
        beside = _Beside(server, began)
        with ThreadPoolExecutor(RECEIVERS + LINES) as threads:
            sending = [threads.submit(beside.run, line) for line in range(LINES)]
            try:
                found = sum(threads.map(lambda _: _receive(server), range(RECEIVERS)))
                seconds = time.monotonic() - began
            finally:
                beside.over.set()
            took = [each for line in sending for each in line.result()]
    if found + 1 < plan.stored:
        raise BenchFailed(f"{found:,} of {plan.stored:,} messages came after a kill -9")
    p99 = percentile(took, 0.99) * 1000
    yield Row(
        f"{plan.stored:,} messages received after kill -9, by thousands, beside {BESIDE} appends/s",
        "under an hour, Velti",
        f"first one after {first:.2f} s, all after {seconds:.0f} s; {len(took) / seconds:,.0f} appends/s, p99 {p99:.1f} ms",
        goal=f"seconds <= {GOAL_SECONDS} s",
        figures={"seconds": seconds},
    )


def _kill_under_load(folder: object) -> None:
    with queuey(folder) as server, ThreadPoolExecutor(1) as threads:  # type: ignore[arg-type]
        load = threads.submit(drive, server, in_turn([append_one(OTHER)]), CONNECTIONS, 2)
        time.sleep(1)
        server.kill()
        if load.exception() is None:
            raise BenchFailed("the load did not notice that the server was killed")


def _ask(line: HttpConnection, body: dict[str, object]) -> _Answer:
    path = f"/v1/{APPLICATION}/{QUEUE}/leases/{GROUP}".encode()
    answer = line.ask(b"POST", path, _HEAD, msgspec.json.encode(body))
    if answer.status >= 300:
        raise BenchFailed(f"a receive was refused: {answer.status} {answer.body[:200]!r}")
    return _decoded(answer.body)


def _first(server: Server) -> float:
    """Seconds until the first message is handed out and settled."""
    line = HttpConnection(server.url, 60)
    began = time.monotonic()
    some = _ask(line, {"receive": {"max": 1}})
    took = time.monotonic() - began
    _ask(line, {"acknowledge": [one.receipt for one in some.messages]})
    line.close()
    return took


def _receive(server: Server) -> int:
    """Settle the last messages and receive more, until none is left; returns the number of all messages."""
    line, found, receipts = HttpConnection(server.url, 60), 0, list[str]()
    give_up = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < give_up:
        some = _ask(line, {"acknowledge": receipts, "receive": {"max": BATCH, "visibility": 600}})
        receipts = [one.receipt for one in some.messages]
        found += len(receipts)
        if not receipts:
            line.close()
            return found
    raise BenchFailed("the messages did not come to an end")


class _Beside:
    """Appends at a constant rate; each counts from the moment at which it was due."""

    def __init__(self, server: Server, began: float) -> None:
        self._server, self._began = server, began
        self.over = threading.Event()

    def run(self, line: int) -> list[float]:
        """Each append of one connection, in seconds."""
        path, head = f"/v1/{APPLICATION}/{OTHER}".encode(), _HEAD.replace(b"application/json", b"text/plain")
        connection, took = HttpConnection(self._server.url, 60), list[float]()
        due = self._began + line / BESIDE
        while not self.over.wait(max(0.0, due - time.monotonic())):
            answer = connection.ask(b"POST", path, head, BODY.encode())
            if answer.status >= 300:
                raise BenchFailed(f"an append was refused: {answer.status}")
            took.append(time.monotonic() - due)
            due += LINES / BESIDE
        connection.close()
        return took
