"""Lease groups on Cassandra: against the bare driver, and at several servers."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from time import sleep
from typing import NamedTuple

from tests.bench.drivers import drive
from tests.bench.leases import FILLED, GROUP, TOGETHER, lease_script
from tests.bench.measure import BenchFailed, alternate, ratios
from tests.bench.on_cassandra.driver import measured
from tests.bench.on_cassandra.nodes import Nodes, cluster
from tests.bench.plan import BODY, CONNECTIONS, TTL_SECONDS, Plan
from tests.bench.servers import APPLICATION, Server
from tests.bench.table import Row, number
from tests.bench.versions import checked_out

PARTITIONS = 8
TENS = 10
RECEIVERS = 16
SERVERS = 3
HOME_SECONDS = 2.0
"""Until a new group has its home, for sure."""
_MOST_A_SECOND = 40_000
"""More messages than are handed out."""
_READ_DELAY_SECONDS = 3.0
_TRANSACTIONS = re.compile(r'queuey_lease_transactions_total\{result="(done|lost)"\} (\d+)')


class Received(NamedTuple):
    """What receivers got together."""

    rate: float
    """Requests a second; each settles ten messages and receives ten."""
    lost: float
    """The share of transactions that were lost."""


class _Queues:
    """A queue for each run, with more messages than the run hands out."""

    def __init__(self, nodes: Nodes, server: Server, *, exact: bool) -> None:
        self._nodes, self._server, self._exact = nodes, server, exact
        self._names = (f"leases-{exact}-{at}".lower() for at in count())

    def next(self, seconds: float) -> str:
        queue = next(self._names)
        self._server.create(queue, PARTITIONS)
        self._server.ask(
            "PUT", f"/v1/{APPLICATION}/{queue}/leases/{GROUP}", json={"exact": self._exact, "visibility": 600}
        )
        for at in range(round(_MOST_A_SECOND * (seconds + 1)) // FILLED):
            messages = [{"body": BODY, "ttl": TTL_SECONDS, "partition": at % PARTITIONS + 1}] * FILLED
            self._server.ask("POST", f"/v1/{APPLICATION}/{queue}", json={"messages": messages})
        sleep(_READ_DELAY_SECONDS)
        self._nodes.rest()
        return queue


def _received(
    servers: Sequence[Server], queue: str, receivers: int, seconds: float, attempt_seed: int | None = None
) -> Received:
    """Receivers at some servers, each as many.

    :param attempt_seed: see :func:`~tests.bench.leases.lease_script`.
    """
    script = lease_script(queue, TOGETHER % (TENS, TENS), attempt_seed)
    before = [_transactions(server) for server in servers]
    with ThreadPoolExecutor() as threads:
        shares = [receivers * (at + 1) // len(servers) - receivers * at // len(servers) for at in range(len(servers))]
        loads = [*threads.map(lambda server, share: drive(server, script, share, seconds), servers, shares)]
    after = [_transactions(server) for server in servers]
    done, lost = (sum(now[at] - then[at] for now, then in zip(after, before, strict=True)) for at in (0, 1))
    left = servers[0].ask("POST", f"/v1/{APPLICATION}/{queue}/leases/{GROUP}", json={"receive": {}}).json()["messages"]
    if not left:
        raise BenchFailed("the queue ran empty: it had too few messages")
    return Received(sum(load.rate for load in loads), lost / max(done + lost, 1))


def _transactions(server: Server) -> tuple[int, int]:
    found = dict(_TRANSACTIONS.findall(server.ask("GET", "/metrics").text))
    return int(found.get("done", 0)), int(found.get("lost", 0))


def _against(plan: Plan, nodes: Nodes, *, exact: bool) -> Row:
    """Ten a request at one server, against statements of the bare driver."""
    keyspace = nodes.keyspace()
    what = "transactions" if exact else "writes"

    def driver(seconds: float) -> float:
        return measured(nodes, what, keyspace, uuid.uuid4(), seconds)

    with nodes.server(plan, keyspace) as server:
        queues = _Queues(nodes, server, exact=exact)

        def ours(seconds: float) -> float:
            return _received([server], queues.next(seconds), CONNECTIONS, seconds).rate

        nodes.warm(plan.seconds, driver, ours)
        below, above = alternate(lambda: driver(plan.seconds), lambda: ours(plan.seconds), plan.rounds)
    return _beside_the_driver(below, above, exact=exact)


def _beside_the_driver(below: Sequence[float], above: Sequence[float], *, exact: bool, which: str = "") -> Row:
    """:param which: the tree, if it is another one."""
    return Row(
        f"receive and settle by tens, {PARTITIONS} partitions, {'exact' if exact else 'weak'}{which}",
        f"{number(median(below))} {'lightweight transactions' if exact else 'plain writes'}/s of the bare driver",
        f"{number(median(above))} requests/s",
        ratios(above, below),
        first=f"ratio >= {0.5 if exact else 0.3}",
        goal=f"ratio >= {0.8 if exact else 0.6}",
    )


def against(plan: Plan, revision: str) -> Iterator[Row]:
    """One server of ``revision`` and one of this tree, each beside the bare driver, in turn."""
    root = checked_out(revision, plan.fresh("tree"))
    with cluster(plan) as nodes:
        for exact in (True, False):
            yield from _against_revision(plan, nodes, root, revision, exact=exact)


def _against_revision(plan: Plan, nodes: Nodes, root: Path, revision: str, *, exact: bool) -> Iterator[Row]:
    what = "transactions" if exact else "writes"
    before, now = nodes.keyspace(root), nodes.keyspace()
    with nodes.server(plan, before, root) as earlier, nodes.server(plan, now) as later:
        queues = {server.url: _Queues(nodes, server, exact=exact) for server in (earlier, later)}

        def received(server: Server, seconds: float) -> float:
            return _received([server], queues[server.url].next(seconds), CONNECTIONS, seconds).rate

        turns: list[Callable[[float], float]] = [
            lambda seconds: measured(nodes, what, now, uuid.uuid4(), seconds),
            lambda seconds: received(earlier, seconds),
            lambda seconds: received(later, seconds),
        ]
        nodes.warm(plan.seconds, *turns)
        found: list[list[float]] = [[], [], []]
        for round_ in range(plan.rounds):
            for at in range(len(turns)):
                at = (at + round_) % len(turns)  # noqa: PLW2901 - each has each place
                found[at].append(turns[at](plan.seconds))
    driver, first, second = found
    yield _beside_the_driver(driver, first, exact=exact, which=f", {revision}")
    yield _beside_the_driver(driver, second, exact=exact)
    how = "exact" if exact else "weak"
    unit = "requests/s"
    yield Row(
        f"the same, {how}",
        f"{number(median(first))} {unit}, {revision}",
        f"{number(median(second))} {unit}",
        ratios(second, first),
    )


def _under_attempts(plan: Plan, nodes: Nodes) -> Row:
    """Each request an attempt of its own, as our clients have it, against none."""
    with nodes.server(plan, nodes.keyspace()) as server:
        queues, runs = _Queues(nodes, server, exact=True), count()

        def received(seconds: float, attempt_seed: int | None = None) -> float:
            return _received([server], queues.next(seconds), CONNECTIONS, seconds, attempt_seed).rate

        nodes.warm(plan.seconds, lambda seconds: received(seconds, next(runs)))
        without, under = alternate(
            lambda: received(plan.seconds), lambda: received(plan.seconds, next(runs)), plan.rounds
        )
    return Row(
        f"the same, exact, each request under an attempt, {PARTITIONS} partitions",
        f"{number(median(without))} requests/s without",
        f"{number(median(under))} requests/s",
        ratios(under, without),
    )


def _at_servers(plan: Plan, nodes: Nodes) -> Row:
    """Sixteen receivers at one server and at three, once each group has its home: that takes up to a second."""
    with ExitStack() as running:
        keyspace = nodes.keyspace()
        servers = [running.enter_context(nodes.server(plan, keyspace)) for _ in range(SERVERS)]
        queues = _Queues(nodes, servers[0], exact=True)

        def received(some: Sequence[Server], seconds: float) -> Received:
            queue = queues.next(HOME_SECONDS + seconds)
            _received(some, queue, RECEIVERS, HOME_SECONDS)
            return _received(some, queue, RECEIVERS, seconds)

        nodes.warm(plan.seconds, *(partial(received, some) for some in (*([server] for server in servers), servers)))
        alone, together = alternate(
            lambda: received(servers[:1], plan.seconds), lambda: received(servers, plan.seconds), plan.rounds
        )
    lost = median(one.lost for one in together)
    return Row(
        f"{RECEIVERS} receivers of one queue at {SERVERS} servers, exact",
        f"{number(median(one.rate for one in alone))} requests/s at one server",
        f"{number(median(one.rate for one in together))} requests/s, {lost:.0%} of transactions lost",
        ratios([one.rate for one in together], [one.rate for one in alone]),
        first="ratio >= 0.9",
        goal="ratio >= 1.0, lost <= 0.1",
        figures={"lost": lost},
    )


def measure(plan: Plan) -> Iterator[Row]:
    """Exact and weak groups against the driver, and several servers."""
    with cluster(plan) as nodes:
        yield _against(plan, nodes, exact=True)
        yield _against(plan, nodes, exact=False)
        yield _under_attempts(plan, nodes)
        yield _at_servers(plan, nodes)
