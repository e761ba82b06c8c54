"""Reads a span: merges its buckets into one order, in bounded memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Any

from queuey.future import Future
from queuey.ids import MessageId
from queuey.model import Columns, Page, ReadRequest, Span, size_of_headers
from queuey.storage.cassandra.bucket_scan import BucketHints, Walk
from queuey.storage.cassandra.buckets import Bucket
from queuey.storage.cassandra.driver_errors import TooManyTombstones
from queuey.storage.cassandra.rows import NO_ROWS, Block, block_of, block_of_ids, blocks_of, texts_of
from queuey.storage.cassandra.session import CassandraSession, Rows
from queuey.storage.cassandra.tombstones import parts_of, read_in_parts, within
from queuey.storage.checksums import corrupt

_HELD = 4
"""The most bytes of one query, in multiples of its page, if all its bodies were as large as the bucket's largest."""
_MOST_AT_ONCE = 8
"""Buckets that are opened together if the ones before had few messages."""
_FIRST_ROWS = 64
"""Asked of each of several buckets: that tells which of them has the rows."""
_ROWS_TOGETHER = 4096
"""Rows of several buckets in one query."""


async def read_page(
    session: CassandraSession,
    request: ReadRequest,
    now_ticks: int,
    level: int,
    hints: BucketHints | None = None,
    *,
    slow: Callable[[], object] = lambda: None,
) -> Page:
    """One page of a span.

    :param level: consistency of each query.
    :param slow: called if tombstones have the span read in parts.

    The buckets come in the order of their beginnings (newest first: of their ends). Rows are final up to the point to
    which each open bucket is known, and to the beginning of the next bucket. So no bucket is read further than the page
    needs, and each is read to its end before it is left (G3, rule 6). Buckets in which the span begins are opened
    together, since no row is final before all of them are open.
    """
    newest_first = request.newest_first
    walk = Walk(session, request.partition, request.span, level, newest_first=newest_first, hints=hints)
    page = BlockPage(request, now_ticks)
    streams: list[_Stream] = []
    at_once, must_open = 1, True
    upcoming = await walk.next()
    while not page.full:
        if must_open or not streams:
            room = at_once
            while upcoming is not None and (room > 0 or walk.begins_in(upcoming[0])):
                streams.append(_Stream(walk, request, *upcoming))
                upcoming = await walk.next()
                room -= 1
            at_once = min(2 * at_once, _MOST_AT_ONCE)
        if not streams:
            break
        wanted = [stream for stream in streams if not stream.block.length and not stream.ended]
        try:
            await _fetch(wanted, page.lacking)
        except TooManyTombstones:
            slow()
            await _fetch_in_parts([stream for stream in wanted if not stream.block.length and not stream.ended])
        final = _final(streams, upcoming[0] if upcoming else None, newest_first=newest_first)
        page.take(final)
        must_open = not final.length
        streams = [stream for stream in streams if stream.block.length or not stream.ended]
    return page.finish()


class _Stream:
    """The messages of one bucket inside the span, fetched as they are needed."""

    def __init__(self, walk: Walk, request: ReadRequest, bucket: Bucket, size_class: int) -> None:
        self.walk = walk
        self.request = request
        self.bucket = bucket
        self.after, self.upto = walk.after, walk.upto
        self.size_class = size_class
        self.block = NO_ROWS
        self.ended = False
        large = request.max_bytes >> size_class if request.with_bodies else request.limit
        self.most = self.step = max(1, min(request.limit + 1, large))
        """Rows of one query: of the next, and of the last one. A page of large messages is full after the first query; those
        of a page of small ones, in a bucket with large ones, take more and more rows."""
        self._most_of_all = max(1, min(request.limit + 1, _HELD * large))

    def ask(self, span: Span, limit: int) -> Future[Rows]:
        """Rows of a span of the bucket."""
        request = self.request
        name = f"{'read' if request.with_bodies else 'ids'}_{'descending' if request.newest_first else 'ascending'}"
        bindings = (*self.walk.partition, self.bucket.number, span.after.uuid, span.upto.uuid, limit)
        return self.walk.session.ask(name, bindings, self.walk.level, most_bytes=_bytes_of([self]))

    def take_rows(self, rows: Rows) -> None:
        self.take(block_of(rows) if self.request.with_bodies else block_of_ids(rows))

    def take(self, found: Block) -> None:
        """Take the rows of a query."""
        self.most = min(2 * self.most, self._most_of_all)
        self.block = found
        self.ended = found.length < self.step
        if found.length:
            last = found.id_at(-1)
            if self.request.newest_first:
                self.upto = last.before()
            else:
                self.after = last

    def cut(self, bound: MessageId | None) -> Block:
        """Remove and return the rows up to a bound; None means no bound."""
        block, newest_first, end = self.block, self.request.newest_first, self.block.length
        if bound is not None and newest_first:
            end = bisect_right(
                range(end), (-bound.ticks, -bound.tail), key=lambda at: (-block.ticks[at], -block.tails[at])
            )
        elif bound is not None:
            end = bisect_right(range(end), bound, key=block.id_at)
        self.block = block.between(end, block.length)
        return block.between(0, end)


