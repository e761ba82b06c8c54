"""Finds the buckets that a span overlaps, by their marks (docs/decisions/009)."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from queuey import future
from queuey.future import Future
from queuey.ids import MessageId
from queuey.model import PartitionId, Span
from queuey.storage.cassandra.buckets import Bucket, Mark
from queuey.storage.cassandra.session import CassandraSession, Rows
from queuey.storage.cassandra.tombstones import parts_of_numbers, read_in_parts

_MARKS = 64
"""Marks of one query. Most partitions have only a few."""
_FEW_BUCKETS = 72
"""Buckets of all finer levels together that one query asks for: they are the last ten minutes."""
_MARKS_OF_FEW = 1000
_REMEMBERED = 10_000
"""Partitions for which readers' findings are remembered; the first known is forgotten first."""

Found = tuple[Bucket, list[Mark]]
"""A bucket and all its marks."""


class _Guess(NamedTuple):
    """Where a reader found finer buckets."""

    levels: Sequence[int]
    head_ticks: int


class BucketHints:
    """What readers found out about a partition's levels. Thread-safe.

    With it the next reader asks for buckets of all levels in one query. A wrong guess costs a query, never a message.
    """

    def __init__(self) -> None:
        self._guesses: OrderedDict[PartitionId, _Guess] = OrderedDict()

    def guess(self, partition: PartitionId) -> _Guess | None:
        return self._guesses.get(partition)

    def learn(self, partition: PartitionId, levels: Sequence[int], head_ticks: int) -> None:
        """:param levels: an empty one forgets the partition."""
        if levels:
            self._guesses[partition] = _Guess(levels, head_ticks)
            if len(self._guesses) > _REMEMBERED:
                self._guesses.popitem(last=False)
        else:
            self._guesses.pop(partition, None)


class Walk:
    """The buckets that overlap a span, in order, found as they are needed.

    Each comes with the size class of its largest body.
    """

    def __init__(
        self,
        session: CassandraSession,
        partition: PartitionId,
        span: Span,
        level: int,
        *,
        newest_first: bool,
        hints: BucketHints | None = None,
    ) -> None:
        """:param level: consistency of each query."""
        self.session = session
        self.partition = partition
        self.level = level
        self.newest_first = newest_first
        self.after, self.upto = span
        """The rest of the span: no message lives before ``after``."""
        self._head_ticks = 0
        self._hints = hints or BucketHints()
        self._near: tuple[set[int], Rows] | None = None
        """Buckets whose marks are all known: the marks, by bucket number."""
        self._begun = False
        self._wide = _Marked(self, 0, self.after.ticks, self.upto.ticks)
        self._finer: list[tuple[Found, _Marked]] = []

    def begins_in(self, bucket: Bucket) -> bool:
        """Whether the reader's starting point lies in a bucket, or after its beginning."""
        return bucket.end >= self.upto.ticks if self.newest_first else bucket.start <= self.after.ticks

    def raise_head(self, rows: Rows) -> None:
        """Begin no lower than the partition's head, if one is noted.

        Each mark has the head. No message lives below it.
        """
        if rows and rows[0][2] is not None:
            head = MessageId.from_bytes(rows[0][2])
            self._head_ticks = head.ticks
            self.after = max(self.after, head.before())

    async def next(self) -> tuple[Bucket, int] | None:
        if not self._begun:
            self._begun = True
            await self._begin_near()
        while not self._finer:
            found = await self._wide.next()
            if found is None:
                return None
            wide, marks = found
            if wide.end < self.after.ticks:
                continue
            await self._open_finer(wide, sorted({mark.level for mark in marks} - {0}))
            own = [mark.size_class for mark in marks if mark.level == 0]
            if own:
                return wide, max(own)
        (bucket, marks), level = self._finer.pop(self._first_of_finer())
        await self._go_on_with(level)
        return bucket, max(mark.size_class for mark in marks)

    async def _open_finer(self, wide: Bucket, levels: Sequence[int]) -> None:
        opened = self._between(levels, max(wide.start, self.after.ticks), min(wide.end, self.upto.ticks))
        few = _are_few(opened)
        self._hints.learn(self.partition, levels if few else (), self._head_ticks)
        if few:
            await self._learn_all(opened)
        asked = [future.start(level.next()) for level in opened]
        for level, step in zip(opened, asked, strict=True):
            found = await step
            if found is not None:
                self._finer.append((found, level))

    def _between(self, levels: Sequence[int], low_ticks: int, high_ticks: int) -> list[_Marked]:
        return [_Marked(self, level, low_ticks, high_ticks) for level in levels]

    async def _learn_all(self, levels: Sequence[_Marked]) -> None:
        """Fetch the marks of all these levels in one query, unless they are too many."""
        numbers = _numbers(levels)
        near = self._near is not None and self._near[0].issuperset(numbers)
        rows = self._near[1] if self._near is not None and near else await self._among(numbers)
        if len(rows) < _MARKS_OF_FEW:
            for level in levels:
                level.learn_all(rows)

    async def _begin_near(self) -> None:
        """Begin at the head that the last reader found, if it is still valid.

        One query then lists wide and finer buckets.
        """
        guess = self._hints.guess(self.partition)
        if guess is None:
            return
        low_ticks = max(guess.head_ticks, self.after.ticks)
        levels = self._between((0, *guess.levels), low_ticks, self.upto.ticks)
        if not _are_few(levels):
            return
        numbers = _numbers(levels)
        rows = await self._among(numbers)
        self.raise_head(rows)
        still_there = max(self.after.ticks, self._head_ticks) >= low_ticks
        if still_there and len(rows) < _MARKS_OF_FEW:
            self._near = set(numbers), rows
            self._wide = levels[0]
            self._wide.learn_all(rows)

    def _among(self, numbers: Sequence[int]) -> Future[Rows]:
        return self.session.ask("buckets_among", (*self.partition, numbers, _MARKS_OF_FEW), self.level)

    async def _go_on_with(self, level: _Marked) -> None:
        found = await level.next()
        if found is not None:
            self._finer.append((found, level))

    def _first_of_finer(self) -> int:
        there = [found[0] for found, _ in self._finer]
        if self.newest_first:
            return max(range(len(there)), key=lambda at: (there[at].end, -there[at].level))
        return min(range(len(there)), key=lambda at: (there[at].start, there[at].level))


