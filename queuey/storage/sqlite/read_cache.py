"""The read cache: copies of runs of packs, for readers of many.

SQLite keeps a pack in some seventeen pages, wherever there was room. What is read in bulk again and again is copied end to
end, up to 4,000 messages in one run, which the kernel gives in two calls. The packs stay what is true, and no cached run is ever
needed. A run whose packs change is forgotten with them, by a trigger of the database. A run that is damaged, cut short by a
crash or gone is passed over. So nothing is flushed to disk for them, a backup has none, and they go first when room is short.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from queuey.ids import TICKS_PER_SECOND, MessageId
from queuey.locks import new_lock
from queuey.model import Columns, ReadRequest, Span
from queuey.storage.sqlite import pages as sqlite_pages
from queuey.storage.sqlite.committer import Row, Transaction
from queuey.storage.sqlite.health import PRIVATE, PRIVATE_FOLDER
from queuey.storage.sqlite.packs import Piece, packed, read_head
from queuey.storage.sqlite.pages import Ask, CachedRun, NextRun, Written, columns_of, is_bulk, pack_of
from queuey.storage.sqlite.statements import SQL

__all__ = ["ReadCache", "RunCandidate", "find_run", "keep", "read_run"]

MOST_BYTES = 1 << 20
"""Of the packs of one at most, besides ids and expiries: so its bodies fit into a page of a stream."""
FILE_BYTES = 64 << 20
"""A file of this size is closed, and the next begun: room is given back by the file."""
_SWEEP_SECONDS = 60.0
_UNUSED_TICKS = 3600 * TICKS_PER_SECOND
_RANGES = 8
"""Spans of one partition that are remembered,"""
_PLACES = 10_000
"""and partitions."""
_WORTH, _FULL = 0.25, 0.9
"""Of what a run may have: less between other messages is not worth one, and less at the end of what was read waits for more."""
_LOOKED_AT = 1000
"""Packs and loose messages that the upkeep looks at before it does something else."""


class _File:
    """A file to read from; closed when the last that reads it has let go of it."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, size: int, at: int) -> bytes:
        return os.pread(self._descriptor, size, at)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # it could not be opened
            os.close(self._descriptor)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, PRIVATE)


class _Folder:
    """The files of a store's cached runs: one thread writes them, any reads them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: dict[int, _File] = {}
        self._lock = new_lock()
        files = [file for file in sorted(path.glob("*.segments")) if file.stem.isdecimal()]
        self.sizes = {int(file.stem): file.stat().st_size for file in files}
        """Bytes of each file, by its number; the oldest first."""
        self._newest = max(self.sizes, default=0)

    def columns(self, cached: CachedRun, *, with_bodies: bool) -> Columns | None:
        """The messages of a run; None if it is not as it was written.

        Without bodies if nobody wants them.
        """
        number, at, head_bytes, head_crc, rest_bytes, rest_crc, _ = cached.written
        head = read_head(Piece(self._read(number, at, head_bytes), head_crc))
        rest = Piece(self._read(number, at + head_bytes, rest_bytes), rest_crc) if with_bodies else None
        if head is None or (rest is not None and not rest.is_sound):
            self._let_go(number)  # another file may have its name by now
            return None
        return columns_of(head, rest, range(cached.messages))[0]

    def _read(self, number: int, at: int, size: int) -> bytes:
        """As many bytes as there are."""
        try:
            return self._opened(number).read(size, at)
        except OSError:
            return b""

    def _opened(self, number: int) -> _File:
        with self._lock:
            file = self._files.get(number)
            if file is None:
                file = self._files[number] = _File(self._file(number))
            return file

    def append(self, columns: Columns) -> Written:
        """Write a run; it is not on disk yet.

        :raises OSError: there is no room, or no folder can be made.
        """
        head, rest = packed(columns)
        if self.sizes.get(self._newest, FILE_BYTES) >= FILE_BYTES:
            self._newest += 1  # a number is used once in a process: somebody may read the file that had it
        self._path.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        with open(self._file(self._newest), "ab", opener=_private) as file:
            at = file.tell()
            file.writelines([head.data, rest.data])
            self.sizes[self._newest] = file.tell()
        return Written(self._newest, at, len(head.data), head.crc, len(rest.data), rest.crc, columns.size)

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove files. A reader that has one open reads on."""
        for number in numbers:
            del self.sizes[number]
            with contextlib.suppress(OSError):
                self._file(number).unlink()
            self._let_go(number)

    def _let_go(self, number: int) -> None:
        with self._lock:
            self._files.pop(number, None)

    def _file(self, number: int) -> Path:
        return self._path / f"{number:08}.segments"

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(self.sizes.values())


