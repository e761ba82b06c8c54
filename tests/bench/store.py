"""The embedded store without a server: to fill it quickly, and to see what it does alone."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from queuey.clock import SystemClock
from queuey.future import Future
from queuey.ids import IdGenerator
from queuey.model import Appended, AppendRequest, Draft, Queue
from queuey.storage.sqlite import SqliteOptions, SqliteStores
from tests.bench.plan import BODY, TTL_SECONDS
from tests.bench.servers import APPLICATION

_AT_ONCE = 16
_DRAFTS = 1000


@contextmanager
def open_store(folder: Path, *, read_cache_mb: int = 1024) -> Iterator[SqliteStores]:
    """As ``queuey serve --data folder`` opens it."""
    clock = SystemClock()
    options = SqliteOptions(read_cache_mb=read_cache_mb)
    stores = SqliteStores(folder / "queuey.db", clock, IdGenerator(clock), options)
    try:
        yield stores
    finally:
        stores.close()


def make_queue(stores: SqliteStores, name: str, partitions: int) -> Queue:
    queue = Queue(APPLICATION, name, uuid.uuid4(), SystemClock().now_ticks(), partitions)
    return stores.metadata.create_queue(queue).wait()[0]


def drafts(count: int, partitions: int) -> list[Draft]:
    """Messages like those the load generator sends."""
    dice = Random(partitions)
    return [Draft(dice.randint(1, partitions), BODY.encode(), TTL_SECONDS) for _ in range(count)]


def fill(stores: SqliteStores, queues: list[Queue], messages: int) -> None:
    """Append about ``messages``, taking the queues in turn; many in one transaction."""
    batches = {queue.uuid: drafts(_DRAFTS // len(queues) or 1, queue.partitions) for queue in queues}

    def in_turn() -> Iterator[AppendRequest]:
        left = messages
        while left > 0:
            for queue in queues:
                yield AppendRequest(queue, batches[queue.uuid])
                left -= len(batches[queue.uuid])

    pour(stores, in_turn(), at_once=_AT_ONCE * len(queues))


def pour(stores: SqliteStores, appends: Iterable[AppendRequest], *, at_once: int = _AT_ONCE) -> None:
    """Return when all are stored; at most ``at_once`` are on their way at a time."""
    waiting: deque[Future[Appended]] = deque()
    for append in appends:
        waiting.append(stores.messages.append(append))
        if len(waiting) > at_once:
            waiting.popleft().wait()
    for promise in waiting:
        promise.wait()
