"""From spans to tasks.

It says what is read of each partition, how filters narrow it, and how spans are cut and put together.

Nothing here sends a request or knows Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import ceil
from typing import Any, TypeVar

from qdo.pipeline.options import ticks_of
from queuey.ids import EPOCH_TICKS, MAX_ID, MAX_TICKS, ZERO_ID, MessageId, format_timestamp

T = TypeVar("T")

TASK_ROWS = 20_000
"""Messages that are worth a task of their own. A task costs some 65 ms before its first row (measured, spark.md)."""


@dataclass(frozen=True)
class Part:
    """A span of one partition of one incarnation: ``after < id <= upto``.

    A message ends it.
    """

    queue: str
    incarnation: str
    partition: int
    after: MessageId
    upto: MessageId
    messages: int | None = None
    """How many it had when it was planned; None if they were not counted to the end."""

    def cut(self, split_points: Sequence[MessageId], rows: int) -> list[Part]:
        """Parts of ``rows`` messages each; the last part has the rest.

        :param split_points: every ``rows``-th id of the span.
        """
        ends = [*(point for point in split_points if point < self.upto), self.upto]
        left = None if self.messages is None else self.messages - rows * (len(ends) - 1)
        counts = [rows] * (len(ends) - 1) + [left]
        starts = [self.after, *ends[:-1]]
        return [
            replace(self, after=after, upto=upto, messages=count)
            for after, upto, count in zip(starts, ends, counts, strict=True)
        ]


@dataclass(frozen=True)
class Bounds:
    """What a query wants, in whichever partition. Empty bounds want nothing."""

    low_ticks: int = 0
    high_ticks: int = MAX_TICKS
    """Inclusive."""
    queues: frozenset[str] | None = None
    prefixes: tuple[str, ...] = ()
    partitions: frozenset[int] | None = None
    ids: frozenset[MessageId] | None = None

    @property
    def empty(self) -> bool:
        return self.low_ticks > self.high_ticks or frozenset() in (self.queues, self.partitions, self.ids)

    def has_queue(self, name: str) -> bool:
        return (self.queues is None or name in self.queues) and all(map(name.startswith, self.prefixes))

    def has_partition(self, number: int) -> bool:
        return self.partitions is None or number in self.partitions

    @property
    def after(self) -> MessageId:
        """The id before everything that is wanted."""
        first = ZERO_ID if self.low_ticks <= 0 else MessageId.first_of(self.low_ticks).before()
        return max(first, min(self.ids).before()) if self.ids else first

    @property
    def upto(self) -> MessageId:
        last = MAX_ID if self.high_ticks >= MAX_TICKS else MessageId.last_of(max(self.high_ticks, 0))
        return min(last, max(self.ids)) if self.ids else last

    def narrowed(self, kind: str, column: str, value: Any) -> Bounds | None:
        """These bounds and a filter; None if Spark has to apply the filter.

        Times compare as the column shows them, to the microsecond. Ids only compare for equality: as texts they have
        another order than in time.

        :param kind: the name of Spark's filter.
        """
        take = {
            "timestamp": self._by_time,
            "queue": self._by_queue,
            "partition": self._by_partition,
            "message_id": self._by_id,
        }
        if kind == "IsNotNull":
            return self if column in (*take, "body") else None
        return take[column](kind, value) if column in take and value is not None else None

    def _by_time(self, kind: str, value: Any) -> Bounds | None:
        if not isinstance(value, datetime):
            return None
        first = ticks_of(value if value.tzinfo is not None else value.replace(tzinfo=UTC))
        last = first + 9
        low, high = self.low_ticks, self.high_ticks
        if kind in ("EqualTo", "EqualNullSafe", "GreaterThanOrEqual"):
            low = max(low, first)
        if kind in ("EqualTo", "EqualNullSafe", "LessThanOrEqual"):
            high = min(high, last)
        if kind == "GreaterThan":
            low = max(low, last + 1)
        if kind == "LessThan":
            high = min(high, first - 1)
        known = ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual")
        return replace(self, low_ticks=low, high_ticks=high) if kind in known else None

    def _by_queue(self, kind: str, value: Any) -> Bounds | None:
        if kind == "StringStartsWith":
            return replace(self, prefixes=(*self.prefixes, value))
        values = _values(kind, value)
        return None if values is None else replace(self, queues=_both(self.queues, values))

    def _by_partition(self, kind: str, value: Any) -> Bounds | None:
        values = _values(kind, value)
        return None if values is None else replace(self, partitions=_both(self.partitions, values))

    def _by_id(self, kind: str, value: Any) -> Bounds | None:
        values = _values(kind, value)
        if values is None:
            return None
        ids = [MessageId.parse(text) for text in values if _is_id(text)]
        # A set of one id is a span. For several ids the server would send everything between them.
        return replace(self, ids=_both(self.ids, ids)) if len(ids) < 2 else None


def _values(kind: str, value: Any) -> Sequence[Any] | None:
    if kind in ("EqualTo", "EqualNullSafe"):
        return [value]
    # Null equals nothing, so in a list it wants nothing.
    return [each for each in value if each is not None] if kind == "In" else None


def _both(known: frozenset[Any] | None, values: Iterable[Any]) -> frozenset[Any]:
    return frozenset(values) if known is None else known & frozenset(values)


def _is_id(text: str) -> bool:
    """Whether a text is an id as messages show theirs."""
    try:
        return MessageId.parse(text).hex == text
    except ValueError:
        return False


def until_text(upto: MessageId) -> str | None:
    """The wire form of an upper end.

    An id, or a moment if it includes all ids of one.

    None for all there are.
    """
    if upto == MAX_ID:
        return None
    if upto == MessageId.last_of(upto.ticks):
        return format_timestamp(max(upto.ticks, EPOCH_TICKS))
    return upto.hex


def packed(parts: Sequence[Part], rows: int = TASK_ROWS) -> list[list[Part]]:
    """Parts packed into tasks of about this many messages.

    A part that was not counted is a task of its own.
    """
    known = [part for part in parts if part.messages is not None]
    alone = [[part] for part in parts if part.messages is None]
    total = sum(part.messages or 0 for part in known)
    return alone + (folded(known, ceil(total / rows)) if known else [])


def dealt(parts: Sequence[T], tasks: int) -> list[list[T]]:
    """Parts dealt out to at most this many tasks, in their order.

    The result never depends on their sizes.
    """
    count = max(1, min(tasks, len(parts)))
    return [list(parts[first::count]) for first in range(count)] if parts else []


def folded(parts: Sequence[Part], tasks: int) -> list[list[Part]]:
    """Parts divided among at most this many tasks.

    The largest first, each to the task that has least.
    """
    found: list[list[Part]] = [[] for _ in range(max(1, min(tasks, len(parts))))]
    loads = [0] * len(found)
    for part in sorted(parts, key=lambda part: -(part.messages or 0)):
        least = loads.index(min(loads))
        found[least].append(part)
        loads[least] += part.messages or 1
    return [task for task in found if task]


def shares(waiting: Sequence[int], limit: int) -> list[int]:
    """How many messages to take of each partition.

    Together they are ``limit``, in proportion, with at least one of each.

    If more partitions wait than ``limit``, that is more than ``limit``: no small partition is left behind.
    >>> shares([1000, 10, 0, 0], 100)
    [99, 1, 0, 0]
    >>> shares([3, 3, 3], 8)
    [3, 3, 2]
    >>> shares([9, 9, 9], 2)
    [1, 1, 1]
    """
    total = sum(waiting)
    if total <= limit:
        return list(waiting)
    firsts = sum(1 for number in waiting if number)
    room = max(0, limit - firsts)
    found = [1 + (number - 1) * room // max(1, total - firsts) if number else 0 for number in waiting]
    for at in range(limit - sum(found)):  # what rounding left: less than one for each
        found[at] += found[at] < waiting[at]
    return found