class _Ranges:
    """Spans of partitions, those that touch as one.

    Few are kept of each partition: the oldest are forgotten.
    """

    def __init__(self) -> None:
        self._spans: dict[bytes, list[Span]] = {}
        self._lock = new_lock()

    def add(self, partition_key: bytes, span: Span) -> bool:
        """:returns: whether all of it was there before."""
        with self._lock:
            spans = self._spans.pop(partition_key, [])
            apart = [known for known in spans if known.upto < span.after or span.upto < known.after]
            whole = [span, *(known for known in spans if known not in apart)]
            merged = Span(min(known.after for known in whole), max(known.upto for known in whole))
            self._spans[partition_key] = [*apart, merged][-_RANGES:]
            if len(self._spans) > _PLACES:
                del self._spans[next(iter(self._spans))]
            return merged in spans

    def take(self) -> tuple[bytes, Span] | None:
        """The one added last; it is there no more."""
        with self._lock:
            if not self._spans:
                return None
            partition_key, spans = self._spans.popitem()
            span = spans.pop()
            if spans:
                self._spans[partition_key] = spans
            return partition_key, span


class RunCandidate(NamedTuple):
    """Packs that are fit to be one cached run, at the beginning of a span."""

    packs: Sequence[Row]
    """As ``ids_ascending`` tells them; none if nothing is."""
    goes_on: MessageId
    """Behind which id there may be more,"""
    is_over: bool
    """unless the span grows."""

    @property
    def span(self) -> Span:
        """From the first message to the last."""
        return Span(MessageId(*self.packs[0][3:5]).before(), MessageId(*self.packs[-1][:2]))


class _Run:
    """Packs that follow each other."""

    def __init__(self) -> None:
        self.packs: list[Row] = []
        self._messages = self._bytes = 0

    def takes(self, row: Row, size: int) -> bool:
        """Whether there was room for one more."""
        if self._messages + row[5] > sqlite_pages.RUN_MESSAGES or self._bytes + size > MOST_BYTES:
            return False
        self.packs.append(row)
        self._messages, self._bytes = self._messages + row[5], self._bytes + size
        return True

    @property
    def share(self) -> float:
        """How much it has of what it may have."""
        return max(self._messages / sqlite_pages.RUN_MESSAGES, self._bytes / MOST_BYTES)


def find_run(ask: Ask, partition_key: bytes, span: Span, now_ticks: int) -> RunCandidate:
    """Look for a run of packs that no cached run has.

    All of their messages are alive.

    :param span: not past the watermark.
    """
    run, begin, last = _Run(), span.after, span.after
    rows = ask(SQL["ids_ascending"], (partition_key, *span.after, *span.upto, now_ticks))
    try:
        for row in islice(rows, _LOOKED_AT):
            size = _size_of(ask, partition_key, row, now_ticks) if MessageId(*row[:2]) <= span.upto else None
            if size is None or not run.takes(row, size):
                if run.share >= _WORTH:
                    return RunCandidate(run.packs, last, is_over=False)
                run, begin = _Run(), MessageId(*row[:2])
            last = MessageId(*row[:2])
        is_over = next(rows, None) is None
    finally:
        rows.close(True)
    if run.share >= (_FULL if is_over else _WORTH):
        return RunCandidate(run.packs, last, is_over)
    return RunCandidate([], begin if is_over else last, is_over)


def _size_of(ask: Ask, partition_key: bytes, row: Row, now_ticks: int) -> int | None:
    """Bytes of a pack's rest, if it may become part of a run."""
    if row[8] is None or row[6] <= now_ticks or ask(SQL["cached_run_over"], (partition_key, *row[:2])).fetchall():
        return None
    ((size,),) = ask(SQL["pack_size"], (row[8],)).fetchall()
    return None if size is None else int(size)  # damage may make anything of it


def read_run(ask: Ask, packs: Sequence[Row]) -> Columns | None:
    """Their messages; None if a pack is damaged."""
    parts = []
    for row in packs:
        head, rest = pack_of(ask, row[8])
        if head is None or not rest.is_sound:
            return None
        parts.append(columns_of(head, rest, range(row[5]))[0])
    return Columns.joined(parts)


