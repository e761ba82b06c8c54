"""Plans a batch read: which spans there are, and how tasks share them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from math import ceil
from typing import Any

from qdo.client import Client, SpanCount, SpanCounts
from qdo.pipeline.checkpoint import QueueOffset
from qdo.pipeline.options import MOST_COUNTED, Places, ReadOptions
from qdo.pipeline.spans import TASK_ROWS, Bounds, Part, dealt, packed
from qdo.pipeline.task_reader import Counting, connect, log, subscribed, survey
from queuey.errors import ConfigurationError, CursorLost, DataLost, QueueNotFound
from queuey.ids import MAX_TICKS, ZERO_ID, MessageId

MAX_MARKS = 10_000
"""A server names at most this many places to cut a partition. So its parts have at least 1,000 messages."""
TASKS_A_CORE = 2
"""Spans for each core, if the number of cores is known. Sizes are not known; with two spans a core, small ones fill gaps."""
MANY_PARTS = 32
"""From this many spans on they are counted, to pack small ones together: a small span costs a task more than its count."""


class Planner:
    """Plans one read."""

    def __init__(self, options: ReadOptions, cores: int | None = None) -> None:
        """:param cores: how many tasks run at once; None if it is not known."""
        self._options = options
        self._most = None if cores is None else TASKS_A_CORE * cores
        until = MAX_TICKS if options.until_ticks is None else options.until_ticks - 1
        self._bounds = Bounds(options.since_ticks or 0, until)

    def narrow(self, kind: str, column: str, value: Any) -> bool:
        """Take over a filter of Spark's.

        :returns: False leaves the filter to Spark.
        """
        narrower = self._bounds.narrowed(kind, column, value)
        self._bounds = narrower or self._bounds
        return narrower is not None

    def tasks(self) -> list[list[Part]]:
        """What each task reads. The ends of all spans are fixed here.

        :raises DataLost: a queue that is named does not exist, unless ``failOnDataLoss`` is false.
        """
        if self._bounds.empty:
            return []
        with connect(self._options.reach) as client:
            names = subscribed(client, self._options.subscription)
            check_queues(self._options.start, names)
            check_queues(self._options.end, names)
            parts = [part for name in names if self._bounds.has_queue(name) for part in self._parts(client, name)]
            if self._options.min_partitions or self._options.max_records:
                return [[part] for part in self._cut(client, parts)]
            many = len(parts) >= MANY_PARTS
            tasks = packed([self._counted(client, part) for part in parts]) if many else [[part] for part in parts]
            return [list(chain.from_iterable(together)) for together in dealt(tasks, self._most or len(tasks))]

    def _parts(self, client: Client, queue: str) -> Iterator[Part]:
        """The spans of a queue that have messages."""
        try:
            there = survey(client, queue, upto=self._bounds.upto)
        except QueueNotFound as error:
            if self._options.subscription.pattern is not None:
                return  # deleted since the list was made: a pattern only means queues that exist
            if self._options.fail_on_data_loss:
                raise DataLost(f"there is no queue {queue}: failOnDataLoss=false goes on without it") from error
            log.warning("there is no queue %s: going on without it, as failOnDataLoss=false says", queue)
            return
        check_partitions(self._options.start, queue, there.partitions)
        check_partitions(self._options.end, queue, there.partitions)
        for number in self._numbers(queue, there):
            after = max(self._start(queue, number, there), self._bounds.after)
            upto = self._end(queue, number)
            end = there.spans[number].newest
            if upto is not None and end is not None and upto < end:
                found = survey(
                    client,
                    queue,
                    QueueOffset(there.incarnation, {number: after}),
                    upto=min(upto, self._bounds.upto),
                )
                end = found.spans[number].newest
            if end is not None and after < end:
                yield Part(queue, there.incarnation, number, after, end)

    def _numbers(self, queue: str, there: SpanCounts) -> list[int]:
        numbers = self._options.subscription.numbers(queue, there.partitions)
        return [number for number in numbers if self._bounds.has_partition(number)]

    def _start(self, queue: str, number: int, there: SpanCounts) -> MessageId:
        if self._options.since_ticks is not None:
            return ZERO_ID
        place = place_of(self._options.start, queue, number, "earliest")
        if place == "latest":
            return there.spans[number].newest or ZERO_ID
        return place if isinstance(place, MessageId) else ZERO_ID

    def _end(self, queue: str, number: int) -> MessageId | None:
        """The last id to read; None for all there are."""
        if self._options.until_ticks is not None:
            return None
        place = place_of(self._options.end, queue, number, "latest")
        return place if isinstance(place, MessageId) else ZERO_ID if place == "earliest" else None

    def _cut(self, client: Client, parts: Sequence[Part]) -> Iterator[Part]:
        """Parts of about as many messages as the options ask for."""
        counted = [self._counted(client, part, MOST_COUNTED) for part in parts]
        total = sum(part.messages or MOST_COUNTED for part in counted)
        limits = [self._options.max_records or total, ceil(total / (self._options.min_partitions or 1))]
        rows = max(min(limits), MOST_COUNTED // MAX_MARKS)
        for part in counted:
            if part.messages is not None and part.messages <= rows:
                yield part
            else:
                yield from part.cut(self._look(client, part, MOST_COUNTED, rows).split_points, rows)

    def _counted(self, client: Client, part: Part, limit: int = TASK_ROWS) -> Part:
        found = self._look(client, part, limit)
        return part if found.more else replace(part, messages=found.messages)

    def _look(self, client: Client, part: Part, limit: int, step: int | None = None) -> SpanCount:
        behind = QueueOffset(part.incarnation, {part.partition: part.after})
        try:
            found = survey(client, part.queue, behind, upto=part.upto, counting=Counting(limit, step))
        except (CursorLost, QueueNotFound):
            return SpanCount(None)  # deleted since the part was made: the task that reads it says so
        return found.spans[part.partition]


def place_of(places: str | Places, queue: str, number: int, missing: str) -> MessageId | str:
    """Where an option places one partition."""
    if isinstance(places, str):
        return places
    return places.get(queue, {}).get(number, missing)


def check_queues(places: str | Places, names: Sequence[str]) -> None:
    """:raises ConfigurationError: the offsets name a queue that is not read."""
    strays = [] if isinstance(places, str) else [name for name in places if name not in names]
    if strays:
        raise ConfigurationError(f"the offsets name queue {strays[0]}, which is not subscribed to")


def check_partitions(places: str | Places, queue: str, partitions: int) -> None:
    """:raises ConfigurationError: the offsets name a partition that the queue does not have."""
    beyond = [] if isinstance(places, str) else [number for number in places.get(queue, {}) if number > partitions]
    if beyond:
        raise ConfigurationError(f"the offsets name partition {beyond[0]} of queue {queue}, which has {partitions}")


__all__ = ["Planner", "check_partitions", "check_queues", "place_of"]