class _Marked:
    """The buckets of one level between two moments."""

    def __init__(self, walk: Walk, level: int, low_ticks: int, high_ticks: int) -> None:
        self._walk = walk
        self._level = level
        self._low, self._high = Bucket.at(level, low_ticks).number, Bucket.at(level, high_ticks).number
        self._limit = _MARKS
        self._found: deque[Found] = deque()

    @property
    def numbers(self) -> range:
        """The numbers of buckets that were not asked for yet, whether they exist or not."""
        return range(self._low, self._high + 1)

    def learn_all(self, rows: Rows) -> None:
        """Take all marks of this level, oldest first; rows of other levels are ignored."""
        numbers = self.numbers
        of_these = [row for row in rows if row[0] in numbers]
        found = [(Bucket.from_number(number), marks) for number, marks in _by_bucket(of_these)]
        self._found.extend(reversed(found) if self._walk.newest_first else found)
        self._low, self._high = 1, 0

    async def next(self) -> Found | None:
        while not self._found and self._low <= self._high:
            await self._ask()
        return self._found.popleft() if self._found else None

    async def _ask(self) -> None:
        """Send one more query.

        A bucket whose marks did not all fit is listed again, together with the buckets after it.
        """
        walk = self._walk
        name = "buckets_descending" if walk.newest_first else "buckets_ascending"

        def ask(numbers: range, limit: int) -> Future[Rows]:
            return walk.session.ask(name, (*walk.partition, numbers[0], numbers[-1], limit), walk.level)

        rows = await read_in_parts(
            ask, self.numbers, self._limit, newest_first=walk.newest_first, parts_of=parts_of_numbers
        )
        if self._level == 0:
            walk.raise_head(rows)
        groups = _by_bucket(rows)
        whole = len(rows) < self._limit
        if not whole and len(groups) == 1:
            self._limit *= 4
            return
        self._found.extend((Bucket.from_number(number), marks) for number, marks in groups[: None if whole else -1])
        if whole:
            self._low, self._high = 1, 0
        elif walk.newest_first:
            self._high = groups[-1][0]
        else:
            self._low = groups[-1][0]


def _by_bucket(rows: Rows) -> list[tuple[int, list[Mark]]]:
    return [(number, [Mark.from_number(row[1]) for row in of]) for number, of in groupby(rows, itemgetter(0))]


def _numbers(levels: Sequence[_Marked]) -> list[int]:
    return [number for level in levels for number in level.numbers]


def _are_few(levels: Sequence[_Marked]) -> bool:
    """Whether the levels are few enough for one query."""
    return len(levels) > 1 and sum(len(level.numbers) for level in levels) <= _FEW_BUCKETS
