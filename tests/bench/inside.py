"""The event-loop server without a network: calls made in this process, many at once, as fast as they are answered."""

from __future__ import annotations

import asyncio
import cProfile
import io
import pstats
import threading
from collections.abc import Callable, Iterator
from time import perf_counter, process_time, thread_time
from typing import NamedTuple

import uvloop

from queuey.future import run
from queuey.server.connection import Connection
from queuey.server.faces import open_pipeline
from queuey.server.loop import LoopServer
from queuey.service import Service
from queuey.settings import load_settings
from tests.bench.drivers import append_batch, append_one, read_page
from tests.bench.measure import BenchFailed
from tests.bench.plan import CONNECTIONS, PARTITIONS, Plan
from tests.bench.servers import KEY
from tests.bench.store import fill, make_queue, open_store

CALLS: dict[str, Callable[[str], str]] = {
    "append": append_one,
    "batch": append_batch,
    "read": lambda queue: read_page(queue, "0"),
}
_QUEUE = "inside"
_TOP = 30


class Wire(asyncio.Transport):
    """A client that sends one request, over and over, as soon as it has the answer."""

    def __init__(self, server: LoopServer, request: bytes) -> None:
        super().__init__()
        self._server = server
        self._request = request
        self._connection = Connection(server)
        self._connection.connection_made(self)
        self.answers = 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever left over: the client takes all at once."""

    def begin(self) -> None:
        self._connection.data_received(self._request)

    def pause_ends(self) -> None:
        """The server reads again from a client that it refused."""
        self._connection.go_on_after_pause()

    def write(self, data: bytes) -> None:  # type: ignore[override]
        if not data.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201")):
            raise BenchFailed(f"refused: {data[:500]!r}")
        self.answers += 1
        self._server.soon(self.begin)

    def resume_reading(self) -> None:
        """There is nothing to read."""

    def abort(self) -> None:
        self._connection.connection_lost(None)


def report(plan: Plan, name: str) -> Iterator[str]:
    """Lines of a report: time a call takes, and the functions that take it on the loop's thread."""
    folder = plan.fresh("inside")
    with open_store(folder) as store:
        queue = make_queue(store, _QUEUE, 1 if name == "read" else PARTITIONS)
        fill(store, [queue], 1000)
    service = Service.open(load_settings(None, {}, {"server": {"data": str(folder)}}))
    try:
        run(service.start(KEY))
        found = uvloop.run(measured(service, CALLS[name](_QUEUE).encode(), plan.seconds))
        yield found.summary
        yield found.profile
    finally:
        service.close()


class Measured(NamedTuple):
    """What one call takes."""

    summary: str
    profile: str
    process_us: float
    """Of the processor's time, in all threads."""


async def measured(service: Service, request: bytes, seconds: float) -> Measured:
    """Make one request over and over."""
    server = LoopServer(open_pipeline(service))
    server.open(asyncio.get_running_loop())
    wires = [Wire(server, request) for _ in range(CONNECTIONS)]
    for wire in wires:
        wire.begin()
    await asyncio.sleep(0.5)
    answered, began = _answers(wires), (perf_counter(), thread_time(), process_time())
    await asyncio.sleep(seconds)
    calls = _answers(wires) - answered
    took = [(now - then) / calls * 1e6 for now, then in zip(_clocks(), began, strict=True)]
    profile = cProfile.Profile()
    profile.enable()
    await asyncio.sleep(seconds)
    profile.disable()
    for wire in wires:
        wire.abort()
    server.close()
    text = io.StringIO()
    pstats.Stats(profile, stream=text).strip_dirs().sort_stats("tottime").print_stats(_TOP)
    summary = (
        f"{calls:,} calls, {CONNECTIONS} at once, {threading.active_count()} threads: "
        f"{took[0]:.1f} µs a call; of the processor {took[1]:.1f} µs on the loop, {took[2]:.1f} µs in all threads"
    )
    return Measured(summary, text.getvalue(), took[2])


def _answers(wires: list[Wire]) -> int:
    return sum(wire.answers for wire in wires)


def _clocks() -> tuple[float, float, float]:
    return perf_counter(), thread_time(), process_time()
