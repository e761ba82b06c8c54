"""A worker's reports to the server, for the people at its console.

The server knows what lease groups hold, and nothing of workers on owned partitions: they meet elsewhere. So a worker that
is asked to writes every ten seconds how it does, as one message at a place of its own that is overwritten.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from qdo.client import Client, NewMessage
from qdo.client.places import place_named
from queuey.clock import Clock, SystemClock
from queuey.errors import QueueNotFound, QueueyError
from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND
from queuey.model.worker_reports import REPORT_LIFE_SECONDS, REPORT_SECONDS, REPORTS
from queuey.tracebacks import bounded, text_of, without

if TYPE_CHECKING:
    from qdo.client.values import Message
    from qdo.worker import Worker
    from qdo.worker.job import Context

__all__ = ["WorkerReports"]

log = logging.getLogger(__name__)

_PACKAGE = Path(__file__).parents[1]
MOST_QUEUES = 20
"""Names in a report."""
MOST_MOVES = 50
MOVES_SECONDS = 3600.0
"""How far back a report tells when the number of owned partitions has changed."""
MOST_TRACEBACK = 4000
"""Characters."""


class WorkerReports:
    """Reports while its ``with`` block runs."""

    def __init__(
        self, worker: Worker, queues: Sequence[str], make_client: Callable[[], Client], clock: Clock | None = None
    ) -> None:
        self._worker, self._queues, self._make_client = worker, list(queues), make_client
        self._clock = clock or SystemClock()
        self._name = f"{socket.gethostname()} {os.getpid()} {id(self)}"
        """Of the place; the worker's own name may change."""
        self._started = self._now()
        self._before = (self._clock.elapsed(), 0)
        self._owned = 0
        self._moves: deque[tuple[float, int, int]] = deque(maxlen=MOST_MOVES)
        self._failure: dict[str, Any] | None = None
        self._is_warned = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reports", daemon=True)
        worker.on_failure(self._failed)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(REPORT_SECONDS)

    def _run(self) -> None:
        with self._make_client() as client:
            while True:
                self._try(lambda: self.write(client))
                if self._over.wait(REPORT_SECONDS):
                    break
            self._try(lambda: client.delete(REPORTS, self._place(client)))

    def _try(self, step: Callable[[], object]) -> None:
        """A worker that cannot report works all the same."""
        try:
            step()
        except QueueyError as error:
            if not self._is_warned:
                log.warning("the server takes no reports of this worker now: %s", error)
            self._is_warned = True
        else:
            self._is_warned = False

    def write(self, client: Client) -> None:
        """Write how the worker does now.

        :raises QueueyError: it is not written.
        """
        try:
            place = self._place(client)
        except QueueNotFound:
            client.create_queue(REPORTS)
            place = self._place(client)
        body = json.dumps(self.report())
        client.put(REPORTS, place, NewMessage(body, ttl_seconds=REPORT_LIFE_SECONDS, content_type="application/json"))

    def report(self) -> dict[str, Any]:
        """What a report says. Rates are those since the report before."""
        worker, figures, now = self._worker, self._worker.figures(), self._now()
        counts, elapsed = figures.counts, self._clock.elapsed()
        before, done_before = self._before
        self._before = elapsed, counts.done
        if figures.owned != self._owned:
            self._moves.append((now, self._owned, figures.owned))
            self._owned = figures.owned
        return {
            "name": worker.name,
            "group": worker.options.group,
            "way": "leases" if worker.options.lease else "owned partitions",
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "queues": self._queues[:MOST_QUEUES],
            "started": self._started,
            "time": now,
            "done": counts.done,
            "failed": counts.failed,
            "dead": counts.dead,
            "lost": counts.lost,
            "refused": counts.refused,
            "per_second": round((counts.done - done_before) / max(elapsed - before, 1e-3), 2),
            "owned": figures.owned,
            "rebalances": figures.rebalances,
            "prefetched": figures.prefetched,
            "lag_seconds": round(max(figures.lag_seconds, default=0.0), 3),
            "connected": figures.connected,
            "moves": [list(move) for move in self._moves if now - move[0] <= MOVES_SECONDS],
            "last_failure": self._failure,
        }

    def _failed(self, messages: Sequence[Message], context: Context, error: Exception) -> None:
        first = messages[0]
        self._failure = {
            "time": self._now(),
            "queue": context.queue,
            "partition": first.partition,
            "message_id": first.id.hex,
            "traceback": bounded(text_of(error, without(_PACKAGE, error)), MOST_TRACEBACK),
        }

    def _place(self, client: Client) -> str:
        """:raises QueueNotFound: there are no reports yet."""
        queue = client.find_queue(REPORTS)
        if queue is None or queue.created is None:
            raise QueueNotFound(f"there is no queue {REPORTS}")
        return place_named(self._name, queue.created)

    def _now(self) -> float:
        return round((self._clock.now_ticks() - EPOCH_TICKS) / TICKS_PER_SECOND, 3)
