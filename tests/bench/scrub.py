"""What the search for damage takes of the processor, for a message by itself and for one in a pack."""

from __future__ import annotations

import time
from collections.abc import Iterator

import apsw

from queuey.model import AppendRequest
from queuey.storage.sqlite.scrub import Scrub
from tests.bench.measure import BenchFailed, spread
from tests.bench.plan import Plan
from tests.bench.store import drafts, fill, make_queue, open_store, pour
from tests.bench.table import Row


def measure(plan: Plan) -> Iterator[Row]:
    """Whole passes over a store of messages that came one by one, and over one of batches."""
    for what, in_packs in (("by themselves", False), ("in packs", True)):
        folder = plan.fresh("scrub")
        with open_store(folder) as store:
            queue = make_queue(store, "q", 1)
            if in_packs:
                fill(store, [queue], plan.rows)
            else:
                pour(store, (AppendRequest(queue, drafts(1, 1)) for _ in range(plan.rows)))
        took = [_pass(str(folder / "queuey.db")) / plan.rows for _ in range(plan.rounds)]
        microseconds = spread([1e6 * seconds for seconds in took])
        yield Row(f"search for damage, messages {what}", "", f"{microseconds} µs of the processor a message")


def _pass(path: str) -> float:
    """:returns: seconds of the processor."""
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
    scrub, began = Scrub(connection), time.thread_time()
    for _ in scrub.steps():
        pass
    if scrub.found:
        raise BenchFailed(f"damage in a new store: {scrub.found}")
    connection.close()
    return time.thread_time() - began
