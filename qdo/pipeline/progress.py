"""How far behind a streaming query is.

Spark's progress cannot tell this of a source in Python.

Add a :class:`LagListener` to the session. For each progress of a query that reads queues it asks the servers once how
many messages lie between the last one read and the newest one. The names are those of Spark's Kafka source.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from qdo.pipeline.checkpoint import Offsets, from_json
from qdo.pipeline.options import BATCH, Given, Reach
from qdo.pipeline.task_reader import Counting, connect, survey
from queuey.errors import CursorLost, QueueNotFound, QueueyError
from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND
from queuey.monitor.declared import Declarations, MetricSet
from queuey.monitor.exposition import text_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

log = logging.getLogger("qdo.pipeline")

QUERY_METRICS = Declarations()
AVERAGE = QUERY_METRICS.gauge(
    "qdo_pipeline_avg_offsets_behind_latest",
    "Messages of a partition that the query has not read, on average",
    ("query",),
)
MOST = QUERY_METRICS.gauge(
    "qdo_pipeline_max_offsets_behind_latest",
    "Messages that the query has not read, in the partition with most",
    ("query",),
)
LEAST = QUERY_METRICS.gauge(
    "qdo_pipeline_min_offsets_behind_latest",
    "Messages that the query has not read, in the partition with least",
    ("query",),
)
SECONDS = QUERY_METRICS.gauge(
    "qdo_pipeline_seconds_behind_latest",
    "From the newest message read to the newest, in the partition furthest behind",
    ("query",),
)

COUNTED = 1_000_000
"""Messages of one partition are counted up to this number."""


@dataclass(frozen=True)
class QueryLag:
    """How far one query is behind."""

    query: str
    """The name of the query, or its id if it has none."""
    batch: int
    avg_offsets_behind_latest: float
    """Messages of a partition, on average."""
    max_offsets_behind_latest: int
    min_offsets_behind_latest: int
    seconds_behind_latest: float
    """Between the newest message and the newest one that was read, of the partition that is furthest behind."""


class LagListener(StreamingQueryListener):
    """Keeps the lag of each query that reads the format ``queuey``.

    ::

        spark.streams.addListener(LagListener(url=..., application=..., token=...))
    """

    def __init__(
        self,
        *,
        say: Callable[[QueryLag], None] = lambda lag: None,
        every_seconds: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        **reach: str,
    ) -> None:
        """:param say: called with each lag, in the thread in which Spark calls listeners.
        :param every_seconds: each query is looked at no more often.
        :param reach: options of the source that say where the servers are: url, application, token or tokenFile.
        """
        self._reach = Reach.of(Given(reach, BATCH))
        self._say = say
        self._every = every_seconds
        self._clock = clock
        self._looked: dict[str, float] = {}
        self._found: dict[str, QueryLag] = {}
        """Both by the id of a query: the event of its end does not tell its name."""
        self._lock = threading.Lock()

    @property
    def lags(self) -> Mapping[str, QueryLag]:
        """The last lag of each query that runs, by name."""
        with self._lock:
            return {lag.query: lag for lag in self._found.values()}

    def metrics(self) -> str:
        """The lags in the text format of Prometheus."""
        found = MetricSet(QUERY_METRICS)
        for lag in self.lags.values():
            for gauge, value in (
                (AVERAGE, lag.avg_offsets_behind_latest),
                (MOST, lag.max_offsets_behind_latest),
                (LEAST, lag.min_offsets_behind_latest),
                (SECONDS, lag.seconds_behind_latest),
            ):
                found.set(gauge, value, lag.query)
        return text_of(found).decode()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is known yet."""

    def onQueryIdle(self, event: Any) -> None:
        """Nothing has come, so the lag is the one of the last progress."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        query = str(progress.id)
        now = self._clock()
        if query in self._looked and now - self._looked[query] < self._every:
            return
        self._looked[query] = now
        read = [offset for source in progress.sources if (offset := _queuey_offset(source.endOffset)) is not None]
        if read:
            self._look(query, progress.name or query, progress.batchId, read)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Forget a query that has ended: nobody waits for it."""
        with self._lock:
            self._found.pop(str(event.id), None)
        self._looked.pop(str(event.id), None)

    def _look(self, query: str, name: str, batch: int, offsets: Sequence[Offsets]) -> None:
        try:
            lag = _lag(self._reach, name, batch, offsets)
        except QueueyError as error:
            log.warning("the lag of %s is not known: %s", name, error)
            return
        with self._lock:
            self._found[query] = lag
        self._say(lag)


def _queuey_offset(text: Any) -> Offsets | None:
    """An offset of this source; None for an offset of another source."""
    try:
        told = json.loads(text) if isinstance(text, str) else text
        return from_json(told) if isinstance(told, dict) and "queues" in told else None
    except (ValueError, QueueyError):
        return None


def _lag(reach: Reach, name: str, batch: int, offsets: Sequence[Offsets]) -> QueryLag:
    """How far a query is behind.

    :param offsets: one for each of its sources.
    """
    behind: list[int] = []
    seconds = 0.0
    with connect(reach) as client:
        for queue, offset in chain.from_iterable(each.items() for each in offsets):
            try:
                found = survey(client, queue, offset, partitions="all", counting=Counting(COUNTED))
            except (CursorLost, QueueNotFound):
                continue  # the queue is gone, and stays in the offset
            for number, span in found.spans.items():
                behind.append(span.messages or 0)
                if span.newest is not None:
                    read = max(offset.at(number).ticks, EPOCH_TICKS)
                    late = span.newest.ticks - read if read > EPOCH_TICKS else 0
                    seconds = max(seconds, late / TICKS_PER_SECOND)
    counts = behind or [0]
    return QueryLag(name, batch, sum(counts) / len(counts), max(counts), min(counts), seconds)
