"""Reading a span of one partition: its buckets, merged into one order, in bounded memory."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any, NamedTuple

from queuey.ids import MessageId
from queuey.model import Columns, Page, PartitionId, Span
from queuey.storage.cassandra_buckets import Bucket, Mark
from queuey.storage.cassandra_rows import NO_ROWS, Block, block_of, block_of_ids, texts_of
from queuey.storage.cassandra_session import CassandraSession, Rows
from queuey.storage.seals import corrupt

_MARKS = 64
"""Marks of one query: most partitions have a few."""
_HELD = 4
"""A query may hold this many times the bytes of its page, should all its bodies be as large as the bucket's largest."""
_MOST_AT_ONCE = 8
"""Buckets that are opened together when those before had little."""


class Wanted(NamedTuple):
    """What a page is to have, see :meth:`queuey.storage.MessageStore.read`."""

    limit: int
    now_ticks: int
    level: int
    """Consistency of each query."""
    newest_first: bool = False
    max_bytes: int = 4 << 20
    with_bodies: bool = True
    skip_corrupt: bool = False


async def read_page(session: CassandraSession, partition: PartitionId, span: Span, wanted: Wanted) -> Page:
    """One page of a span.

    The buckets come in the order of their beginnings (newest first: of their ends). Rows are final up to
    the point where each open bucket is known, and up to where the next bucket begins. So no bucket is
    fetched further than the page needs, and none is left before it was seen to its end (G3, rule 6).
    """
    walk = _Walk(session, partition, span, wanted)
    page = PageBuilder(wanted)
    streams: list[_Stream] = []
    at_once, must_open = 1, True
    upcoming = await walk.next()
    while not page.full:
        if must_open or not streams:
            for _ in range(at_once):
                if upcoming is not None:
                    streams.append(_Stream(walk, *upcoming))
                    upcoming = await walk.next()
            at_once = min(2 * at_once, _MOST_AT_ONCE)
        if not streams:
            break
        await _fetch([stream for stream in streams if not stream.block.length and not stream.ended])
        final = _final(streams, upcoming[0] if upcoming else None, newest_first=wanted.newest_first)
        page.take(final)
        must_open = not final.length
        streams = [stream for stream in streams if stream.block.length or not stream.ended]
    return page.finish()


class _Stream:
    """The messages of one bucket inside the span, fetched as they are needed."""

    def __init__(self, walk: _Walk, bucket: Bucket, size_class: int) -> None:
        self.walk = walk
        self.place = (*walk.partition, bucket.number)
        self.after, self.upto = walk.after, walk.upto
        self.block = NO_ROWS
        self.ended = False
        wanted = walk.wanted
        fitting = _HELD * wanted.max_bytes >> size_class if wanted.with_bodies else wanted.limit
        self.step = max(1, min(wanted.limit + 1, fitting))
        """Rows of one query."""

    def take(self, found: Rows) -> None:
        """What a query brought."""
        wanted = self.walk.wanted
        self.block = block_of(found) if wanted.with_bodies else block_of_ids(found)
        self.ended = len(found) < self.step
        if found:
            last = self.block.id_at(-1)
            if wanted.newest_first:
                self.upto = last.before()
            else:
                self.after = last

    def cut(self, bound: MessageId | None) -> Block:
        """Take out the rows that come no later than a bound; None is no bound."""
        block, newest_first, end = self.block, self.walk.wanted.newest_first, self.block.length
        if bound is not None and newest_first:
            end = bisect_right(
                range(end), (-bound.ticks, -bound.tail), key=lambda at: (-block.ticks[at], -block.tails[at])
            )
        elif bound is not None:
            end = bisect_right(range(end), bound, key=block.id_at)
        self.block = block.between(end, block.length)
        return block.between(0, end)


async def _fetch(streams: Sequence[_Stream]) -> None:
    """One query of each of these buckets, all under way at once."""
    asked = []
    for stream in streams:
        session, wanted = stream.walk.session, stream.walk.wanted
        name = f"{'read' if wanted.with_bodies else 'ids'}_{'descending' if wanted.newest_first else 'ascending'}"
        bindings = (*stream.place, stream.after.uuid, stream.upto.uuid, stream.step)
        asked.append(session.ask(name, bindings, wanted.level))
    for stream, rows in zip(streams, asked, strict=True):
        stream.take(await rows)


def _final(streams: Sequence[_Stream], upcoming: Bucket | None, *, newest_first: bool) -> Block:
    """Take out of the streams, in order, the rows that nothing can come before any more."""
    bounds = [stream.block.id_at(-1) for stream in streams if not stream.ended]
    if upcoming is not None:
        bounds.append(MessageId.last_of(upcoming.end) if newest_first else MessageId.first_of(upcoming.start))
    bound = (max(bounds) if newest_first else min(bounds)) if bounds else None
    cut = [block for block in [stream.cut(bound) for stream in streams] if block.length]
    if len(cut) == 1:
        return cut[0]
    rows = [row for block in cut for row in block.rows()]
    rows.sort(key=itemgetter(0, 1), reverse=newest_first)
    return Block.of_rows(rows)


