"""What a commit of the embedded store writes, table by table, and what it takes of the processor: alone and by many.

Without a server and without threads: the jobs of a commit are asked for, and then this thread commits them, as an event
loop does at the end of a turn.
"""

from __future__ import annotations

import struct
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf
from pathlib import Path
from statistics import median
from time import perf_counter, thread_time
from typing import Any, NamedTuple
from uuid import uuid4

import apsw

from queuey.future import Future
from queuey.ids import MessageId
from queuey.model import AppendRequest, Draft, IdempotencyKey
from queuey.model.lease_groups import GroupSettings, LeaseGroup
from queuey.model.lease_requests import Acknowledged, ReceiveRequest
from queuey.model.lease_steps import GroupStep, LeaseOutcome, LeaseStep
from queuey.storage.sqlite import SqliteStores
from tests.bench.measure import alternate, percentile, ratios
from tests.bench.plan import BODY, CONNECTIONS, TTL_SECONDS, Plan
from tests.bench.store import make_queue, open_store
from tests.bench.table import Row, number

_FILLED = 50_000
"""Messages, idempotency keys and attempts that are there before."""
_COUNTED = 150
"""Commits of which the pages are counted: their log is shorter than what the upkeep copies."""
_FILL = 100
"""Of them in one commit."""
_MEASURED = 400
"""Messages of one measurement."""
_TABLES = 4
"""Those with the most pages are named."""
_GROUP = "bench"
_DIGEST = bytes(16)
_DAY_SECONDS = 86_400
_SALTS = slice(16, 24)
_LOG_HEAD, _FRAME_HEAD = 32, 24


