"""Appends on Cassandra: one message a request, and a hundred."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from statistics import median
from typing import NamedTuple

from tests.bench.drivers import Load, append_keyed, append_one, drive, in_turn, named, request
from tests.bench.measure import alternate, ratios
from tests.bench.on_cassandra.driver import BATCHES_IN_FLIGHT, SINGLES_IN_FLIGHT, measured
from tests.bench.on_cassandra.nodes import Nodes, cluster
from tests.bench.plan import BATCH, BODY, CONNECTIONS, PARTITIONS, TTL_SECONDS, Plan
from tests.bench.servers import APPLICATION, Server
from tests.bench.table import Row, number

QUEUE = "bench"


class Appending(NamedTuple):
    """A server with a queue, and a keyspace for both sides."""

    nodes: Nodes
    server: Server
    keyspace: str

    def against(self, plan: Plan, what: str, script: str, connections: int) -> tuple[list[float], list[Load]]:
        """Messages a second of the bare driver, and the runs of ours; first both until the node is warm."""

        def baseline(seconds: float) -> float:
            return measured(self.nodes, what, self.keyspace, uuid.uuid4(), seconds)

        self.nodes.warm(plan.seconds, baseline, lambda seconds: drive(self.server, script, connections, seconds))
        below: list[float] = []
        loads: list[Load] = []
        alternate(
            lambda: below.append(baseline(plan.seconds)),
            lambda: loads.append(drive(self.server, script, connections, plan.seconds)),
            plan.rounds,
        )
        return below, loads


@contextmanager
def appending(plan: Plan) -> Iterator[Appending]:
    with cluster(plan) as nodes:
        keyspace = nodes.keyspace()
        with nodes.server(plan, keyspace) as server:
            server.create(QUEUE, PARTITIONS)
            yield Appending(nodes, server, keyspace)


def batch_into(partitions: Sequence[int], queue: str = QUEUE) -> str:
    """A hundred messages of 256 bytes, in these partitions in turn."""
    messages = [
        {"body": BODY, "ttl": TTL_SECONDS, "partition": partitions[turn % len(partitions)]} for turn in range(BATCH)
    ]
    body = json.dumps({"messages": messages})
    return request("POST", f"/v1/{APPLICATION}/{queue}", body, Content_Type="application/json")


def single(plan: Plan) -> Iterator[Row]:
    """One message a request, a hundred under way, against the bare driver's single inserts."""
    with appending(plan) as there:
        below, ours = there.against(plan, "inserts", in_turn([append_one(QUEUE)]), SINGLES_IN_FLIGHT)
    yield Row(
        f"append, 1 per request, {SINGLES_IN_FLIGHT} at once",
        f"{number(median(below))} /s inserted by the bare driver",
        _said(ours),
        ratios([load.rate for load in ours], below),
        first="ratio >= 0.35",
        goal="ratio >= 0.7",
    )


def keyed(plan: Plan) -> Iterator[Row]:
    """One message a request, each with an idempotency key of its own, as our client sends them."""
    plain, text, runs = in_turn([append_one(QUEUE)]), append_keyed(QUEUE), count()
    with appending(plan) as there:

        def load(script: str, seconds: float) -> Load:
            return drive(there.server, script, CONNECTIONS, seconds)

        there.nodes.warm(plan.seconds, lambda s: load(plain, s), lambda s: load(named(text, next(runs)), s))
        below, ours = alternate(
            lambda: load(plain, plan.seconds), lambda: load(named(text, next(runs)), plan.seconds), plan.rounds
        )
    yield Row(
        "append, 1 per request, with an Idempotency-Key",
        f"{number(median(one.rate for one in below))} /s without one",
        _said(ours),
        ratios([one.rate for one in ours], [one.rate for one in below]),
    )


def _said(loads: Sequence[Load]) -> str:
    p50, p99 = median(load.p50_ms for load in loads), median(load.p99_ms for load in loads)
    return f"{number(median(load.rate for load in loads))} /s, p50 {p50:.1f} ms, p99 {p99:.1f} ms"


def hundreds(plan: Plan) -> Iterator[Row]:
    """A hundred messages a request, for one partition and for all, against the bare driver's batches for one."""
    numbers = range(1, PARTITIONS + 1)
    into_one = in_turn([batch_into([partition]) for partition in numbers])
    into_all = in_turn([batch_into(numbers)])
    with appending(plan) as there:
        for what, script, first, goal in (
            ("each into one partition", into_one, "ratio >= 0.35", "ratio >= 0.75"),
            (f"each over {PARTITIONS} partitions", into_all, "", ""),
        ):
            below, loads = there.against(plan, "batches", script, BATCHES_IN_FLIGHT)
            ours = [BATCH * load.rate for load in loads]
            yield Row(
                f"append, {BATCH} per request, {BATCHES_IN_FLIGHT} at once, {what}",
                f"{number(median(below))} msg/s in unlogged batches of {BATCH} by the bare driver",
                f"{number(median(ours))} msg/s",
                ratios(ours, below),
                first=first,
                goal=goal,
            )
