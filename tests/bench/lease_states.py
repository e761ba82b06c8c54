"""What lease groups hold: what it costs their receivers, in memory and in bytes written. Without a server."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, islice, repeat
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, NamedTuple
from unittest import mock
from uuid import uuid4

import apsw

from queuey.future import Future
from queuey.ids import MessageId
from queuey.model import AppendRequest, Draft
from queuey.model.lease_groups import ORDER_BY_KEY, GroupSettings, LeaseGroup
from queuey.model.lease_requests import Acknowledged, ReceiveRequest
from queuey.model.lease_steps import GroupStep, LeaseOutcome, LeaseStep
from queuey.storage.sqlite import SqliteStores
from queuey.storage.sqlite.checked_rows import with_checksum
from queuey.storage.sqlite.statements import SQL
from queuey.storage.sqlite.transaction import LEASE_CHANGES, Kind, Transaction
from tests.bench.measure import BenchFailed, Spread, alternate, is_quiet, ratios, until
from tests.bench.plan import CONNECTIONS, TTL_SECONDS, Plan
from tests.bench.servers import APPLICATION, QUIET_SECONDS, queuey
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
_PAIRS = 5
"""Measurements of each side in one round: they are short, so what disturbs one seldom disturbs most of them."""
_PORTION = 500_000
"""Messages that are there at once, of those that are consumed."""
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
        self._held: deque[Acknowledged] = deque()
        """What was received and is to be settled, by step."""

    def fill(self, messages: int, keys: Iterator[str | None] | None = None) -> None:
        left = [min(_MANY, messages - at) for at in range(0, messages, _MANY)]
        each = repeat(None) if keys is None else keys

        def drafts(some: int) -> list[Draft]:
            return [Draft(1, _BODY, TTL_SECONDS, None, key) for key in islice(each, some)]

        pour(self.stores, (AppendRequest(self.queue, drafts(some)) for some in left))

    def step(self, receive: ReceiveRequest | None = None) -> LeaseOutcome:
        return self._ask(receive, None).wait()

    def _ask(self, receive: ReceiveRequest | None, settles: Acknowledged | None) -> Future[LeaseOutcome]:
        settled = {1: settles} if settles else {}
        token = self._group.token if settles else None
        group = GroupStep(self.queue, GROUP, self._group, token, settled, (), (1,) if receive is not None else ())
        return self.stores.leases.step(LeaseStep([group], receive=receive))

    def lease(self, messages: int) -> None:
        """Let a receiver have these messages for long."""
        for at in range(0, messages, _MANY):
            most = min(_MANY, messages - at)
            if len(self.step(ReceiveRequest(most, HELD_SECONDS, receiver="holder")).handed) < most:
                raise BenchFailed("a queue ran empty: it had too few messages")

    def consume(self, messages: int, most: int = _MANY, *, at_once: int = 1) -> None:
        """Receive these messages and acknowledge them.

        :param at_once: receivers.
        """
        asked = deque[Future[LeaseOutcome]]()
        for _ in range(0, messages, most):
            if len(asked) == at_once:
                self._take(asked.popleft().wait())
            asked.append(self._next(most))
        for answer in asked:
            self._take(answer.wait())

    def _next(self, most: int) -> Future[LeaseOutcome]:
        """Settle what was received first, and receive some more."""
        return self._ask(ReceiveRequest(most, receiver="worker"), self._held.popleft() if self._held else None)

    def _take(self, outcome: LeaseOutcome) -> None:
        """Keep all that one receive got, for one step that settles it. It comes in parts where a page ended."""
        if not outcome.handed:
            raise BenchFailed("a queue ran empty: it had too few messages")
        ids: list[MessageId] = []
        deliveries: list[int] = []
        for _, _, messages, leases in outcome.handed.parts:
            ids += map(MessageId, messages.ticks, messages.tails)
            deliveries += [lease.deliveries for lease in leases]
        self._held.append(Acknowledged(ids, deliveries))

    def cost(self) -> float:
        """Of the processor's time, microseconds for a message that is received by tens and acknowledged.

        As many receivers ask at once as a server has in the other rows.
        """
        began = process_time()
        self.consume(_MEASURED * _TENS, _TENS, at_once=CONNECTIONS)
        return (process_time() - began) / (_MEASURED * _TENS) * 1e6


def _needed(plan: Plan) -> int:
    """Messages of one side of a comparison."""
    return (_PAIRS * plan.rounds + 1) * _MEASURED * _TENS


def _cost(plan: Plan, new: Jobs, jobs: Jobs, what: str, bars: tuple[str, str], told: str = "a new queue") -> Row:
    until(is_quiet, QUIET_SECONDS, "the stores to have packed what was just appended")
    below, ours = alternate(new.cost, jobs.cost, _PAIRS * plan.rounds)
    first, goal = bars
    said = (f"{number(min(below))} µs a message, {told}", f"{number(min(ours))} µs")
    return Row(what, *said, ratios(ours, below), first=first, goal=goal)


@contextmanager
def _beside_a_new_queue(plan: Plan) -> Iterator[tuple[SqliteStores, Jobs]]:
    """A store, and a queue in it that nothing has happened to."""
    with open_store(plan.fresh("lease-states")) as stores:
        new = Jobs(stores, "new")
        new.fill(_needed(plan))
        yield stores, new


def _consumed(plan: Plan) -> Iterator[Row]:
    with _beside_a_new_queue(plan) as (stores, new):
        jobs, done = Jobs(stores, "consumed"), 0
        jobs.fill(LEASED)
        jobs.lease(LEASED)
        while done < plan.deliveries:
            some = min(plan.deliveries - done, _PORTION)
            jobs.fill(some)
            jobs.consume(some)
            done += some
            if done % (4 * _PORTION) == 0:
                plan.tell(f"  {done:,} messages are consumed")
        jobs.fill(_needed(plan))
        what = f"receive when {plan.deliveries:,} messages were consumed, with {LEASED:,} leased"
        yield _cost(plan, new, jobs, what, ("ratio <= 1.5", "ratio <= 1.15"))


def _leased(plan: Plan) -> Iterator[Row]:
    with _beside_a_new_queue(plan) as (stores, new):
        jobs = Jobs(stores, "leased")
        jobs.fill(LEASED + _needed(plan))
        jobs.lease(LEASED)
        yield _cost(plan, new, jobs, f"receive with {LEASED:,} leased", ("ratio <= 1.5", "ratio <= 1.15"))


def _stuck(plan: Plan) -> Iterator[Row]:
    with _beside_a_new_queue(plan) as (stores, new):
        jobs = Jobs(stores, "stuck")
        jobs.fill(1 + plan.consumed + _needed(plan))
        jobs.lease(1)
        jobs.consume(plan.consumed)
        what = f"receive with one stuck message at the head, {plan.consumed:,} settled behind it"
        yield _cost(plan, new, jobs, what, ("ratio <= 1.3", "ratio <= 1.1"))
        yield _state_bytes(jobs, plan)


def _state_bytes(jobs: Jobs, plan: Plan) -> Row:
    with apsw.Connection(str(jobs.stores.file.path), apsw.SQLITE_OPEN_READONLY) as connection:
        ((kib,),) = connection.execute(
            "select sum(length(change)) / 1024.0 from lease_changes where token = ?", (jobs._group.token,)
        ).fetchall()
    state = float(kib)  # type: ignore[arg-type]
    what = f"state of a group with one stuck message at the head, {plan.consumed:,} settled behind it"
    return Row(what, "", f"{state:.1f} KiB", goal="state <= 64 KiB", figures={"state": state})


def _under_a_snapshot(plan: Plan) -> Iterator[Row]:
    folders = plan.fresh("snapshot"), plan.fresh("no-snapshot")
    with open_store(folders[0]) as under, open_store(folders[1]) as free:
        both = Jobs(under, "jobs"), Jobs(free, "jobs")
        for jobs in both:
            jobs.fill(_needed(plan))
        with _snapshot(folders[0]):
            for jobs in both:
                jobs.fill(plan.consumed)
                jobs.consume(plan.consumed)
            what = f"receive under a read snapshot that is held open, {plan.consumed:,} messages on"
            yield _cost(plan, both[1], both[0], what, ("ratio <= 1.5", "ratio <= 1.15"), "no snapshot")


@contextmanager
def _snapshot(folder: Path) -> Iterator[None]:
    connection = apsw.Connection(str(folder / "queuey.db"), apsw.SQLITE_OPEN_READONLY)
    connection.execute("begin")
    connection.execute("select count(*) from lease_groups").fetchall()
    try:
        yield
    finally:
        connection.close()


def _behind_a_closed_key(plan: Plan) -> Iterator[Row]:
    with open_store(plan.fresh("keys")) as stores:
        free, blocked = (Jobs(stores, name, order=ORDER_BY_KEY) for name in ("free", "blocked"))
        blocked.fill(1 + plan.consumed, repeat(_BLOCKED))
        blocked.lease(1)
        while blocked.step(ReceiveRequest()).handed or not _has_passed_all(blocked):
            """Each receive passes some thousands of them over."""
        for jobs in (free, blocked):
            jobs.fill(_KEYS, (f"key-{at}" for at in range(_KEYS)))
            jobs.consume(_KEYS)
            jobs.fill(_needed(plan), (f"key-{at % _KEYS}" for at in count()))
        what = f"FIFO by key: {_KEYS:,} keys, one of them blocked with {plan.consumed:,} messages behind it"
        yield _cost(plan, free, blocked, what, ("ratio <= 2", "ratio <= 1.2"), "no blocked key")


def _has_passed_all(jobs: Jobs) -> bool:
    counts = jobs.stores.leases.count(jobs.queue.uuid, GROUP, [1]).wait()[1]
    state = jobs.stores.messages.inspect([jobs.queue.partition(1)], now_ticks=0).wait()[0]
    return state.newest is None or counts.frontier >= state.newest


def _written(plan: Plan) -> Iterator[Row]:
    """Over some rounds of changes and their folds, by ones."""
    with open_store(plan.fresh("written")) as stores:
        found = {}
        for leased in (100, LEASED):
            jobs = Jobs(stores, f"leased-{leased}")
            jobs.fill(leased)
            jobs.lease(leased)
            found[leased] = _bytes_a_message(jobs, plan.written)
    few, many = found.values()
    yield Row(
        f"bytes of state written for a message received and settled by ones, {LEASED:,} leased",
        f"{few:.1f} B with 100 leased",
        f"{many:.1f} B",
        Spread(many / few, many / few, many / few),
        first="ratio <= 1.5",
        goal="ratio <= 1.1, each <= 100 B",
        figures={"each": many},
    )


def _bytes_a_message(jobs: Jobs, messages: int) -> float:
    jobs.fill(messages + _MANY)
    jobs.consume(_MANY, 1)
    sizes: list[int] = []
    keep = Transaction.keep

    def noting(transaction: Transaction, kind: Kind, values: tuple[Any, ...], *name: object) -> None:
        if kind is LEASE_CHANGES:
            sizes.append(len(values[-1]))
        keep(transaction, kind, values, *name)

    with mock.patch.object(Transaction, "keep", noting):
        jobs.consume(messages, 1)
    return sum(sizes) / messages


def _leased_memory(plan: Plan) -> Iterator[Row]:
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
    yield Row(
        "memory of a leased message",
        "",
        f"{each:.1f} B",
        first="each <= 200 B",
        goal="each <= 100 B",
        figures={"each": each},
    )


def _groups_memory(plan: Plan) -> Iterator[Row]:
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
    yield Row(
        f"memory of {plan.queues:,} queues with a lease group each",
        f"{sizes[0]:.0f} MiB with {_MANY:,}",
        f"{sizes[1]:.0f} MiB, {each:.3f} KiB a queue",
        goal="each <= 0.2 KiB",
        figures={"each": each},
    )


def _make_groups(folder: Path, queues: int) -> None:
    settings = json.dumps(GroupSettings().to_json())
    connection = apsw.Connection(str(folder / "queuey.db"))
    names = [str(column[1]) for column in connection.execute("pragma table_info(queues)")]
    (first,) = [dict(zip(names, row[:-1], strict=False)) for row in connection.execute("select * from queues")]
    uuids = [uuid4() for _ in range(queues)]
    with connection:
        rows = (first | {"name": f"q{at}", "uuid": one.bytes} for at, one in enumerate(uuids))
        connection.executemany(SQL["queue_insert"], (with_checksum(tuple(row.values())) for row in rows))
        groups = ((one.bytes, GROUP, one.int >> 65, 0, 0, settings) for one in uuids)
        connection.executemany(SQL["lease_group_keep"], map(with_checksum, groups))
    connection.close()


def _restarted(plan: Plan) -> Iterator[Row]:
    """After kill -9, from the birth of the process to the answer, with nearly as many changes as there are before a fold."""
    folders = {0: plan.fresh("restart-none"), plan.consumed: plan.fresh("restart")}
    for leased, folder in folders.items():
        with open_store(folder) as stores:
            jobs = Jobs(stores, "jobs")
            jobs.fill(leased + leased // 8 + plan.rounds)
            jobs.lease(leased)
            jobs.consume(leased // 8, 1)
    nothing, much = folders.values()
    below, ours = alternate(lambda: _first_answer(nothing), lambda: _first_answer(much), plan.rounds)
    (few, _), (processor, waited) = (map(median, zip(*found, strict=True)) for found in (below, ours))
    yield Row(
        f"restart with {plan.consumed:,} leased messages: the first receive is answered",
        f"{few:.2f} s of the processor with none",
        f"{processor:.2f} s, {waited:.2f} s by the clock",
        goal="seconds <= 3 s",
        figures={"seconds": processor},
    )


def _first_answer(folder: Path) -> tuple[float, float]:
    """Seconds of the processor, which other programs take from nobody, and by the clock."""
    with queuey(folder) as server:
        began = perf_counter()
        path = f"/v1/{APPLICATION}/jobs/leases/{GROUP}"
        if not server.ask("POST", path, json={"receive": {"visibility": 43_200}}).json()["messages"]:
            raise BenchFailed("a queue ran empty: it had too few messages")
        waited, processor = server.started_seconds + perf_counter() - began, server.cpu_seconds()
        server.kill()
    return processor, waited


class _Topic(NamedTuple):
    """One row, and what it takes."""

    measure: Callable[[Plan], Iterator[Row]]
    minutes: float
    """At full size, on two cores; with ``--quick`` less than one."""


_TOPICS = {
    "consumed": _Topic(_consumed, 10),
    "held": _Topic(_leased, 1),
    "stuck": _Topic(_stuck, 2),
    "snapshot": _Topic(_under_a_snapshot, 3),
    "keys": _Topic(_behind_a_closed_key, 3),
    "written": _Topic(_written, 2),
    "leased": _Topic(_leased_memory, 1),
    "resting": _Topic(_groups_memory, 3),
    "restart": _Topic(_restarted, 3),
}


def _told(topic: _Topic) -> Callable[[Plan], Iterator[Row]]:
    def measure(plan: Plan) -> Iterator[Row]:
        plan.tell(f"  this takes up to {topic.minutes:g} minutes at full size")
        yield from topic.measure(plan)

    return measure


TOPICS: dict[str, Callable[[Plan], Iterator[Row]]] = {name: _told(topic) for name, topic in _TOPICS.items()}
"""By name; each says how long it takes."""