async def _fetch(streams: Sequence[_Stream], lacking: int) -> None:
    """Fetch some rows of each of these buckets.

    It sends one query if possible, else one for each bucket, all at the same time. A server fills the buckets of one time
    one after the other, widest first (:mod:`queuey.storage.cassandra.buckets`). So mostly one of them has the next rows,
    and the others have later ones. First each says a few; then the one whose rows are used up is asked for the rest.

    :param lacking: rows that the page still takes, one more than it has room for included.
    """
    for stream in streams:
        stream.step = min(stream.most, lacking if len(streams) == 1 else _FIRST_ROWS)
    if _alike(streams):
        await _fetch_together(streams)
        return
    asked = [stream.ask(Span(stream.after, stream.upto), stream.step) for stream in streams]
    for stream, rows in zip(streams, asked, strict=True):
        stream.take_rows(await rows)


async def _fetch_in_parts(streams: Sequence[_Stream]) -> None:
    """The same for buckets in which nodes meet too many tombstones."""
    for stream in streams:
        span, newest_first = within(stream.bucket, Span(stream.after, stream.upto)), stream.request.newest_first
        rows = await read_in_parts(stream.ask, span, stream.step, newest_first=newest_first, parts_of=parts_of)
        stream.take_rows(rows)


def _alike(streams: Sequence[_Stream]) -> bool:
    """Whether one query can fetch from all these buckets.

    There must be several, with the same span, and few enough rows for one answer.
    """
    if len(streams) < 2 or len({(stream.after, stream.upto) for stream in streams}) > 1:
        return False
    request = streams[0].request
    together = sum(stream.step for stream in streams)
    return request.with_bodies and not request.newest_first and together <= _ROWS_TOGETHER


async def _fetch_together(streams: Sequence[_Stream]) -> None:
    walk, after, upto = streams[0].walk, streams[0].after, streams[0].upto
    step, numbers = min(stream.step for stream in streams), [stream.bucket.number for stream in streams]
    bindings = (*walk.partition, numbers, after.uuid, upto.uuid, step)
    found = await walk.session.ask("read_together", bindings, walk.level, most_bytes=_bytes_of(streams))
    blocks = blocks_of(found)
    for stream, number in zip(streams, numbers, strict=True):
        stream.step = step
        stream.take(blocks.get(number, NO_ROWS))


def _bytes_of(streams: Sequence[_Stream]) -> int:
    """The most bytes of bodies that one step of these brings."""
    return sum(stream.step << stream.size_class for stream in streams if stream.request.with_bodies)


def _final(streams: Sequence[_Stream], upcoming: Bucket | None, *, newest_first: bool) -> Block:
    """Remove and return the final rows of the streams, in order.

    No row can come before them any more.
    """
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


class BlockPage:
    """Takes rows in order until the page is full."""

    def __init__(self, request: ReadRequest, now_ticks: int) -> None:
        self.full = False
        self._request = request
        self._now = now_ticks
        self._room = request.max_bytes
        self._columns: tuple[list[Any], ...] = ([], [], [], [], [], [], [], [])
        self._passed = self._counted = 0

    @property
    def _count(self) -> int:
        return len(self._columns[0])

    @property
    def lacking(self) -> int:
        """Rows until the page is full, or known to be."""
        return self._request.limit + 1 - self._count

    def take(self, block: Block) -> None:
        """Take the live rows, each checked, up to the limits of count and bytes."""
        live = block.live(self._now)
        fitting = live.between(0, self._fitting(live))
        if self._request.with_bodies and not fitting.is_sound():
            self._take_one_by_one(live)
            return
        self._add(fitting)
        self._take_one_by_one(live.between(fitting.length, live.length))

    def _fitting(self, block: Block) -> int:
        """How many rows the page has room for."""
        wanted = block.between(0, self._request.limit - self._count)
        sizes = list(accumulate(wanted.sizes()))
        first = 1 if sizes and not self._count else 0
        return max(first, bisect_right(sizes, self._room))

    def _add(self, block: Block) -> None:
        if not block.length:
            return
        for column, more in zip(self._columns, block, strict=True):
            column.extend(more)
        self._room -= sum(map(len, block.bodies)) + size_of_headers(block.headers)
        self._counted = self._passed  # the next page meets the later ones again

    def _take_one_by_one(self, block: Block) -> None:
        for at in range(block.length):
            row = block.between(at, at + 1)
            sound = not self._request.with_bodies or row.is_sound()
            if not sound and self._request.skip_corrupt:
                self._passed += 1
            elif not self._fitting(row):
                self.full = True
                return
            elif not sound:
                raise corrupt(row.id_at(0))
            else:
                self._add(row)

    def finish(self) -> Page:
        ticks, tails, expires, _, content_types, keys, bodies, headers = self._columns
        kinds, names = texts_of(content_types), texts_of(keys)
        messages = Columns(ticks, tails, expires, kinds, names, bodies, headers) if ticks else []
        return Page(messages, self.full, self._counted if self.full else self._passed)
