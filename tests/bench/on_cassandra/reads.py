"""Reads on Cassandra: pages of a thousand as JSON, and Arrow streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import NamedTuple
from uuid import UUID

from tests.bench.drivers import drive, in_turn, request, times
from tests.bench.measure import alternate, rate_of, ratios, until
from tests.bench.on_cassandra.appends import batch_into
from tests.bench.on_cassandra.driver import PAGE, measured
from tests.bench.on_cassandra.nodes import Nodes, cluster
from tests.bench.plan import BATCH, Plan
from tests.bench.reads import QUEUE, stream_decoded, stream_raw
from tests.bench.servers import APPLICATION, Server
from tests.bench.table import Row, number

ROWS = 18_000
"""What lies in one Cassandra partition, so that the bare driver can page through it: fewer than fill a bucket."""
_PATH = f"/v1/{APPLICATION}/{QUEUE}"
_PATIENCE_SECONDS = 30.0
_FILLERS = 4


class Reading(NamedTuple):
    """A server with one full partition."""

    nodes: Nodes
    server: Server
    keyspace: str
    queue: UUID
    starts: list[str]
    """The first message of each page."""

    def against(self, plan: Plan, subject: Callable[[float], float]) -> tuple[list[float], list[float]]:
        """Messages a second of the bare driver and of ours; first both until the node is warm."""

        def baseline(seconds: float) -> float:
            return measured(self.nodes, "pages", self.keyspace, self.queue, seconds)

        self.nodes.warm(plan.seconds, baseline, subject)
        return alternate(lambda: baseline(plan.seconds), lambda: subject(plan.seconds), plan.rounds)


@contextmanager
def reading(plan: Plan) -> Iterator[Reading]:
    with cluster(plan) as nodes:
        keyspace = nodes.keyspace()
        with nodes.server(plan, keyspace) as server:
            server.create(QUEUE)
            drive(server, times(batch_into([1], QUEUE), ROWS // BATCH), _FILLERS)
            until(lambda: len(_ids(server)) >= ROWS, _PATIENCE_SECONDS, "all to be readable")
            with nodes.session(keyspace) as session:
                ((queue,),) = session.driver.execute(f"select uuid from {keyspace}.queues")  # noqa: S608 - our own
            yield Reading(nodes, server, keyspace, queue, _ids(server)[:ROWS:PAGE])


def _ids(server: Server) -> list[str]:
    """Of all messages that may be read now."""
    found: list[str] = []
    more = "&since=0"
    while more:
        answer = server.ask("GET", f"{_PATH}?columns=message_id&limit={PAGE}{more}")
        found += [message["message_id"] for message in answer.json()["messages"]]
        more = f"&cursor={answer.headers['Queuey-Cursor']}" if answer.headers["Queuey-More"] == "true" else ""
    return found


def pages_script(there: Reading) -> str:
    return in_turn([request("GET", f"{_PATH}?since={start}&limit={PAGE}") for start in there.starts])


def json_pages(plan: Plan) -> Iterator[Row]:
    """Pages of a thousand, by one reader and by four, against the bare driver's."""
    with reading(plan) as there:
        script = pages_script(there)
        for readers in (1, 4):
            below, ours = there.against(
                plan,
                lambda seconds, readers=readers: PAGE * drive(there.server, script, readers, seconds).rate,  # type: ignore[misc]
            )
            yield Row(
                f"read pages of {PAGE:,} as JSON, {readers} reader{'s' if readers > 1 else ''}",
                f"{number(median(below))} msg/s in pages of {PAGE:,} by the bare driver",
                f"{number(median(ours))} msg/s",
                ratios(ours, below),
                first="ratio >= 0.25",
                goal="ratio >= 0.4",
            )


def arrow(plan: Plan) -> Iterator[Row]:
    """The partition as one stream, to a reader that only takes bytes and to one that decodes them."""
    with reading(plan) as there:
        rows = stream_decoded(there.server)
        for what, take in (("taken as bytes", stream_raw), ("decoded by pyarrow", stream_decoded)):
            below, ours = there.against(
                plan,
                lambda seconds, take=take: rate_of(lambda: take(there.server) and rows, seconds),  # type: ignore[misc]
            )
            yield Row(
                f"read as Arrow, one reader, {what}",
                f"{number(median(below))} msg/s in pages of {PAGE:,} by the bare driver",
                f"{number(median(ours))} rows/s",
                ratios(ours, below),
                first="ratio >= 0.25",
                goal="ratio >= 0.6",
            )