def keep(transaction: Transaction, partition_key: bytes, run: RunCandidate, written: Written, now_ticks: int) -> None:
    """Note a cached run, unless something changed since its packs were read."""
    span = run.span
    if transaction.execute(SQL["ids_ascending"], (partition_key, *span.after, *span.upto, now_ticks)) != run.packs:
        return
    messages, earliest = sum([row[5] for row in run.packs]), min([row[6] for row in run.packs])
    ends = (*run.packs[0][3:5], *span.upto)
    transaction.look(SQL["cached_run_insert"], (run.packs[0][8], partition_key, *ends, messages, earliest, *written))


class ReadCache:
    """The cached runs of a store.

    Finds them for readers, and notes for the upkeep what is worth one.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        """:param path: a folder that need not be there.
        :param most_bytes: of all files together.
        """
        self.folder = _Folder(path)
        self._most_bytes = most_bytes
        self._met, self._wanted = _Ranges(), _Ranges()
        self._tails: dict[bytes, Span] = {}
        """What was wanted of a partition and is not enough for a run."""
        self.spoilt: set[int] = set()
        """First packs of runs that could not be used."""
        self._due = float("-inf")
        self._used: dict[int, int] = {}
        """When each file was read last, in ticks."""

    def next_run(self, ask: Ask, partition_key: bytes, request: ReadRequest, now_ticks: int) -> NextRun | None:
        """The first cached run that begins in a span, if it may be a page."""
        after, upto = request.span
        for row in ask(SQL["cached_runs_ahead"], (partition_key, *after)).fetchall():
            found = CachedRun.of_index(row)
            if found.first > after:
                is_fit = found.last <= upto and found.earliest_ticks > now_ticks
                has_room = not request.with_bodies or found.written.body_bytes <= request.max_bytes
                opened = partial(self._opened, now_ticks, with_bodies=request.with_bodies)
                return (found, opened) if is_fit and has_room else None
        return None

    def _opened(self, now_ticks: int, cached: CachedRun, rows: Sequence[Row], *, with_bodies: bool) -> Columns | None:
        self._used[cached.written.file] = now_ticks
        found = self.folder.columns(cached, with_bodies=with_bodies) if cached.is_of(rows) else None
        if found is None:
            self.spoilt.add(cached.first_pack)
        return found

    def was_read(self, partition_key: bytes, request: ReadRequest, last: MessageId) -> None:
        """A page came from packs, up to this message.

        What readers of many meet so for the second time is wanted.
        """
        span = Span(request.span.after, last)
        if is_bulk(request) and self._met.add(partition_key, span):
            self._wanted.add(partition_key, span)

    def take(self) -> tuple[bytes, Span] | None:
        """What is wanted; there no more."""
        found = self._wanted.take()
        if found is None:
            return None
        partition_key, span = found
        tail = self._tails.pop(partition_key, span)
        return partition_key, Span(min(tail.after, span.after), span.upto) if tail.upto >= span.after else span

    def went_on(self, partition_key: bytes, span: Span, run: RunCandidate) -> None:
        """Note what is left of what was taken."""
        left = Span(run.goes_on, span.upto)
        if not run.is_over:
            self._wanted.add(partition_key, left)
        elif left.after < left.upto:
            self._tails[partition_key] = left
            if len(self._tails) > _PLACES:
                del self._tails[next(iter(self._tails))]

    def is_due(self, elapsed: float) -> bool:
        """Whether to look for files that nothing is in any more; once a minute."""
        is_due = elapsed >= self._due
        if is_due:
            self._due = elapsed + _SWEEP_SECONDS
        return is_due

    def unused(self, now_ticks: int) -> list[int]:
        """Files to make room with.

        Those read longest ago, of which nobody has read anything for an hour.

        Not the oldest: of a partition that has no room as a whole the beginning would go each time its end is read.
        """
        used, left, found = self._used, self.folder.bytes, []
        for number in sorted(self.folder.sizes, key=lambda number: used.setdefault(number, now_ticks)):
            if left < self._most_bytes or used[number] > now_ticks - _UNUSED_TICKS:
                break
            found.append(number)
            left -= self.folder.sizes[number]
        return found

    @property
    def has_room(self) -> bool:
        return self.folder.bytes < self._most_bytes
