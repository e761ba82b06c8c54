"""What lease groups hold: what it costs their receivers, in memory and in bytes written. Without a server."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice, repeat
from pathlib import Path
from time import process_time
from typing import Any
from unittest import mock
from uuid import uuid4

import apsw

from queuey.model import AppendRequest, Draft
from queuey.model.lease_groups import ORDER_BY_KEY, GroupSettings, LeaseGroup
from queuey.model.lease_requests import Action, ReceiveRequest, Settle
from queuey.model.lease_steps import GroupStep, LeaseOutcome, LeaseStep
from queuey.storage.sqlite import SqliteStores
from queuey.storage.sqlite.committer import Transaction
from tests.bench.measure import BenchFailed, Spread, alternate, ratios
from tests.bench.plan import TTL_SECONDS, Plan
from tests.bench.servers import APPLICATION, queuey
from tests.bench.store import make_queue, open_store, pour
from tests.bench.table import Row, number

GROUP = "bench"
LEASED = 120_000
"""Messages that a busy group has out."""
HELD_SECONDS = 40_000.0
"""A lease that outlasts the run."""
_MANY = 1000
"""Messages of a request that fills a queue, or empties it."""
_TENS = 10
_MEASURED = 300
"""Receives of one measurement."""
_WRITTEN = 20_000
"""Messages whose bytes of state are counted."""
_MOST_HELD = 10_000_000
_BODY = b"12345678901234567890"
_BLOCKED = "blocked"
_KEYS = 100_000


class Jobs:
    """A queue with one partition, and one group of it."""

    def __init__(self, stores: SqliteStores, name: str, **settings: Any) -> None:
        self.stores = stores
        self.queue = make_queue(stores, name, 1)
        most = GroupSettings(max_leased=_MOST_HELD, max_held=_MOST_HELD)
        self._group = LeaseGroup(uuid4().int >> 65, settings=most._replace(**settings))
        self._held: list[Settle] = []

    def fill(self, messages: int, keys: Iterator[str | None] | None = None) -> None:
        left = [min(_MANY, messages - at) for at in range(0, messages, _MANY)]
        each = repeat(None) if keys is None else keys

        def drafts(count: int) -> list[Draft]:
            return [Draft(1, _BODY, TTL_SECONDS, None, key) for key in islice(each, count)]

        pour(self.stores, (AppendRequest(self.queue, drafts(count)) for count in left))

    def step(self, receive: ReceiveRequest | None = None, settles: list[Settle] | None = None) -> LeaseOutcome:
        settled = {1: settles} if settles else {}
        token = self._group.token if settles else None
        group = GroupStep(self.queue, GROUP, self._group, token, settled, (), (1,) if receive is not None else ())
        return self.stores.leases.step(LeaseStep([group], receive=receive)).wait()

    def lease(self, messages: int) -> None:
        """Let a receiver have these messages for long."""
        for at in range(0, messages, _MANY):
            most = min(_MANY, messages - at)
            if len(self.step(ReceiveRequest(most, HELD_SECONDS, receiver="holder")).handed) < most:
                raise BenchFailed("a queue ran empty: it had too few messages")

    def consume(self, messages: int, most: int = _MANY) -> None:
        """Receive these messages and acknowledge them."""
        for _ in range(0, messages, most):
            outcome = self.step(ReceiveRequest(most, receiver="worker"), self._held)
            if not outcome.handed:
                raise BenchFailed("a queue ran empty: it had too few messages")
            self._held = [Settle(one.message.id, one.hole.deliveries, Action.ACKNOWLEDGE) for one in outcome.handed]

    def cost(self) -> float:
        """Of the processor's time, microseconds for a message that is received by tens and acknowledged."""
        began = process_time()
        self.consume(_MEASURED * _TENS, _TENS)
        return (process_time() - began) / (_MEASURED * _TENS) * 1e6


def measure(plan: Plan) -> Iterator[Row]:
    """Receives beside much that was consumed or is held, memory, and bytes written."""
    needed = 2 * plan.rounds * _MEASURED * _TENS
    with open_store(plan.fresh("lease-states")) as stores:
        new = Jobs(stores, "new")
        new.fill(6 * needed)
        for make in (_consumed, _leased, _stuck):
            plan.tell(f"making the queue '{make.__name__.strip('_')}'")
            jobs, what, bar = make(stores, plan, needed)
            yield _cost(plan, new, jobs, what, bar)
        yield _state_bytes(jobs, plan)
    yield _under_a_snapshot(plan, needed)
    yield _behind_a_closed_key(plan, needed)
    yield _written(plan)
    yield _leased_memory(plan)
    yield _groups_memory(plan)