Found = tuple[Bucket, list[Mark]]
"""A bucket and all that is said of it."""


class _Walk:
    """The buckets that overlap a span, in order, with their largest body's size class; listed as they are needed."""

    def __init__(self, session: CassandraSession, partition: PartitionId, span: Span, wanted: Wanted) -> None:
        self.session = session
        self.partition = partition
        self.wanted = wanted
        self.after, self.upto = span
        self._wide = _Marked(self, 0, self.after.ticks, self.upto.ticks)
        self._finer: list[tuple[Found, _Marked]] = []

    async def next(self) -> tuple[Bucket, int] | None:
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
        low, high = max(wide.start, self.after.ticks), min(wide.end, self.upto.ticks)
        for level in levels:
            await self._go_on_with(_Marked(self, level, low, high))

    async def _go_on_with(self, level: _Marked) -> None:
        found = await level.next()
        if found is not None:
            self._finer.append((found, level))

    def _first_of_finer(self) -> int:
        there = [found[0] for found, _ in self._finer]
        if self.wanted.newest_first:
            return max(range(len(there)), key=lambda at: (there[at].end, -there[at].level))
        return min(range(len(there)), key=lambda at: (there[at].start, there[at].level))


class _Marked:
    """The buckets of one level between two moments."""

    def __init__(self, walk: _Walk, level: int, low_ticks: int, high_ticks: int) -> None:
        self._walk = walk
        self._level = level
        self._low, self._high = Bucket.at(level, low_ticks).number, Bucket.at(level, high_ticks).number
        self._limit = _MARKS
        self._found: deque[Found] = deque()

    async def next(self) -> Found | None:
        while not self._found and self._low <= self._high:
            await self._ask()
        return self._found.popleft() if self._found else None

    async def _ask(self) -> None:
        """One query more; a bucket whose marks did not all fit is asked for again, with those behind it."""
        walk = self._walk
        name = "buckets_descending" if walk.wanted.newest_first else "buckets_ascending"
        rows = await walk.session.ask(name, (*walk.partition, self._low, self._high, self._limit), walk.wanted.level)
        if rows and rows[0][2] is not None:
            # Nothing lives below the partition's head, if one was noted: no need to look there.
            walk.after = max(walk.after, MessageId.from_bytes(rows[0][2]).before())
        groups = [(number, [Mark.from_number(row[1]) for row in of]) for number, of in groupby(rows, itemgetter(0))]
        whole = len(rows) < self._limit
        if not whole and len(groups) == 1:
            self._limit *= 4
            return
        self._found.extend((Bucket.from_number(number), marks) for number, marks in groups[: None if whole else -1])
        if whole:
            self._low, self._high = 1, 0
        elif walk.wanted.newest_first:
            self._high = groups[-1][0]
        else:
            self._low = groups[-1][0]


class PageBuilder:
    """Takes rows in order until the page is full."""

    def __init__(self, wanted: Wanted) -> None:
        self.full = False
        self._wanted = wanted
        self._room = wanted.max_bytes
        self._columns: tuple[list[Any], ...] = ([], [], [], [], [], [], [])
        self._passed = self._counted = 0

    @property
    def _count(self) -> int:
        return len(self._columns[0])

    def take(self, block: Block) -> None:
        """Live rows, each checked, up to the limit of count or bytes."""
        live = block.live(self._wanted.now_ticks)
        fitting = live.between(0, self._fitting(live))
        if self._wanted.with_bodies and not fitting.is_sound():
            self._take_one_by_one(live)
            return
        self._add(fitting)
        self._take_one_by_one(live.between(fitting.length, live.length))

    def _fitting(self, block: Block) -> int:
        """How many rows the page has room for."""
        sizes = list(accumulate(map(len, block.bodies[: self._wanted.limit - self._count])))
        first = 1 if sizes and not self._count else 0
        return max(first, bisect_right(sizes, self._room))

    def _add(self, block: Block) -> None:
        for column, more in zip(self._columns, block, strict=True):
            column.extend(more)
        self._room -= sum(map(len, block.bodies))
        self._counted = self._passed  # those after the page's last message are met again by the next page

    def _take_one_by_one(self, block: Block) -> None:
        for at in range(block.length):
            row = block.between(at, at + 1)
            sound = not self._wanted.with_bodies or row.is_sound()
            if not sound and self._wanted.skip_corrupt:
                self._passed += 1
            elif not self._fitting(row):
                self.full = True
                return
            elif not sound:
                raise corrupt(row.id_at(0))
            else:
                self._add(row)

    def finish(self) -> Page:
        ticks, tails, expires, _, content_types, keys, bodies = self._columns
        messages = Columns(ticks, tails, expires, texts_of(content_types), texts_of(keys), bodies) if ticks else []
        return Page(messages, self.full, self._counted if self.full else self._passed)
