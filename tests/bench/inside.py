"""The event-loop door without a network: calls made in this process, many at once, as fast as they are answered."""

from __future__ import annotations

import asyncio
import cProfile
import io
import pstats
import threading
from collections.abc import Callable, Iterator
from time import perf_counter, process_time, thread_time
from typing import Any

import uvloop

from queuey.api.serve import Desk
from queuey.doors.asgi import LoopDoor
from queuey.promise import run
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


class _Caller:
    """One request, over and over, through a door."""

    def __init__(self, text: str) -> None:
        head, _, body = text.partition("\r\n\r\n")
        first, *lines = head.split("\r\n")
        method, target, _ = first.split(" ")
        path, _, query = target.partition("?")
        headers = [
            (name.lower().encode(), value.encode()) for name, _, value in (line.partition(": ") for line in lines)
        ]
        self._scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": headers,
        }
        self._body = {"type": "http.request", "body": body.encode(), "more_body": False}
        self.calls = 0

    async def _receive(self) -> dict[str, Any]:
        return self._body

    async def _send(self, message: dict[str, Any]) -> None:
        if message.get("status", 200) >= 300:
            raise BenchFailed(f"refused with {message['status']}")

    async def call(self, door: LoopDoor, until: float) -> None:
        while perf_counter() < until:
            await door(self._scope, self._receive, self._send)
            self.calls += 1

    async def for_seconds(self, door: LoopDoor, seconds: float) -> None:
        until = perf_counter() + seconds
        async with asyncio.TaskGroup() as tasks:
            for _ in range(CONNECTIONS):
                tasks.create_task(self.call(door, until))


def report(plan: Plan, name: str) -> Iterator[str]:
    """Lines of a report: time a call takes, and the functions that take it on the loop's thread."""
    folder = plan.fresh("inside")
    with open_store(folder) as store:
        queue = make_queue(store, _QUEUE, 1 if name == "read" else PARTITIONS)
        fill(store, [queue], 1000)
    service = Service.open(load_settings(None, {}, {"data": str(folder)}))
    try:
        run(service.start(KEY))
        yield from uvloop.run(_measured(service, _Caller(CALLS[name](_QUEUE)), plan.seconds))
    finally:
        service.close()


async def _measured(service: Service, caller: _Caller, seconds: float) -> list[str]:
    door = LoopDoor(Desk(service))
    door.open(asyncio.get_running_loop())
    await caller.for_seconds(door, 0.5)
    caller.calls = 0
    began = perf_counter(), thread_time(), process_time()
    await caller.for_seconds(door, seconds)
    took = [(now - then) / caller.calls * 1e6 for now, then in zip(_clocks(), began, strict=True)]
    profile = cProfile.Profile()
    profile.enable()
    await caller.for_seconds(door, seconds)
    profile.disable()
    door.close()
    text = io.StringIO()
    pstats.Stats(profile, stream=text).strip_dirs().sort_stats("tottime").print_stats(_TOP)
    summary = (
        f"{caller.calls:,} calls, {CONNECTIONS} at once, {threading.active_count()} threads: "
        f"{took[0]:.1f} µs a call; of the processor {took[1]:.1f} µs on the loop, {took[2]:.1f} µs in all threads"
    )
    return [summary, text.getvalue()]


def _clocks() -> tuple[float, float, float]:
    return perf_counter(), thread_time(), process_time()
