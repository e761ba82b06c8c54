"""Makes pages of messages from rows and packs of an embedded store's file.

No message's id lies between the ends of a pack. So rows and packs ordered by their last ids are in the order of their
messages.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, NamedTuple

from google_crc32c import value as crc32c

from queuey.errors import CorruptMessage, StorageUnavailable
from queuey.ids import MessageId
from queuey.model import Alike, Bodies, Columns, Message, Page, ReadRequest, Span
from queuey.storage.checksums import all_match, corrupt
from queuey.storage.sqlite import packs
from queuey.storage.sqlite.packs import PackHead, Piece, cut, picked, read_head, read_rest
from queuey.storage.sqlite.statements import SQL
from queuey.storage.sqlite.transaction import Row

__all__ = [
    "CachedRun",
    "PackEntry",
    "PageBuilder",
    "all_rows",
    "columns_of",
    "entry_of",
    "head_of",
    "is_bulk",
    "message_in",
    "one_row",
    "pack_of",
]

Ask = Callable[[str, tuple[Any, ...]], Any]
"""Asks a further question of the same state of the file, and returns its rows; see
:meth:`queuey.storage.sqlite.readers.Reader.beside`."""


NextRun = tuple["CachedRun", Callable[["CachedRun", Sequence[Row]], Columns | None]]
"""A cached run, and a function that reads it. It gets the rows of ``read_ascending`` inside the run, and returns None
if the run cannot replace them."""


_BODY_AT, _HEADERS_AT, _PACK_AT = 5, 7, 8
_MESSAGES_AT = 5
"""Where a row of ``read_ascending`` has them; the row of a pack has its number of messages in place of a body. Rows of messages stay plain: a page has no time to make another value of
each."""
RUN_MESSAGES = 4000
"""The most messages of a cached run: as many as a page of a stream has."""


def is_bulk(request: ReadRequest) -> bool:
    """Whether the page of this request may be a cached run."""
    return request.limit >= RUN_MESSAGES and not request.newest_first


class PackEntry(NamedTuple):
    """A pack's entry in the index."""

    first: MessageId
    last: MessageId
    messages: int
    earliest_ticks: int
    seq: int

    @classmethod
    def of_index(cls, row: Row) -> PackEntry:
        """An entry from a row of ``packs_in``."""
        return cls(MessageId(*row[:2]), MessageId(*row[2:4]), *row[4:])

    @classmethod
    def of_row(cls, row: Row) -> PackEntry:
        """An entry from a row of ``read_ascending``."""
        last_ticks, last_tail, _, first_ticks, first_tail, messages, earliest, _, seq = row
        return cls(MessageId(first_ticks, first_tail), MessageId(last_ticks, last_tail), messages, earliest, seq)

    def is_whole(self, span: Span, now_ticks: int) -> bool:
        """Whether all of its messages are alive and in the span."""
        return self.earliest_ticks > now_ticks and span.after < self.first and self.last <= span.upto

    def chosen(self, head: PackHead, span: Span, now_ticks: int) -> Sequence[int]:
        """The messages that are alive and in the span, by index."""
        if self.is_whole(span, now_ticks):
            return range(self.messages)
        inside = head.inside(span)
        if self.earliest_ticks > now_ticks:
            return inside
        return [at for at in inside if head.expires_ticks[at] > now_ticks]


class Written(NamedTuple):
    """Where a cached run lies in its file, and its checksums, as in the index."""

    file: int
    at: int
    head_bytes: int
    head_crc: int
    rest_bytes: int
    rest_crc: int
    body_bytes: int