def _cost(plan: Plan, new: Jobs, jobs: Jobs, what: str, bars: tuple[str, str], told: str = "a new queue") -> Row:
    below, ours = alternate(new.cost, jobs.cost, plan.rounds)
    first, goal = bars
    said = (f"{number(min(below))} µs a message, {told}", f"{number(min(ours))} µs")
    return Row(what, *said, ratios(ours, below), first=first, goal=goal)


Made = tuple[Jobs, str, tuple[str, str]]


def _consumed(stores: SqliteStores, plan: Plan, needed: int) -> Made:
    jobs, done = Jobs(stores, "consumed"), 0
    while done < plan.deliveries:
        some = min(plan.deliveries - done, 500_000)
        jobs.fill(some)
        jobs.consume(some)
        done += some
    jobs.fill(needed)
    return jobs, f"receive when {plan.deliveries:,} messages were consumed", ("ratio <= 1.5", "ratio <= 1.15")


def _leased(stores: SqliteStores, plan: Plan, needed: int) -> Made:
    jobs = Jobs(stores, "leased")
    jobs.fill(LEASED + needed)
    jobs.lease(LEASED)
    return jobs, f"receive with {LEASED:,} leased", ("ratio <= 1.5", "ratio <= 1.15")


def _stuck(stores: SqliteStores, plan: Plan, needed: int) -> Made:
    jobs = Jobs(stores, "stuck")
    jobs.fill(1 + plan.consumed + needed)
    jobs.lease(1)
    jobs.consume(plan.consumed)
    what = f"receive with one stuck message at the head, {plan.consumed:,} settled behind it"
    return jobs, what, ("ratio <= 1.3", "ratio <= 1.1")


def _state_bytes(jobs: Jobs, plan: Plan) -> Row:
    with apsw.Connection(str(jobs.stores.file.path), apsw.SQLITE_OPEN_READONLY) as connection:
        ((kib,),) = connection.execute(
            "select sum(length(change)) / 1024.0 from lease_changes where token = ?", (jobs._group.token,)
        ).fetchall()
    state = float(kib)  # type: ignore[arg-type]
    what = f"state of a group with one stuck message at the head, {plan.consumed:,} settled behind it"
    return Row(what, "", f"{state:.1f} KiB", goal="state <= 64 KiB", figures={"state": state})


def _under_a_snapshot(plan: Plan, needed: int) -> Row:
    folders = plan.fresh("snapshot"), plan.fresh("no-snapshot")
    with open_store(folders[0]) as under, open_store(folders[1]) as free:
        both = Jobs(under, "jobs"), Jobs(free, "jobs")
        for jobs in both:
            jobs.fill(needed)
        with _snapshot(folders[0]):
            for jobs in both:
                jobs.fill(plan.consumed)
                jobs.consume(plan.consumed)
            what = f"receive under a read snapshot that is held open, {plan.consumed:,} messages on"
            return _cost(plan, both[1], both[0], what, ("ratio <= 1.5", "ratio <= 1.15"), "no snapshot")


@contextmanager
def _snapshot(folder: Path) -> Iterator[None]:
    connection = apsw.Connection(str(folder / "queuey.db"), apsw.SQLITE_OPEN_READONLY)
    connection.execute("begin")
    connection.execute("select count(*) from lease_groups").fetchall()
    try:
        yield
    finally:
        connection.close()


def _behind_a_closed_key(plan: Plan, needed: int) -> Row:
    with open_store(plan.fresh("keys")) as stores:
        free, blocked = (Jobs(stores, name, order=ORDER_BY_KEY) for name in ("free", "blocked"))
        blocked.fill(1 + plan.consumed, iter([_BLOCKED] * (1 + plan.consumed)))
        blocked.lease(1)
        while blocked.step(ReceiveRequest()).handed or not _has_passed_all(blocked):
            """Each receive passes some thousands of them over."""
        for jobs in (free, blocked):
            jobs.fill(needed, (f"key-{at % _KEYS}" for at in range(needed)))
        what = f"FIFO by key: {_KEYS:,} keys, one of them blocked with {plan.consumed:,} messages behind it"
        return _cost(plan, free, blocked, what, ("ratio <= 2", "ratio <= 1.2"), "no blocked key")


