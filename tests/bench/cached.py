"""Pages of a stream from the store alone: from packs, and from the copies of them that are kept for readers of many."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from queuey.clock import SystemClock
from queuey.ids import MAX_ID, ZERO_ID
from queuey.model import Queue, ReadRequest, Span
from queuey.storage.sqlite import SqliteStores
from tests.bench.measure import BenchFailed, alternate, rate_of, ratios, until
from tests.bench.plan import Plan
from tests.bench.store import fill, make_queue, open_store
from tests.bench.table import Row, number

_ROWS, _BYTES = 4000, 1 << 20
_PATIENCE_SECONDS = 60


def measure(plan: Plan) -> Iterator[Row]:
    """Two stores with the same messages, one of which keeps no cached runs."""
    with open_store(plan.fresh("packs"), read_cache_mb=0) as plain, open_store(plan.fresh("cached")) as copied:
        from_packs, from_runs = (make_queue(store, "q", 1) for store in (plain, copied))
        fill(plain, [from_packs], plan.rows)
        fill(copied, [from_runs], plan.rows)
        rows = _read_all(plain, from_packs)
        for _ in range(2):
            if _read_all(copied, from_runs) != rows:
                raise BenchFailed("the stores have not the same messages")
        most = rows - _ROWS  # what is left at the end may fill no cached run
        until(lambda: _in_cached_runs(copied) >= most, _PATIENCE_SECONDS, "the keeper to copy what was read twice")
        below, ours = alternate(
            lambda: rate_of(lambda: _read_all(plain, from_packs), plan.seconds),
            lambda: rate_of(lambda: _read_all(copied, from_runs), plan.seconds),
            plan.rounds,
        )
        yield Row(
            "pages of 4,000 from the store alone, in cached runs",
            f"{number(median(below))} msg/s from packs",
            f"{number(median(ours))} msg/s",
            ratios(ours, below),
        )


def _in_cached_runs(stores: SqliteStores) -> int:
    """How many messages have copies."""
    with stores.file.readers.lend() as reader:
        ((messages,),) = reader.ask("select total(messages) from cached_runs", (), list)
    return int(messages)


def _read_all(stores: SqliteStores, queue: Queue) -> int:
    """:returns: how many messages there are."""
    after, count, more, now = ZERO_ID, 0, True, SystemClock().now_ticks()
    while more:
        request = ReadRequest(queue.partition(1), Span(after, MAX_ID), _ROWS, max_bytes=_BYTES)
        page = stores.messages.read(request, now_ticks=now).wait()
        more, count = page.more, count + len(page.messages)
        if page.messages:
            after = page.messages[-1].id
    return count