class CachedRun(NamedTuple):
    """The index entry of a cached run of packs.

    See :mod:`queuey.storage.sqlite.read_cache`.
    """

    first_pack: int
    first: MessageId
    last: MessageId
    messages: int
    earliest_ticks: int
    written: Written

    @classmethod
    def of_index(cls, row: Row) -> CachedRun:
        return cls(row[0], MessageId(*row[1:3]), MessageId(*row[3:5]), row[5], row[6], Written(*row[7:]))

    @property
    def entry(self) -> Row:
        """The inverse of :meth:`of_index`."""
        return (self.first_pack, *self.first, *self.last, self.messages, self.earliest_ticks, *self.written)

    def bound(self, partition_key: bytes) -> CachedRun:
        """The same with another checksum of its head, which covers the entry as well; its own inverse.

        So a flipped bit in an entry makes a damaged head of it, and the run is not used.
        """
        others = self._replace(written=self.written._replace(head_crc=0)).entry
        crc = crc32c(partition_key + repr(others).encode())
        return self._replace(written=self.written._replace(head_crc=self.written.head_crc ^ crc))

    def is_of(self, rows: Sequence[Row]) -> bool:
        """Whether these are exactly the packs that the run was made from.

        If one of its packs had been removed, the run would have been removed with it.

        :param rows: of ``read_ascending``; only the last may be no pack.
        """
        if not rows or rows[-1][_PACK_AT] is None:
            return False
        messages: int = sum([row[_MESSAGES_AT] for row in rows])
        return rows[0][_PACK_AT] == self.first_pack and messages == self.messages


class PageBuilder:
    """Takes what a span has, in the order of reading, until the page is full."""

    def __init__(self, request: ReadRequest, now_ticks: int, ask: Ask) -> None:
        self._request = request
        self._now = now_ticks
        self._ask = ask
        self.is_cached = False
        """Whether the page is a cached run."""
        self._rows: list[Row] = []
        self._parts: list[Columns] = []
        self._count = 0
        self._room = request.max_bytes
        self._is_cut = False
        self._loose: list[Columns] = []
        """Indexes of the parts that came as rows."""
        self._after_small = self._has_neighbours = False
        """Whether the last pack is less than half full, and whether two such packs are neighbours."""
        self._packs: list[int] = []
        self._passed = self._counted = 0
        """Damaged messages that were skipped, and how many of them lie before the page's last message: the next page
        meets the rest again."""

    def page(self, rows: Iterable[Row], next_run: NextRun | None = None) -> Page:
        """:param next_run: a cached run that the page may reach, in ascending order.
        :raises CorruptMessage: a message does not match its checksum, and must not be skipped.
        """
        return self._page(rows) if next_run is None else self._page_before(next_run, iter(rows))

    def _page_before(self, next_run: NextRun, rows: Iterator[Row]) -> Page:
        """Make a page of a cached run alone, or of what lies before it."""
        cached, opened = next_run
        met: list[Row] = []
        page = self._page(_before(cached.first, rows, met))
        if page.more or not met:
            return page
        if page.messages:
            more = self._any(chain(met, rows))
            return page._replace(more=True, corrupt=self._counted) if more else page
        inside, beyond = _parted(chain(met, rows), cached.last)
        found = opened(cached, inside)
        if found is None:
            return self._page(chain(inside, beyond, rows))
        self.is_cached = True
        return Page(found, self._any(chain(beyond, rows)), self._passed)

    def _any(self, rows: Iterable[Row]) -> bool:
        """Whether the rows have any wanted message, damaged or not."""
        span, now = self._request.span, self._now
        for row in rows:
            entry = entry_of(row)
            if entry is None or entry.is_whole(span, now):
                return True
            head = head_of(self._ask, entry.seq)
            if head is None or entry.chosen(head, span, now):
                return True
        return False

    def _page(self, rows: Iterable[Row]) -> Page:
        _, _, limit, _, _, with_bodies, skip_corrupt = self._request
        step_over = skip_corrupt and with_bodies
        more = False
        for row in rows:
            if row[_PACK_AT] is not None:
                more = not self._takes_pack(row)
            elif step_over and not _is_sound(row):
                self._passed += 1
            else:
                left = self._room - _size(row)
                more = self._count == limit or (left < 0 and self._count > 0)
                if not more:
                    self._rows.append(row)
                    self._count, self._room, self._counted = self._count + 1, left, self._passed
            if more:
                break
        self._close_rows()
        return Page(Columns.joined(self._parts) if self._parts else [], more, self._counted if more else self._passed)

    def _takes_pack(self, row: Row) -> bool:
        """Take a pack, or as much of it as there is room for.

        Returns whether it took all.
        """
        request = self._request
        entry = PackEntry.of_row(row)
        if self._count == request.limit and entry.is_whole(request.span, self._now):
            return False
        head, rest = self._opened(entry.seq)
        if head is None:
            return self._steps_over([entry.first] * entry.messages)
        chosen = entry.chosen(head, request.span, self._now)
        if not chosen:
            return True
        found, damaged = columns_of(head, rest, self._next(chosen) if not request.skip_corrupt else chosen)
        self._steps_over(damaged)
        taken = self._fitting(found)
        if taken and rest is not None:
            self._meets(entry, rest)
        self._add(found, taken, damaged)
        if taken:
            self._packs.append(entry.seq)
        self._is_cut = 0 < taken < len(chosen) - len(damaged)
        return taken + len(damaged) == len(chosen)

    def _meets(self, entry: PackEntry, rest: Piece) -> None:
        """Note whether a pack and the one before it could become one pack.

        The rows between them are included.
        """
        small = 2 * entry.messages < packs.MOST and 2 * len(rest.data) < packs.MOST_BYTES
        if small and self._after_small and len(self._rows) < packs.LEAST:
            self._has_neighbours |= 2 * sum(map(_size, self._rows)) < packs.MOST_BYTES
        self._after_small = small

    def _next(self, chosen: Sequence[int]) -> Sequence[int]:
        """As many of the chosen messages as the page may still have."""
        left = self._request.limit - self._count
        if not self._request.newest_first:
            return chosen[:left]
        return chosen[-left:] if left else chosen[:0]

    def _opened(self, seq: int) -> tuple[PackHead | None, Piece | None]:
        return pack_of(self._ask, seq) if self._request.with_bodies else (head_of(self._ask, seq), None)

    def _steps_over(self, damaged: Sequence[MessageId]) -> bool:
        if damaged and not self._request.skip_corrupt:
            raise corrupt(damaged[-1 if self._request.newest_first else 0])
        self._passed += len(damaged)
        return True

    def _fitting(self, found: Columns) -> int:
        """The number of next messages that the page has room for."""
        most = min(len(found), self._request.limit - self._count)
        if found.size <= self._room:
            return most
        lengths = found.sizes()
        if self._request.newest_first:
            lengths.reverse()
        return min(most, max(bisect_right(list(accumulate(lengths)), self._room), 0 if self._count else 1))

    def _add(self, found: Columns, count: int, damaged: Sequence[MessageId]) -> None:
        if not count:
            return
        self._close_rows()
        if self._request.newest_first:
            part = Columns(*[list(reversed(column[len(found) - count :])) for column in found.all()])
            behind = [id_ for id_ in damaged if id_ < part[-1].id]
        else:
            part = found if count == len(found) else found[:count]
            behind = [id_ for id_ in damaged if id_ > part[-1].id]
        self._parts.append(part)
        self._count += count
        self._room -= part.size
        self._counted = self._passed - len(behind)

    @property
    def is_loose(self) -> bool:
        """Whether the messages of the page would be better in packs.

        They would if there are enough rows for a pack, or packs that fit into one.
        """
        if self._has_neighbours:
            return True
        return any(len(run) >= packs.LEAST for part in self._loose for run in cut(part))

    def whole(self) -> tuple[Sequence[Columns], Sequence[int]]:
        """The parts of the page, and the packs among them.

        What it has of a pack that did not fit is left out.
        """
        if self._is_cut:
            return self._parts[:-1], self._packs[:-1]
        return self._parts, self._packs

    def _close_rows(self) -> None:
        """Turn the rows so far into a part of the page."""
        if self._rows:
            self._loose.append(_messages(self._rows, check=self._request.with_bodies))
            self._parts.append(self._loose[-1])
            self._rows = []


