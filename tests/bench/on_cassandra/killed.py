"""One of three nodes is killed under load."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from tests.bench.arrival import Asking
from tests.bench.drivers import append_one
from tests.bench.measure import BenchFailed, percentile
from tests.bench.on_cassandra.nodes import cluster
from tests.bench.plan import PARTITIONS, Plan
from tests.bench.servers import Server
from tests.bench.table import Row

QUEUE = "killed"
RATE = 200
"""Appends a second: three nodes share this machine's cores with all else, and should not be at their limit."""
CLIENTS = 32
SECONDS = 45
KILLED_AFTER = 15
MENDED_AFTER = 15
"""Seconds after the kill that do not count."""
_WARM_SECONDS = 40
"""Three nodes compile what is often done, one after the other: before that, an append in a hundred takes 100 ms."""
_REFUSED_REST_SECONDS = 0.1


class TimedAppend(NamedTuple):
    """One append."""

    due: float
    """Seconds after the beginning at which it was to be sent, and counts from."""
    took: float
    stored: bool


def measure(plan: Plan) -> Iterator[Row]:
    """Appends at an even rate, through one server, while a node dies."""
    with cluster(plan, 3) as nodes, nodes.server(plan, nodes.keyspace()) as server:
        server.create(QUEUE, PARTITIONS)
        load(server, _WARM_SECONDS)
        plan.tell(f"{RATE} appends a second for {SECONDS} s; a node is killed after {KILLED_AFTER} s")
        appends = load(server, SECONDS, lambda: _kill_later(nodes.service.nodes[1].kill))
    yield report(appends)


def _kill_later(kill: Callable[[], object]) -> None:
    threading.Timer(KILLED_AFTER, kill).start()


def load(server: Server, seconds: float, also: Callable[[], None] = lambda: None) -> Sequence[TimedAppend]:
    """Appends at :data:`RATE`, from clients that send each when it is due, or late if they are still busy."""
    port, turns = server.port, iter(range(round(RATE * seconds)))
    lock, text = threading.Lock(), append_one(QUEUE)
    began = time.perf_counter()
    also()

    def client(_: int) -> list[TimedAppend]:
        asking, appends = Asking(port), list[TimedAppend]()
        while True:
            with lock:
                turn = next(turns, None)
            if turn is None:
                return appends
            due = turn / RATE
            time.sleep(max(due - (time.perf_counter() - began), 0.0))
            try:
                asking.ask(text)
                stored = True
            except (BenchFailed, OSError):
                stored, asking = False, Asking(port)
                time.sleep(_REFUSED_REST_SECONDS)
            appends.append(TimedAppend(due, time.perf_counter() - began - due, stored))

    with ThreadPoolExecutor(CLIENTS) as threads:
        return [one for found in threads.map(client, range(CLIENTS)) for one in found]


def report(appends: Sequence[TimedAppend]) -> Row:
    """What was stored, and how long it took, before the kill and from when things should be well again."""
    before = [one for one in appends if one.due < KILLED_AFTER]
    within = [one for one in appends if KILLED_AFTER <= one.due < KILLED_AFTER + MENDED_AFTER]
    after = [one for one in appends if one.due >= KILLED_AFTER + MENDED_AFTER]
    usual, then = (percentile([one.took for one in part], 0.99) * 1000 for part in (before, after))
    outside = [*before, *after]
    share = 100 * sum(one.stored for one in outside) / len(outside)
    meanwhile = 100 * sum(one.stored for one in within) / len(within)
    worst = max(one.took for one in within)
    return Row(
        f"one of 3 nodes killed under {RATE} appends/s, outside of the first {MENDED_AFTER} s",
        f"p99 {usual:.1f} ms before",
        f"{share:.2f} % stored, p99 {then:.1f} ms after; within: {meanwhile:.2f} % stored, worst {worst:.2f} s",
        first="stored >= 99 %",
        goal="stored >= 99 %, p99 <= 2 times",
        figures={"stored": share, "p99": then / usual},
    )
