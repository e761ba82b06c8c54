"""More clients than the server takes at once, none of which heeds Retry-After: how much is still done, and how late."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from time import process_time
from typing import Any
from urllib.parse import urlsplit

import uvloop

from queuey.future import run
from queuey.http.admission import Ticket
from queuey.server.faces import open_pipeline
from queuey.server.loop import LoopServer
from queuey.service import Service
from queuey.settings import load_settings
from tests.bench.crowd import QUEUE
from tests.bench.drivers import append_one
from tests.bench.inside import Next, Wire, again, measured
from tests.bench.measure import BenchFailed, alternate, ratios, spread
from tests.bench.plan import PARTITIONS, Plan
from tests.bench.servers import KEY, ROOT, Server, queuey
from tests.bench.store import make_queue, open_store
from tests.bench.table import Row, number

ENOUGH = 256
"""Connections that keep the server busy, and none of which is refused."""
CROWD = 4000
"""Twice as many as it takes at once."""
REFUSALS = 50_000


def measure(plan: Plan) -> Iterator[Row]:
    """Rows of the server under a crowd, and of what one refusal costs."""
    with queuey(plan.fresh("overload")) as server:
        server.create(QUEUE, PARTITIONS)
        best, crowded = alternate(
            lambda: _crowd(server, ENOUGH, plan.seconds), lambda: _crowd(server, CROWD, plan.seconds), plan.rounds
        )
    rates = [[run["accepted"] for run in runs] for runs in (crowded, best)]
    p99 = spread([run["p99_ms"] for run in crowded]).middle
    refused = spread([run["refused"] for run in crowded]).middle
    yield Row(
        f"overload: {CROWD:,} connections that ask again at once",
        f"{number(spread(rates[1]).middle)} /s over {ENOUGH}",
        f"{number(spread(rates[0]).middle)} /s taken, p99 {number(p99)} ms; {number(refused)} /s refused",
        ratios(*rates),
        goal="ratio >= 0.7, p99 <= 2000 ms",
        figures={"p99": p99},
    )
    yield _refusal(plan)


def _crowd(server: Server, connections: int, seconds: float) -> dict[str, Any]:
    address = urlsplit(server.url)
    command = [sys.executable, "-m", "tests.bench.crowd", str(address.hostname), str(address.port)]
    ran = subprocess.run(
        [*command, str(connections), str(seconds)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    if ran.returncode:
        raise BenchFailed(f"the crowd ended with {ran.returncode}: {ran.stderr[-500:]}")
    said: dict[str, Any] = json.loads(ran.stdout)
    if said["lost"] or said["others"] or not said["accepted"]:
        raise BenchFailed(f"not only accepted and refused: {said}")
    return said


def _refusal(plan: Plan) -> Row:
    """A call that is refused because the server is full, beside one that is served: in this process, without a network."""
    folder = plan.fresh("refusal")
    with open_store(folder) as store:
        make_queue(store, "inside", PARTITIONS)
    service = Service.open(load_settings(None, {}, {"server": {"data": str(folder)}}))
    try:
        run(service.start(KEY))
        client = again(append_one("inside"))(service)
        append = uvloop.run(measured(service, client, plan.seconds)).process_us
        refusal = uvloop.run(_refused(service, client()))
    finally:
        service.close()
    share = refusal / append
    return Row(
        "overload: the processor's time of a refusal",
        f"an append {append:.1f} µs",
        f"{refusal:.1f} µs",
        spread([share]),
        goal="share <= 0.1",
        figures={"share": share},
    )


class _Refused(Wire):
    """A client that gets a refusal."""

    def write(self, data: bytes) -> None:  # type: ignore[override]
        if not data.startswith(b"HTTP/1.1 429"):
            raise BenchFailed(f"not refused: {data[:500]!r}")

    def pause_reading(self) -> None:
        """It sends nothing by itself."""


async def _refused(service: Service, client: Next) -> float:
    server = LoopServer(open_pipeline(service))
    server.open(asyncio.get_running_loop())
    places = [Ticket(server.admission) for _ in range(service.settings.limits.max_in_flight)]
    for place in places:
        place.enter()
    wire = _Refused(server, client)
    began = process_time()
    for _ in range(REFUSALS):
        wire.begin()
        wire.pause_ends()
    took = process_time() - began
    wire.abort()
    for place in places:
        place.close()
    server.close()
    return took / REFUSALS * 1e6