def entry_of(row: Row) -> PackEntry | None:
    """The entry of a row of ``read_ascending``; None if the row is a message."""
    return None if row[_PACK_AT] is None else PackEntry.of_row(row)


def _before(first: MessageId, rows: Iterator[Row], met: list[Row]) -> Iterator[Row]:
    """Rows before the first that ends at or after an id; ``met`` gets that one."""
    for row in rows:
        if row[:2] >= first:
            met.append(row)
            return
        yield row


def _parted(rows: Iterator[Row], last: MessageId) -> tuple[list[Row], list[Row]]:
    """Packs that end at or before an id, and the row after them.

    It stops at the first row that is no pack or lies after the id. That row comes second if it lies after.
    """
    inside: list[Row] = []
    for row in rows:
        if row[:2] > last:
            return inside, [row]
        inside.append(row)
        if row[_PACK_AT] is None:
            break
    return inside, []


def head_of(ask: Ask, seq: int) -> PackHead | None:
    """:returns: None if the head is damaged."""
    head, head_crc = _row_of(ask(SQL["pack_head"], (seq,)), _NO_PIECE)
    return read_head(Piece(head, head_crc))


def pack_of(ask: Ask, seq: int) -> tuple[PackHead | None, Piece]:
    """The head, or None if it is damaged, and the rest."""
    head, head_crc, rest, rest_crc = _row_of(ask(SQL["pack"], (seq,)), _NO_PIECE * 2)
    return read_head(Piece(head, head_crc)), Piece(rest, rest_crc)


