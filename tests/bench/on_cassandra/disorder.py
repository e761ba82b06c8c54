"""What K does to duplicates and disorder, in weak groups and in exact ones (BDQS, 2011).

Each receiver has a server of its own. All messages are sent, and then all are received, one at a time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Literal
from uuid import uuid4

from qdo.measure import disorder, duplicates, loss
from queuey.clock import SystemClock
from queuey.errors import StorageUnavailable
from queuey.ids import IdGenerator
from queuey.model import AppendRequest, Draft, Queue
from queuey.model.lease_groups import AUTO, GroupSettings, LeaseGroup
from queuey.model.lease_requests import Action, ReceiveRequest, Settle
from queuey.model.lease_steps import GroupStep, LeaseStep
from queuey.storage.cassandra import CassandraLeases, Timing
from queuey.storage.cassandra.session import CassandraSession
from queuey.storage.observing import Unobserved, UnobservedLeases
from tests.bench.measure import BenchFailed
from tests.bench.on_cassandra.nodes import cluster
from tests.bench.plan import TTL_SECONDS, Plan
from tests.bench.table import Row
from tests.support.cassandra_stores import CassandraStores

MESSAGES = 300
"""In the paper three senders send a hundred each."""
KS: tuple[int | Literal["auto"], ...] = (1, 3, 10, AUTO)
RECEIVERS = (1, 3, 8)
_VISIBILITY_SECONDS = 600.0
_SETTLED_SECONDS = 1.0
"""Until all messages are readable, without the read delay."""
_TIMING = Timing(read_delay_seconds=0.0)
_TRIES = 100


class _Transactions(Unobserved, UnobservedLeases):
    """Counts transactions."""

    def __init__(self) -> None:
        self.leases = self
        self.lost = self.all = 0

    def compared_and_set(self, *, is_lost: bool) -> None:
        self.lost += is_lost
        self.all += 1


def _receive_all(leases: CassandraLeases, queue: Queue, group: LeaseGroup) -> list[tuple[float, int]]:
    """What one receiver gets until nothing comes, each with the time of its answer."""
    found: list[tuple[float, int]] = []
    settles: dict[int, list[Settle]] = {}
    tries = 0
    while True:
        token = group.token if settles else None
        part = GroupStep(queue, "g", group, token, settles, receive_from=[1])
        try:
            outcome = leases.step(LeaseStep([part], receive=ReceiveRequest(1, _VISIBILITY_SECONDS))).wait()
        except StorageUnavailable as error:  # it met others too often, and has done nothing
            tries += 1
            if tries > _TRIES:
                raise BenchFailed(f"a receiver was refused {tries} times: {error}") from error
            continue
        settles = {}
        if outcome.more:
            continue
        if not outcome.handed:
            return found
        (one,) = outcome.handed
        found.append((time.perf_counter(), int(one.message.body)))
        settles = {1: [Settle(one.message.id, one.hole.deliveries, Action.ACKNOWLEDGE)]}


def _row(session: CassandraSession, receivers: int, k: int | Literal["auto"], *, exact: bool) -> Row:
    clock, observer = SystemClock(), _Transactions()
    servers = [
        CassandraStores(session, clock, IdGenerator(clock), _TIMING, observer=observer) for _ in range(receivers)
    ]
    try:
        queue = Queue("app", "disorder", uuid4(), clock.now_ticks())
        for number in range(MESSAGES):
            servers[0].messages.append(AppendRequest(queue, [Draft(1, b"%d" % number, TTL_SECONDS)])).wait()
        time.sleep(_SETTLED_SECONDS)
        group = LeaseGroup(1, settings=GroupSettings(k=k, exact=exact))
        servers[0].leases.keep_group(queue.uuid, "g", group, None).wait()
        with ThreadPoolExecutor(receivers) as threads:
            found = threads.map(lambda server: _receive_all(server.leases, queue, group), servers)
            received = [number for _, number in sorted(receipt for each in found for receipt in each)]
    finally:
        for server in servers:
            server.close()
            server.leases.close()
    missing = loss(range(MESSAGES), received)
    if missing:
        raise BenchFailed(f"{len(missing)} messages were lost")
    out_of_order, displacement = disorder(received)
    twice = len(duplicates(received)) / MESSAGES
    lost = f", {observer.lost / max(observer.all, 1):.0%} of transactions lost" if exact else ""
    return Row(
        f"{'exact' if exact else 'weak'}, K = {k}, {receivers} receiver{'s' if receivers > 1 else ''}",
        "",
        f"duplicates {twice:.1%}, out of order {out_of_order:.1%}, mean displacement {displacement:.1f}{lost}",
        goal="duplicates <= 0" if exact else "duplicates <= 0.02" if k == AUTO else "",
        figures={"duplicates": twice},
    )


def measure(plan: Plan) -> Iterator[Row]:
    """Each K with each number of receivers, weak and exact."""
    with cluster(plan) as nodes, nodes.session(nodes.keyspace()) as session:
        _row(session, max(RECEIVERS), 1, exact=False)  # Java is slow at first
        for exact in (False, True):
            for receivers in RECEIVERS:
                for k in KS:
                    yield _row(session, receivers, k, exact=exact)
