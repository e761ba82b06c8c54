"""A million messages read and deleted, against a new queue: a reader does not step over what is gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import orjson

from tests.bench.arrival import Asking
from tests.bench.drivers import drive, in_turn, read_page, request, times
from tests.bench.measure import alternate, ratios, until
from tests.bench.on_cassandra.appends import batch_into
from tests.bench.on_cassandra.nodes import cluster
from tests.bench.plan import BATCH, PAGE, Plan
from tests.bench.servers import APPLICATION, Server
from tests.bench.table import Row, number

OLD, NEW = "consumed", "fresh"
_TAKEN = 1000
"""Messages of one page. The consumer deletes them, many in a request, before it takes the next page."""
_IDS = 100
_DELETERS = 4
_FILLERS = 4
_READABLE_SECONDS = 60.0
_TOLD = 100_000
"""Messages between two words of how far it is."""


def measure(plan: Plan) -> Iterator[Row]:
    """BucketUse, consume, then read the head of both."""
    with cluster(plan) as nodes, nodes.server(plan, nodes.keyspace()) as server:
        for queue in (OLD, NEW):
            server.create(queue)
        _consume(server, plan)
        for queue in (OLD, NEW):
            drive(server, times(batch_into([1], queue), 2 * PAGE // BATCH), 1)
            until(lambda queue=queue: _head(server, queue) == PAGE, _READABLE_SECONDS, "the heads to be readable")  # type: ignore[misc]
        scripts = {queue: in_turn([read_page(queue, "0")]) for queue in (OLD, NEW)}
        for script in scripts.values():
            drive(server, script, 1, plan.seconds)
        fresh, consumed = alternate(
            lambda: drive(server, scripts[NEW], 1, plan.seconds).rate,
            lambda: drive(server, scripts[OLD], 1, plan.seconds).rate,
            plan.rounds,
        )
    yield Row(
        f"read of the head after {plan.consumed:,} messages were read and deleted by id, 1 reader",
        f"{number(median(fresh))} pages of {PAGE}/s of a new queue",
        f"{number(median(consumed))} /s",
        ratios(fresh, consumed),
        first="ratio <= 1.5",
        goal="ratio <= 1.5",
    )


def _head(server: Server, queue: str) -> int:
    return len(server.ask("GET", f"/v1/{APPLICATION}/{queue}?limit={PAGE}").json()["messages"])


def _consume(server: Server, plan: Plan) -> None:
    """Take page after page, and delete each of its messages by id."""
    plan.tell(f"storing {plan.consumed:,} messages")
    drive(server, times(batch_into([1], OLD), plan.consumed // BATCH), _FILLERS)
    plan.tell("reading and deleting them")
    reader, left = Asking(server.port), plan.consumed // BATCH * BATCH
    deleters = [Asking(server.port) for _ in range(_DELETERS)]
    cursor = "since=0"
    with ThreadPoolExecutor(_DELETERS) as threads:
        while left > 0:
            headers, body = reader.ask(
                request("GET", f"/v1/{APPLICATION}/{OLD}?{cursor}&limit={_TAKEN}&columns=message_id")
            )
            cursor = f"cursor={headers[b'queuey-cursor'].decode()}"
            ids = [message["message_id"] for message in orjson.loads(body)["messages"]]
            left -= len(ids)
            if left // _TOLD != (left + len(ids)) // _TOLD:
                plan.tell(f"{max(left, 0):,} are left")
            list(threads.map(_delete, deleters, [ids[turn::_DELETERS] for turn in range(_DELETERS)]))


def _delete(asking: Asking, ids: Sequence[str]) -> None:
    for first in range(0, len(ids), _IDS):
        asking.ask(request("DELETE", f"/v1/{APPLICATION}/{OLD}/{','.join(ids[first : first + _IDS])}"))
