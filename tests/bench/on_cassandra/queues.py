"""A million queues in the tables, against ten.

All but ten are put into the store's tables directly, since creating one is a lightweight transaction
and a million of these would take half an hour. What is measured goes through the server.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

from cassandra import ConsistencyLevel
from cassandra.concurrent import execute_concurrent
from cassandra.query import BatchStatement, BatchType

from queuey.clock import SystemClock
from queuey.ids import EPOCH_TICKS
from queuey.model import Queue
from queuey.storage.cassandra.names import list_place
from queuey.storage.cassandra.queue_rows import settings_text
from queuey.storage.cassandra.session import CassandraSession
from queuey.storage.cassandra.tables import CQL
from tests.bench.drivers import NUMBER, append_one, drive, in_turn, read_page, request, scattered
from tests.bench.measure import alternate, ratios, until
from tests.bench.on_cassandra.nodes import WARM_SECONDS, cluster
from tests.bench.plan import BODY, PAGE, PARTITIONS, Plan
from tests.bench.servers import APPLICATION, Server
from tests.bench.table import Row, number

FEW = 10
CONNECTIONS = 100
_NAME = f"q{NUMBER}"
_NAMES = [_NAME.replace(NUMBER, f"{turn:07d}") for turn in range(FEW)]
_AT_ONCE = 64
_TOGETHER = 10
"""Rows of one batch: more partitions in one make Cassandra warn."""
_READABLE_SECONDS = 30.0


def measure(plan: Plan) -> Iterator[Row]:
    """Appends to some queues, reads of some, and appends over all."""
    with cluster(plan) as nodes:
        many, few = nodes.keyspace(), nodes.keyspace()
        with nodes.session(many) as session:
            took = _fill(session, plan)
        with nodes.server(plan, many) as large, nodes.server(plan, few) as small:
            for server in (large, small):
                for name in _NAMES:
                    server.create(name, PARTITIONS)
            yield Row(f"{plan.queues:,} queues: put into the tables", "", f"{took:.0f} s, by the bare driver")
            appends = in_turn([append_one(name) for name in _NAMES])
            yield _compared(plan, "append, 1 per request, to one", appends, appends, large, small, goal="ratio <= 1.2")
            for server in (large, small):
                _fill_up(server)
            reads = in_turn([read_page(name, "0") for name in _NAMES])
            yield _compared(plan, "read of one", reads, reads, large, small, connections=1, goal="ratio <= 1.2")
            first, middle = (_list_page(turn) for turn in (0, plan.queues // 2))
            yield _compared(plan, f"list {FEW} of them", middle, first, large, small, connections=1)
            over_all = scattered(append_one(_NAME), plan.queues)
            yield _compared(plan, "append, 1 per request, over all", over_all, appends, large, small)


def _compared(
    plan: Plan,
    what: str,
    of_many: str,
    of_few: str,
    large: Server,
    small: Server,
    *,
    connections: int = CONNECTIONS,
    goal: str = "",
) -> Row:
    """The ratio is the cost."""
    for server, script in ((small, of_few), (large, of_many)):
        drive(server, script, connections, WARM_SECONDS)
    below, ours = alternate(
        lambda: drive(small, of_few, connections, plan.seconds).rate,
        lambda: drive(large, of_many, connections, plan.seconds).rate,
        plan.rounds,
    )
    return Row(
        f"{plan.queues:,} queues: {what}, {connections} at once",
        f"{number(median(below))} /s with {FEW} queues",
        f"{number(median(ours))} /s",
        ratios(below, ours),
        first="ratio <= 1.5" if goal else "",
        goal=goal,
    )


def _list_page(first: int) -> str:
    """Ten queues, by name, from one on."""
    name = _NAME.replace(NUMBER, f"{first:07d}")
    return in_turn([request("GET", f"/v1/{APPLICATION}?limit={FEW}&offset={name}")])


def _fill_up(server: Server) -> None:
    """See that there is a whole page to read in the first partition of each."""
    messages = [{"body": BODY, "partition": 1}] * PAGE
    for name in _NAMES:
        server.ask("POST", f"/v1/{APPLICATION}/{name}", json={"messages": messages})
    until(lambda: all(_readable(server, name) >= PAGE for name in _NAMES), _READABLE_SECONDS, "pages to be readable")


def _readable(server: Server, name: str) -> int:
    return len(server.ask("GET", f"/v1/{APPLICATION}/{name}?limit={PAGE}").json()["messages"])


def _fill(session: CassandraSession, plan: Plan) -> float:
    """All queues but the first ones, with their place in the list; how long it took."""
    plan.tell(f"putting {plan.queues:,} queues into the tables")
    began, now = time.perf_counter(), SystemClock().now_ticks()
    names = {"keyspace": session.options.keyspace}
    insert = session.driver.prepare(CQL["queue_insert"].removesuffix("if not exists") % names)
    enter = session.driver.prepare(CQL["name_insert"] % names)
    micros = (now - EPOCH_TICKS) // 10
    queues = [
        Queue(APPLICATION, _NAME.replace(NUMBER, f"{turn:07d}"), uuid.uuid4(), now, PARTITIONS)
        for turn in range(FEW, plan.queues)
    ]

    def row(queue: Queue) -> Sequence[Any]:
        return (queue.application, queue.name, queue.uuid, now, micros, uuid.uuid4(), settings_text(queue))

    _write(session, insert, queues, row)
    queues.sort(key=lambda queue: list_place(queue, ""))
    _write(session, enter, queues, lambda queue: (*list_place(queue, ""), micros))
    return time.perf_counter() - began


def _write(
    session: CassandraSession, statement: Any, queues: Sequence[Queue], row: Callable[[Queue], Sequence[Any]]
) -> None:
    def batches() -> Iterator[tuple[BatchStatement, None]]:
        for first in range(0, len(queues), _TOGETHER):
            batch = BatchStatement(BatchType.UNLOGGED, consistency_level=ConsistencyLevel.ONE)
            for queue in queues[first : first + _TOGETHER]:
                batch.add(statement, row(queue))
            yield batch, None

    for _ in execute_concurrent(session.driver, batches(), concurrency=_AT_ONCE, results_generator=True):
        pass
