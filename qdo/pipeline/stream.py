"""The streaming read: micro-batches between offsets that never pass the watermark, so a batch that is repeated is the same (G5)."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import ceil
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from qdo.client import Client, Survey
from qdo.pipeline.candidates import Candidates
from qdo.pipeline.checkpoint import Offsets, QueueOffset, from_json, to_json
from qdo.pipeline.options import ReadOptions
from qdo.pipeline.planner import place_of
from qdo.pipeline.spans import TASK_ROWS, Part, dealt, shares
from qdo.pipeline.task_reader import connect, log, subscribed, survey
from qdo.pipeline.tasks import PartReader, Task
from queuey.errors import CursorLost, DataLost, QueueNotFound
from queuey.ids import ZERO_ID, MessageId

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition

Waiting = dict[tuple[str, int], int]
"""Messages that are there to be read, by queue and partition, counted up to a limit."""


class QueueyStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Made once for a query, in a process of the driver's; its parts are read by tasks."""

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
        self._client: Client | None = None
        self._candidates = Candidates(options.subscription)
        self._target: dict[str, QueueOffset] | None = None
        """What Trigger.AvailableNow comes to its end at."""
        self._newest: Offsets | None = None
        self._counts: dict[tuple[str, int, MessageId, MessageId], int] = {}
        """Messages of the spans that were planned last."""
        self._waited = 0
        """Partitions that had messages at the last look."""
        self._more: set[tuple[str, int]] = set()
        """Those that had more than were counted."""
        self._marks: dict[tuple[str, int, int], MessageId] = {}
        """Of a queue's partition and a number of messages: the id of the last one, if that was looked up with the others."""
        self._held_since: float | None = None
        """When messages began to wait for minOffsetsPerTrigger."""

    # What Spark asks in the driver.

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins."""
        return to_json({name: first for name in self._names() if (first := self._first(name)) is not None})

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_per_trigger) if self._options.max_per_trigger else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """What is there now is all that this run will read."""
        self._target = {}
        for name in self._names():
            with suppress(QueueNotFound):  # which is said when it is known whether the query had begun with it
                self._target[name] = _offset(survey(self._ask(), name))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next micro-batch: ids of messages that are there. ``start`` itself if there is nothing new.

        A partition that comes to the queue is read from its beginning, and so is a queue that comes to the pattern.
        """
        offsets = from_json(start)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        newest, waiting = self._look(offsets, most)
        self._newest = newest = {**offsets, **newest}
        if not waiting or (self._target is None and self._holds_back(sum(waiting.values()))):
            return start
        total = sum(waiting.values())
        if most is not None and total > most:
            newest, total = self._cut(offsets, newest, waiting, most), most
        self._held_since = None
        return to_json(newest, self._tasks(total, len(waiting)))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """What was there at the last look, whatever the limits made of it."""
        return None if self._newest is None else to_json(self._newest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch, by its offsets alone: the same when it is repeated."""
        parts = list(self._parts(from_json(start), from_json(end)))
        return [Task(task) for task in dealt(parts, end.get("tasks", len(parts)))]

    def commit(self, end: dict[str, Any]) -> None:
        """Tell the group, if there is one, for people to see. Spark goes on from its checkpoint alone."""
        if self._options.group is None:
            return
        for name, offset in from_json(end).items():
            if offset.ids:
                self._ask().reset_offsets(name, self._options.group, dict(offset.ids))

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()

    # What tasks do.

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._reader.batches(partition.parts) if isinstance(partition, Task) else iter(())

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get what they need to read."""
        return {"_options": self._options, "_reader": self._reader}

    # Below: looking at queues.

    def _tasks(self, messages: int, parts: int) -> int:
        """Few for few messages, as a task costs more than its messages do; and no more than can run at once."""
        return min(ceil(messages / TASK_ROWS), parts, self._options.tasks_per_trigger or self._cores or parts)

    def _ask(self) -> Client:
        if self._client is None:
            self._client = connect(self._options.reach)
        return self._client

    def _names(self) -> Sequence[str]:
        return subscribed(self._ask(), self._options.subscription)

    def _survey(
        self, queue: str, offset: QueueOffset | None = None, count: int | None = None, every: int | None = None
    ) -> Survey | None:
        """What came after an offset, in all partitions; None of a queue that is not there, and of no concern.

        :raises DataLost: a queue that is named is gone, or another one of its name is there. A pattern is of what there is.
        """
        where: dict[str, Any] = {}
        if offset is not None:
            where = {"places": offset.ids, "incarnation": offset.incarnation, "every_partition": True}
        try:
            return survey(self._ask(), queue, count=count, every=every, **where)
        except (CursorLost, QueueNotFound) as error:
            if isinstance(error, QueueNotFound) and self._options.subscription.pattern is not None:
                return None
            if self._options.fail_on_data_loss:
                raise DataLost(
                    f"queue {queue} was deleted, or made anew: {error} failOnDataLoss=false goes on with what is there now"
                ) from error
            log.warning("queue %s was deleted, or made anew: going on with what is there now", queue)
            return None if isinstance(error, QueueNotFound) else survey(self._ask(), queue, count=count, every=every)

    def _first(self, queue: str) -> QueueOffset | None:
        """Where a queue is begun."""
        since = self._options.since_ticks
        upto = None if since is None else MessageId.last_of(since - 1)
        try:
            there = survey(self._ask(), queue, upto=upto)
        except QueueNotFound as error:
            if self._options.fail_on_data_loss:
                raise DataLost(f"there is no queue {queue}: failOnDataLoss=false waits for it") from error
            return None
        if since is not None:
            return _offset(there)
        places = {number: place_of(self._options.start, queue, number, "latest") for number in there.spans}
        ids = {number: there.spans[number].newest if place == "latest" else place for number, place in places.items()}
        return QueueOffset(there.incarnation, {n: id_ for n, id_ in ids.items() if isinstance(id_, MessageId)})

    def _look(self, offsets: Offsets, most: int | None) -> tuple[dict[str, QueueOffset], Waiting]:
        """How far each queue could be read that was looked at, and how many messages that would be.

        Those of a partition are counted as far as it matters. Under a limit that is two even shares of it, by what waited at the last look, and
        where the first one ends is asked at once, for there most spans are cut: to count 200,000 in each of eight partitions took 38 of a
        look's 47 ms (measured). Where that is not the limit in all, since few partitions have most of what waits, they are counted up to it.
        """
        names = self._candidates.now(self._ask())
        counts: list[tuple[int, int | None]] = [(max(TASK_ROWS, self._options.min_per_trigger or 0), None)]
        if most is not None:
            counts = [(most + 1, None)]  # is there more?
            if self._waited:
                share = ceil(most / self._waited)
                counts.insert(0, (min(2 * share, most + 1), share))
        for count, every in counts:
            newest, waiting = self._counted(names, offsets, count, every)
            if most is None or not self._more or sum(waiting.values()) > most:
                break
        self._waited = len(waiting)
        self._candidates.left(name for name, _ in waiting)
        return newest, waiting

    def _counted(
        self, names: Iterable[str], offsets: Offsets, count: int, every: int | None
    ) -> tuple[dict[str, QueueOffset], Waiting]:
        """The same, with ``count`` messages of a partition counted at most, and each ``every``-th marked."""
        newest: dict[str, QueueOffset] = {}
        waiting: Waiting = {}
        for known in (self._counts, self._marks, self._more):
            known.clear()
        for name in names:
            offset = offsets.get(name)
            found = self._survey(name, offset, count, every)
            if found is None:
                continue
            if offset is None or offset.incarnation != found.incarnation:
                offset = QueueOffset(found.incarnation, {})
            ends = self._ends(name, found)
            ahead = {number: end for number, end in ends.items() if end > offset.at(number)}
            newest[name] = QueueOffset(found.incarnation, {**offset.ids, **ahead})
            for number, end in ahead.items():
                span = found.spans[number]
                waiting[name, number] = span.messages or 1
                if every is not None and span.marks:
                    self._marks[name, number, every] = span.marks[0]
                if span.more:
                    self._more.add((name, number))
                elif end == span.newest:
                    self._counts[name, number, offset.at(number), end] = span.messages or 0
        return newest, waiting

    def _ends(self, queue: str, found: Survey) -> Mapping[int, MessageId]:
        """The last ids of a queue's partitions, none past the target of AvailableNow."""
        ends = _offset(found).ids
        if self._target is None:
            return ends
        target = self._target.get(queue)
        if target is None or target.incarnation != found.incarnation:
            return {}
        return {number: min(end, target.at(number)) for number, end in ends.items()}

    def _cut(
        self, offsets: Offsets, newest: dict[str, QueueOffset], waiting: Waiting, most: int
    ) -> dict[str, QueueOffset]:
        """Offsets that are ``most`` messages ahead, shared by the partitions in proportion to what waits, as far as it was counted."""
        begun = {(name, number): offsets[name].at(number) if name in offsets else ZERO_ID for name, number in waiting}
        cut = {
            where: share
            for where, share in zip(waiting, shares(list(waiting.values()), most), strict=True)
            if share < waiting[where] or where in self._more
        }
        self._mark(cut, begun, newest)
        ends = {name: dict(offset.ids) for name, offset in newest.items()}
        for (name, number), share in cut.items():
            mark = self._marks.get((name, number, share))
            if mark is not None and mark < ends[name][number]:
                ends[name][number] = mark
                self._counts[name, number, begun[name, number], mark] = share
        return {name: QueueOffset(offset.incarnation, ends[name]) for name, offset in newest.items()}

    def _mark(self, cut: Waiting, begun: Mapping[tuple[str, int], MessageId], newest: Offsets) -> None:
        """Look up where these numbers of messages end, of those partitions where it is not known; one request for a queue's that have the same."""
        alike: dict[tuple[str, int], dict[int, MessageId]] = defaultdict(dict)
        for (name, number), share in cut.items():
            if (name, number, share) not in self._marks:
                alike[name, share][number] = begun[name, number]
        for (name, share), places in alike.items():
            where: dict[str, Any] = {"places": places, "incarnation": newest[name].incarnation}
            for number, span in survey(self._ask(), name, count=share, every=share, **where).spans.items():
                if number in places and span.marks:
                    self._marks[name, number, share] = span.marks[0]

    def _holds_back(self, waiting: int) -> bool:
        least = self._options.min_per_trigger
        if least is None or waiting >= least:
            return False
        self._held_since = self._clock() if self._held_since is None else self._held_since
        return self._clock() - self._held_since < self._options.max_delay_seconds

    def _parts(self, start: Offsets, end: Offsets) -> Iterator[Part]:
        for name, offset in end.items():
            before = start.get(name)
            if before is None or before.incarnation != offset.incarnation:
                before = QueueOffset(offset.incarnation, {})
            for number, upto in offset.ids.items():
                after = before.at(number)
                if after < upto:
                    messages = self._counts.get((name, number, after, upto))
                    yield Part(name, offset.incarnation, number, after, upto, messages)


def _offset(found: Survey) -> QueueOffset:
    """Behind all that was found."""
    ids = {number: span.newest for number, span in found.spans.items() if span.newest is not None}
    return QueueOffset(found.incarnation, ids)
