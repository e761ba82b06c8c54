"""A receiver that waits at one server, and what is appended through another."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from tests.bench.arrival import Asking, receive
from tests.bench.drivers import request
from tests.bench.on_cassandra.nodes import cluster
from tests.bench.plan import BODY_BYTES, Plan
from tests.bench.servers import APPLICATION, Server
from tests.bench.table import Row, times

QUEUE = "arrival"
RATE = 2
"""Appends a second: each finds a receiver that waits."""
READ_DELAY_MS = 2_000
"""By default: no reader sees a message earlier."""


def measure(plan: Plan) -> Iterator[Row]:
    """From the moment at which a message can be read."""
    count = round(RATE * plan.seconds * plan.rounds)
    with cluster(plan) as nodes:
        keyspace = nodes.keyspace()
        with nodes.server(plan, keyspace) as here, nodes.server(plan, keyspace) as there:
            here.create(QUEUE)
            writer = threading.Thread(target=_write, args=(here, count))
            writer.start()
            took = receive(there.port, count)
            writer.join()
    yield times(
        f"append at one server to a receiver that waits at another, from its read delay of {READ_DELAY_MS / 1000:g} s on",
        [one - READ_DELAY_MS for one in took],
        goal="p99 <= 1000 ms",
    )


def _write(server: Server, count: int) -> None:
    """Append messages at an even rate; each says when it was sent."""
    asking, began = Asking(server.port), time.monotonic()
    for turn in range(count):
        time.sleep(max(began + turn / RATE - time.monotonic(), 0))
        body = f"{turn} {time.monotonic_ns()} ".ljust(BODY_BYTES, "x")
        asking.ask(request("POST", f"/v1/{APPLICATION}/{QUEUE}", body))