class _Turns:
    """An inbox whose turns end when they are told to."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], object]] = deque()

    def arrives(self, go_on: Callable[[], object]) -> None:
        self._waiting.append(go_on)

    def end(self) -> None:
        while self._waiting:
            self._waiting.popleft()()


class Spent(NamedTuple):
    """What a commit took."""

    cpu_us: float
    """Of the processor, what one of ten commits does not exceed: the others met something else of the machine."""
    clock_us: float
    """By the clock, with the sync; a median."""
    pages: Counter[str]
    """Of the log, by what they belong to."""
    commits: int


class Client:
    """Appends messages and consumes them, in a queue with one partition."""

    def __init__(self, stores: SqliteStores, turns: _Turns) -> None:
        self._stores, self._turns = stores, turns
        self.queue = make_queue(stores, "commits", 1)
        most = 10 * _FILLED
        self._group = LeaseGroup(uuid4().int >> 65, settings=GroupSettings(max_leased=most, max_held=most))
        self._held: deque[tuple[MessageId, int]] = deque()

    def append(self, *, keyed: bool = False) -> Future[Any]:
        key = IdempotencyKey(uuid4().hex, _DIGEST, _DAY_SECONDS) if keyed else None
        return self._stores.messages.append(AppendRequest(self.queue, [Draft(1, BODY.encode(), TTL_SECONDS)], key))

    def keyed(self) -> Future[Any]:
        return self.append(keyed=True)

    def receive(self, *, attempt: bool = False) -> Future[Any]:
        return self._step(1, 0, attempt=attempt)

    def acknowledge(self, *, attempt: bool = False) -> Future[Any]:
        return self._step(0, 1, attempt=attempt)

    def both(self, *, attempt: bool = False) -> Future[Any]:
        """Acknowledge one message and receive the next."""
        return self._step(1, 1 if self._held else 0, attempt=attempt)

    def _step(self, most: int, settled: int, *, attempt: bool) -> Future[Any]:
        held = [self._held.popleft() for _ in range(settled)]
        ids, deliveries = zip(*held, strict=True) if held else ((), ())
        settles = {1: Acknowledged(ids, deliveries)} if held else {}
        token = self._group.token if held else None
        one = GroupStep(self.queue, _GROUP, self._group, token, settles, (), (1,) if most else ())
        receive = ReceiveRequest(most, receiver="worker") if most else None
        named = IdempotencyKey(uuid4().hex, _DIGEST, 0) if attempt else None
        return self._stores.leases.step(LeaseStep([one], receive=receive, attempt=named))

    def commit(self, asks: Sequence[Ask], at_once: int = 1) -> tuple[float, float]:
        """Ask for all of this in one commit, as many times each.

        :returns: seconds of the processor, and by the clock.
        """
        began = thread_time(), perf_counter()
        asked = [ask(self) for ask in asks for _ in range(at_once)]
        self._turns.end()
        took = thread_time() - began[0], perf_counter() - began[1]
        for one in asked:
            outcome = one.wait()
            if isinstance(outcome, LeaseOutcome):
                self._held += [(one.message.id, one.hole.deliveries) for one in outcome.handed]
        return took


Ask = Callable[[Client], "Future[Any]"]


class Load(NamedTuple):
    """Commits that follow each other."""

    name: str
    commits: Sequence[Sequence[Ask]]
    """What each asks for."""


LOADS = [
    Load("append", [[Client.append]]),
    Load("append, idempotency key", [[Client.keyed]]),
    Load("acknowledge and receive", [[Client.both]]),
    Load("acknowledge and receive, attempt", [[partial(Client.both, attempt=True)]]),
    Load("receive; acknowledge", [[Client.receive], [Client.acknowledge]]),
    Load(
        "receive; acknowledge, attempts",
        [[partial(Client.receive, attempt=True)], [partial(Client.acknowledge, attempt=True)]],
    ),
    Load(
        "append with a key and receive under an attempt; acknowledge under an attempt",
        [[Client.keyed, partial(Client.receive, attempt=True)], [partial(Client.acknowledge, attempt=True)]],
    ),
]


class Commits:
    """A store of its own, with messages, keys and attempts in it."""

    def __init__(self, stores: SqliteStores, folder: Path) -> None:
        self._stores, self._path = stores, folder / "queuey.db"
        self._turns = _Turns()
        stores.messages.use_loop(self._turns)
        self._client = Client(stores, self._turns)
        file = stores.file
        if file.upkeep is not None:
            file.upkeep.stop()  # it would pack what is read, and copy the log meanwhile
        file.committer.writer.times._limit = inf
        receive, acknowledge = partial(Client.receive, attempt=True), partial(Client.acknowledge, attempt=True)
        for _ in range(_FILLED // _FILL):
            self._client.commit([Client.keyed], _FILL)
            self._client.commit([receive], _FILL)
            self._client.commit([acknowledge], _FILL)

    def spent(self, load: Load, at_once: int, commits: int) -> Spent:
        """:param commits: whose time is taken."""
        for _ in range((commits + _COUNTED + 1) * at_once // _FILL + 1):
            self._client.commit([Client.append], _FILL)
        self._client.commit([Client.both], at_once)  # so that something is held
        pages = self._pages(load, at_once)
        self._copied()
        took = [[self._client.commit(asks, at_once) for asks in load.commits] for _ in range(commits)]
        cpu, clock = ([sum(one[at] for one in some) / len(some) * 1e6 for some in took] for at in (0, 1))
        return Spent(percentile(cpu, 0.1), median(clock), pages, _COUNTED * len(load.commits))

    def _pages(self, load: Load, at_once: int) -> Counter[str]:
        self._copied()
        for _ in range(_COUNTED):
            for asks in load.commits:
                self._client.commit(asks, at_once)
        written = [*_frames(self._path.with_name("queuey.db-wal"))]
        beside = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READONLY)
        owners: dict[Any, Any] = dict(beside.execute("select pageno, name from dbstat"))
        beside.close()
        return Counter(owners.get(page, "other") for page in written)

    def _copied(self) -> None:
        """Let the log begin anew."""
        writer = self._stores.file.writer

        def copy() -> None:
            writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

        self._stores.file.committer.run_between(copy).wait()


def _frames(log: Path) -> Iterator[int]:
    """The numbers of the pages in a log."""
    with log.open("rb") as file:
        head = file.read(_LOG_HEAD)
        size = struct.unpack(">I", head[8:12])[0]
        while frame := file.read(_FRAME_HEAD):
            if frame[8:16] != head[_SALTS]:
                return
            yield struct.unpack(">I", frame[:4])[0]
            file.seek(size, 1)


def measure(plan: Plan) -> Iterator[Row]:
    with opened(plan.fresh("commits")) as store:
        for load in LOADS:
            for at_once in (1, CONNECTIONS):
                commits = _MEASURED if at_once == 1 else _MEASURED // 8
                plain = partial(store.spent, LOADS[0], at_once, commits)
                below, ours = alternate(plain, partial(store.spent, load, at_once, commits), plan.rounds)
                yield Row(
                    f"a commit of {at_once}: {load.name}",
                    f"{_said(below)}, append",
                    f"{_said(ours)}: {_tables(ours[-1])}",
                    ratios([one.cpu_us for one in ours], [one.cpu_us for one in below]),
                )


def _said(found: list[Spent]) -> str:
    cpu = median([one.cpu_us for one in found])
    pages = median([sum(one.pages.values()) / one.commits for one in found])
    return f"{number(cpu)} µs of the processor, {pages:.1f} pages"


def _tables(one: Spent) -> str:
    return ", ".join(f"{pages / one.commits:.1f} {name}" for name, pages in one.pages.most_common(_TABLES))


@contextmanager
def opened(folder: Path) -> Iterator[Commits]:
    with open_store(folder) as stores:
        yield Commits(stores, folder)