_NO_PIECE = (b"", 1)
"""Bytes that do not match their checksum, and it."""


def _row_of(rows: Iterable[Row], damaged: Row) -> Row:
    """The row that an index refers to.

    :param damaged: stands for one of which a flipped bit has made text that is none.
    :raises StorageUnavailable: it does not exist.
    """
    found = all_rows(rows)
    if found is None:
        return damaged
    for row in found:
        return row
    raise StorageUnavailable("an index of the store leads to messages that are not there: run 'queuey verify'")


def all_rows(rows: Iterable[Row]) -> list[Row] | None:
    """All rows; None if a flipped bit has made text of some bytes, and it is no UTF-8.

    So no error is raised where the cursor is known: the error would keep it, and with it the reader at this state of the file.
    """
    try:
        return list(rows)
    except UnicodeDecodeError:
        return None


def columns_of(head: PackHead, rest: Piece | None, chosen: Sequence[int]) -> tuple[Columns, Sequence[MessageId]]:
    """Messages of a pack, and the ids of damaged ones.

    They have no bodies if there is no rest.
    """
    if rest is not None:
        return read_rest(head, rest, chosen)
    ticks, tails, expires = (picked(column, chosen) for column in head)
    nothing = Alike(None, len(chosen))
    return Columns(ticks, tails, expires, nothing, nothing, Bodies(b"", (0,) * (len(chosen) + 1), 0), nothing), ()


def message_in(ask: Ask, seq: int, message_id: MessageId, now_ticks: int) -> Message | None:
    """A message, from the pack that its id falls into.

    :raises CorruptMessage: it is damaged, or so is the entry that locates it.
    """
    head, rest = pack_of(ask, seq)
    if head is None:
        raise corrupt(message_id)
    chosen = head.inside(Span(message_id.before(), message_id))
    if not chosen or head.expires_ticks[chosen[0]] <= now_ticks:
        return None
    found, damaged = read_rest(head, rest, chosen)
    if damaged:
        raise corrupt(message_id)
    return found[0]


def one_row(rows: Sequence[Row] | None, message_id: MessageId) -> Message | None:
    """A message that was asked for by its id.

    :param rows: see :func:`all_rows`.
    :raises CorruptMessage: it is damaged.
    """
    if rows is None:
        raise corrupt(message_id)
    return _messages(rows, check=True)[0] if rows else None


def _messages(rows: Sequence[Row], *, check: bool) -> Columns:
    """Rows as columns, after a check of their checksums.

    :raises CorruptMessage: one does not match.
    """
    ticks, tails, expires, kinds, keys, bodies, checksums, headers, _ = zip(*rows, strict=True)
    if check and not all_match(checksums, ticks, tails, (kinds, keys, headers), bodies):
        raise _corrupt_row(next(row for row in rows if not _is_sound(row)))
    return Columns(ticks, tails, expires, _decoded(kinds), _decoded(keys), bodies, headers)


def _is_sound(row: Row) -> bool:
    """Whether one row matches its checksum."""
    ticks, tail, _, kind, key, body, checksum, headers, _ = row
    return all_match((checksum,), (ticks,), (tail,), ((kind,), (key,), (headers,)), (body,))


def _size(row: Row) -> int:
    try:
        return len(row[_BODY_AT]) + len(row[_HEADERS_AT] or b"")
    except TypeError as error:  # a flipped bit made a number of the body
        raise _corrupt_row(row) from error


def _corrupt_row(row: Row) -> CorruptMessage:
    return corrupt(MessageId(row[0], row[1]))


def _decoded(names: Row) -> Sequence[str | None]:
    if names.count(None) == len(names):
        return names
    return [None if name is None else name.decode() for name in names]