def _has_passed_all(jobs: Jobs) -> bool:
    counts = jobs.stores.leases.count(jobs.queue.uuid, GROUP, [1]).wait()[1]
    state = jobs.stores.messages.inspect([jobs.queue.partition(1)], now_ticks=0).wait()[0]
    return state.newest is None or counts.frontier >= state.newest


def _written(plan: Plan) -> Row:
    """Over a whole round of changes and their fold, by ones, as a group of 32 receivers makes them."""
    with open_store(plan.fresh("written")) as stores:
        found = {}
        for leased in (100, LEASED):
            jobs = Jobs(stores, f"leased-{leased}")
            jobs.fill(leased)
            jobs.lease(leased)
            found[leased] = _bytes_a_message(jobs)
    few, many = found.values()
    return Row(
        f"bytes of state written for a message received and settled by ones, {LEASED:,} leased",
        f"{few:.1f} B with 100 leased",
        f"{many:.1f} B",
        Spread(many / few, many / few, many / few),
        first="ratio <= 1.5",
        goal="ratio <= 1.1, each <= 100 B",
        figures={"each": many},
    )


def _bytes_a_message(jobs: Jobs) -> float:
    jobs.fill(_WRITTEN + _MANY)
    jobs.consume(_MANY, 1)
    sizes: list[int] = []
    keep = Transaction.keep_lease_change

    def noting(transaction: Transaction, values: tuple[Any, ...]) -> None:
        sizes.append(len(values[-1]))
        keep(transaction, values)

    with mock.patch.object(Transaction, "keep_lease_change", noting):
        jobs.consume(_WRITTEN, 1)
    return sum(sizes) / _WRITTEN


def _leased_memory(plan: Plan) -> Row:
    with open_store(plan.fresh("memory")) as stores:
        jobs = Jobs(stores, "jobs")
        jobs.fill(LEASED + _MANY)
        jobs.step(ReceiveRequest(_MANY, HELD_SECONDS))
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        jobs.lease(LEASED)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    each = (after - before) / LEASED
    return Row(
        "memory of a leased message",
        "",
        f"{each:.1f} B",
        first="each <= 200 B",
        goal="each <= 100 B",
        figures={"each": each},
    )


def _groups_memory(plan: Plan) -> Row:
    """Groups at rest, after a receive of a thousand of them."""
    sizes = []
    for queues in (_MANY, plan.queues):
        folder = plan.fresh("groups")
        with open_store(folder) as stores:
            make_queue(stores, "first", 1)
        _make_groups(folder, queues)
        with queuey(folder) as server:
            for at in range(_MANY):
                server.ask("POST", f"/v1/{APPLICATION}/q{at}/leases/{GROUP}", json={"receive": {}})
            server.settle()
            sizes.append(server.rss_mib())
    each = (sizes[1] - sizes[0]) * 1024 / (plan.queues - _MANY)
    return Row(
        f"memory of {plan.queues:,} queues with a lease group each",
        f"{sizes[0]:.0f} MiB with {_MANY:,}",
        f"{sizes[1]:.0f} MiB, {each:.3f} KiB a queue",
        goal="each <= 0.2 KiB",
        figures={"each": each},
    )


def _make_groups(folder: Path, queues: int) -> None:
    settings = json.dumps(GroupSettings().to_json())
    connection = apsw.Connection(str(folder / "queuey.db"))
    with connection:
        for at in range(queues):
            queue = uuid4()
            connection.execute(
                "insert into queues (application, name, uuid, created, partitions, kind, consistency, principals, leases) "
                "select application, ?, ?, created, partitions, kind, consistency, principals, leases from queues where name = 'first'",
                (f"q{at}", queue.bytes),
            )
            connection.execute(
                "insert into lease_groups (queue, name, token, start_ticks, start_tail, settings) values (?, ?, ?, 0, 0, ?)",
                (queue.bytes, GROUP, queue.int >> 65, settings),
            )
    connection.close()
