"""The streaming read: micro-batches between two offsets.

Offsets never pass the watermark, so a batch that is repeated has the same messages (G5).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from qdo.client.refusals import may_pass
from qdo.pipeline.backlog import Backlog
from qdo.pipeline.checkpoint import Offsets, from_json, to_json
from qdo.pipeline.options import ReadOptions
from qdo.pipeline.spans import TASK_ROWS, dealt
from qdo.pipeline.task_reader import doing, log
from qdo.pipeline.tasks import PartReader, Task
from queuey.errors import QueueNotFound, QueueyError

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition


class QueueyStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark makes one for a query, in a process of the driver. Tasks read its parts."""

    def __init__(
        self,
        options: ReadOptions,
        reader: PartReader,
        cores: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._cores = cores
        self._reader = reader
        self._clock = clock
        self._backlog = Backlog(options)
        self._recorded: Offsets = {}
        """Of the group, by queue."""
        self._newest: Offsets | None = None
        """What was there at the last look."""
        self._held_since: float | None = None
        """When messages began to wait for minOffsetsPerTrigger."""

    # In the driver

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins."""
        return to_json(self._backlog.begin())

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_per_trigger) if self._options.max_per_trigger else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Let what is there now be all that this run reads."""
        self._backlog.fix_target()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next micro-batch: ids of messages that are there.

        It is ``start`` itself if there is nothing new.

        A partition that is added to a queue is read from its beginning, or from ``startingTimestamp``, and so is a
        queue that begins to match the pattern.
        """
        offsets = from_json(start)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        newest, waiting = self._backlog.look(offsets, most)
        self._newest = newest = {**offsets, **newest}
        total = sum(waiting.values())
        if not waiting or (not self._backlog.has_target and self._holds_back(total)):
            return start
        if most is not None and total > most:
            newest, total = self._backlog.cut(offsets, newest, waiting, most), most
        self._held_since = None
        return to_json(newest, self._tasks(total, len(waiting)))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """What was there at the last look, whatever the limits made of it."""
        return None if self._newest is None else to_json(self._newest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch, by its offsets, and by ``startingTimestamp`` for partitions new in it.

        The same tasks when the batch is repeated.
        """
        parts = list(self._backlog.parts(from_json(start), from_json(end)))
        return [Task(task) for task in dealt(parts, end.get("tasks", len(parts)))]

    def commit(self, end: dict[str, Any]) -> None:
        """Record offsets of the group, if the query has one, for people to see.

        Spark goes on from its checkpoint alone, so what cannot be recorded now does not end the query.
        """
        if self._options.group is None:
            return
        for name, offset in from_json(end).items():
            if not offset.ids or self._recorded.get(name) == offset:
                continue
            try:
                with doing(f"recording offsets of group {self._options.group} in queue {name}"):
                    self._backlog.client.reset_offsets(name, self._options.group, dict(offset.ids))
                self._recorded = {**self._recorded, name: offset}
            except QueueNotFound:  # the offsets went with the queue; one made anew has another incarnation
                self._recorded = {**self._recorded, name: offset}
            except QueueyError as error:
                if not may_pass(error):
                    raise
                log.warning("offsets of group %s in %s are not recorded: %s", self._options.group, name, error)

    def stop(self) -> None:
        self._backlog.close()

    def _tasks(self, messages: int, parts: int) -> int:
        """How many tasks to make.

        A task costs more than a few messages do, and more than run at once gain nothing.
        """
        return min(ceil(messages / TASK_ROWS), parts, self._options.tasks_per_trigger or self._cores or parts)

    def _holds_back(self, waiting: int) -> bool:
        """Whether to wait for more messages (minOffsetsPerTrigger).

        It waits no longer than maxTriggerDelay allows.
        """
        least = self._options.min_per_trigger
        if least is None or waiting >= least:
            return False
        self._held_since = self._clock() if self._held_since is None else self._held_since
        return self._clock() - self._held_since < self._options.max_delay_seconds

    # In tasks

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._reader.batches(partition.parts) if isinstance(partition, Task) else iter(())

    def __getstate__(self) -> dict[str, Any]:
        """What tasks need to read."""
        return {"_options": self._options, "_reader": self._reader}
