"""One, two and three servers before one cluster: what they take together, and which processes have the processors."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import NamedTuple

from tests.bench.drivers import append_one, drive, in_turn
from tests.bench.measure import ratios
from tests.bench.on_cassandra.appends import QUEUE
from tests.bench.on_cassandra.driver import SINGLES_IN_FLIGHT
from tests.bench.on_cassandra.nodes import Nodes, cluster
from tests.bench.plan import PARTITIONS, Plan
from tests.bench.servers import Server
from tests.bench.table import Row, number

MOST = 3


class Shared(NamedTuple):
    """What some servers did together, and the share of the processors each part had."""

    rate: float
    of_servers: float
    of_nodes: float
    of_load: float

    def __str__(self) -> str:
        return (
            f"servers {self.of_servers:.0%}, node {self.of_nodes:.0%}, load generator {self.of_load:.0%} "
            f"of {os.cpu_count()} cores"
        )


def together(nodes: Nodes, servers: Sequence[Server], seconds: float) -> Shared:
    """A hundred connections, spread over these servers."""
    script = in_turn([append_one(QUEUE)])
    began, before = time.perf_counter(), _spent(nodes, servers)
    with ThreadPoolExecutor(len(servers)) as threads:
        loads = list(
            threads.map(lambda server: drive(server, script, SINGLES_IN_FLIGHT // len(servers), seconds), servers)
        )
    whole = (time.perf_counter() - began) * (os.cpu_count() or 1)
    shares = [(now - then) / whole for now, then in zip(_spent(nodes, servers), before, strict=True)]
    return Shared(sum(load.rate for load in loads), *shares)


def _spent(nodes: Nodes, servers: Sequence[Server]) -> tuple[float, float, float]:
    """Processor seconds of servers, nodes, and load generators that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (
        sum(server.cpu_seconds() for server in servers),
        nodes.cpu_seconds(),
        children.ru_utime + children.ru_stime,
    )


def measure(plan: Plan) -> Iterator[Row]:
    """The same load on one server, on two and on three, in turn."""
    with cluster(plan) as nodes, ExitStack() as running:
        keyspace = nodes.keyspace()
        servers = [running.enter_context(nodes.server(plan, keyspace)) for _ in range(MOST)]
        servers[0].create(QUEUE, PARTITIONS)
        nodes.warm(plan.seconds, *(partial(together, nodes, [server]) for server in servers))
        found: list[list[Shared]] = [[] for _ in range(MOST)]
        for turn in range(plan.rounds):
            for count in sorted(range(MOST), reverse=bool(turn % 2)):
                found[count].append(together(nodes, servers[: count + 1], plan.seconds))
    alone = [shared.rate for shared in found[0]]
    for count, runs in enumerate(found, 1):
        rates = [shared.rate for shared in runs]
        typical = sorted(runs)[len(runs) // 2]
        yield Row(
            f"append, 1 per request, {SINGLES_IN_FLIGHT} at once, {count} server{'s' if count > 1 else ''}",
            f"{number(median(alone))} /s with one",
            f"{number(median(rates))} /s; {typical}",
            ratios(rates, alone) if count > 1 else None,
        )
