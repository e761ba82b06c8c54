"""What an append costs the embedded store itself, over a million queues and over ten: processor, and pages of the file."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from random import Random
from statistics import median
from time import process_time
from typing import NamedTuple
from uuid import UUID

import apsw

from queuey.future import Future
from queuey.model import Appended, AppendRequest, Draft, Queue
from queuey.storage.sqlite import SqliteStores
from tests.bench.measure import alternate, is_quiet, ratios, until
from tests.bench.plan import BODY, CONNECTIONS, TTL_SECONDS, Plan
from tests.bench.servers import APPLICATION, QUIET_SECONDS
from tests.bench.store import open_store
from tests.bench.table import Row, number

FEW = 10
_FILLED = 200_000
"""Messages that are there before."""
_MEASURED = 20_000
_MANY = 1000
_APART = 0x9E3779B97F4A7C15F39CC0605CEDC835
"""Spreads incarnations as if they were drawn."""


class _Spent(NamedTuple):
    """What an append took."""

    cpu_us: float
    """Of the processor, with all that the store does on the side."""
    written: float
    """Pages, in the log."""
    read: float
    """Pages that were not in the writer's cache."""


class _Appender:
    """Appends messages of 256 bytes, each to any of some queues."""

    def __init__(self, stores: SqliteStores, queues: int) -> None:
        self._stores, self._queues, self._dice = stores, queues, Random(queues)

    def append(self, messages: int, at_once: int) -> None:
        waiting = deque[Future[Appended]]()
        for _ in range(messages):
            incarnation = UUID(int=self._dice.randrange(self._queues) * _APART % (1 << 128))
            queue = Queue(APPLICATION, "spread", incarnation, 0)
            waiting.append(self._stores.messages.append(AppendRequest(queue, [Draft(1, BODY.encode(), TTL_SECONDS)])))
            if len(waiting) == at_once:
                waiting.popleft().wait()
        for answer in waiting:
            answer.wait()

    def spent(self) -> _Spent:
        """Of appends that as many clients ask for as in the other rows."""
        until(is_quiet, QUIET_SECONDS, "the store to have copied its log")
        before, began = self._pages(), process_time()
        self.append(_MEASURED, CONNECTIONS)
        until(is_quiet, QUIET_SECONDS, "the store to have copied its log")
        took = process_time() - began
        written, read = [(now - then) / _MEASURED for now, then in zip(self._pages(), before, strict=True)]
        return _Spent(took / _MEASURED * 1e6, written, read)

    def _pages(self) -> list[int]:
        """Pages that the writer wrote and read so far, asked where it is at work."""
        found: list[int] = []
        file = self._stores.file

        def look() -> None:
            figures = apsw.SQLITE_DBSTATUS_CACHE_WRITE, apsw.SQLITE_DBSTATUS_CACHE_MISS
            found.extend(file.writer.status(figure)[0] for figure in figures)

        file.committer.run_between(look).wait()
        return found


def measure(plan: Plan) -> Iterator[Row]:
    with open_store(plan.fresh("few")) as few, open_store(plan.fresh("many")) as many:
        sides = [_Appender(few, FEW), _Appender(many, plan.queues)]
        for side in sides:
            side.append(_FILLED, _MANY)
        below, ours = alternate(sides[0].spent, sides[1].spent, plan.rounds)
    yield Row(
        f"{plan.queues:,} queues: append, 1 per request, the store alone",
        f"{_said(below)} over {FEW} queues",
        _said(ours),
        ratios([one.cpu_us for one in ours], [one.cpu_us for one in below]),
    )


def _said(found: list[_Spent]) -> str:
    cpu, written, read = (median(column) for column in zip(*found, strict=True))
    return f"{number(cpu)} µs of the processor, {written:.2f} pages written, {read:.2f} read"
