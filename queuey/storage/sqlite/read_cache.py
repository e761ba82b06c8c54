"""The read cache: copies of runs of packs, for bulk readers.

SQLite stores a pack in some seventeen pages, wherever there was space. Packs that are read in bulk again and again are
copied end to end, up to 4,000 messages in one run, which the kernel reads in two calls. The packs stay authoritative,
and no cached run is ever needed. If a run's packs change, a trigger of the database deletes its entry. A run that is
damaged, cut short by a crash or missing is skipped. So runs are not synced to disk, a backup has none, and they go
first when space is short.
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
from queuey.storage.sqlite.health import PRIVATE, PRIVATE_FOLDER
from queuey.storage.sqlite.packs import Piece, packed, read_head
from queuey.storage.sqlite.pages import (
    Ask,
    CachedRun,
    NextRun,
    PackEntry,
    Written,
    columns_of,
    entry_of,
    is_bulk,
    pack_of,
)
from queuey.storage.sqlite.rows import BEFORE_ALL
from queuey.storage.sqlite.statements import SQL
from queuey.storage.sqlite.transaction import Row, Transaction

__all__ = ["ReadCache", "RunCandidate", "find_run", "keep", "read_run"]

MOST_BYTES = 1 << 20
"""The most bytes of the packs of one run, besides ids and expiries: so its bodies fit into a page of a stream."""
FILE_BYTES = 64 << 20
"""Size at which a file is closed and the next one begun. Space is given back by whole files."""
_SWEEP_SECONDS = 60.0
_UNUSED_TICKS = 3600 * TICKS_PER_SECOND
_RANGES = 8
"""Spans of one partition that are remembered,"""
_PLACES = 10_000
"""and partitions."""
_WORTH, _FULL = 0.25, 0.9
"""The least share of a full run. A smaller run between other messages is not worth it; one at the end of what was read
waits for more."""
_LOOKED_AT = 1000
"""Packs and loose messages that the upkeep examines before it does something else."""


class _File:
    """A file open for reading; it is closed when its last reader releases it."""

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
    """The files of a store's cached runs.

    One thread writes them, any thread reads them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: dict[int, _File] = {}
        self._lock = new_lock()
        files = [file for file in sorted(path.glob("*.runs")) if file.stem.isdecimal()]
        self.sizes = {int(file.stem): file.stat().st_size for file in files}
        """Bytes of each file by its number, the oldest first."""
        self._newest = max(self.sizes, default=0)

    def columns(self, cached: CachedRun, *, with_bodies: bool) -> Columns | None:
        """The messages of a run; None if it is damaged.

        Bodies are read only with ``with_bodies``.
        """
        number, at, head_bytes, head_crc, rest_bytes, rest_crc, _ = cached.written
        head = read_head(Piece(self._read(number, at, head_bytes), head_crc))
        rest = Piece(self._read(number, at + head_bytes, rest_bytes), rest_crc) if with_bodies else None
        if head is None or (rest is not None and not rest.is_sound):
            self._let_go(number)  # another file may have its name now
            return None
        return columns_of(head, rest, range(cached.messages))[0]

    def _read(self, number: int, at: int, size: int) -> bytes:
        """Up to ``size`` bytes: as many as there are."""
        try:
            return self._opened(number).read(size, at)
        except (OSError, MemoryError):  # of a damaged entry, any number may be the size
            return b""

    def _opened(self, number: int) -> _File:
        with self._lock:
            file = self._files.get(number)
            if file is None:
                file = self._files[number] = _File(self._file(number))
            return file

    def append(self, columns: Columns) -> Written:
        """Write a run, without syncing it to disk.

        :raises OSError: there is no space, or the folder cannot be made.
        """
        head, rest = packed(columns)
        if self.sizes.get(self._newest, FILE_BYTES) >= FILE_BYTES:
            self._newest += 1  # use a number only once in a process: a reader may have its file open
        self._path.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        with open(self._file(self._newest), "ab", opener=_private) as file:
            at = self.sizes[self._newest] = file.tell()  # also of a run that does not fit on the disk: it is swept away
            file.writelines([head.data, rest.data])
            self.sizes[self._newest] = file.tell()
        return Written(self._newest, at, len(head.data), head.crc, len(rest.data), rest.crc, columns.size)

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove files. Readers that have one open go on reading it."""
        for number in numbers:
            del self.sizes[number]
            with contextlib.suppress(OSError):
                self._file(number).unlink()
            self._let_go(number)

    def _let_go(self, number: int) -> None:
        with self._lock:
            self._files.pop(number, None)

    def _file(self, number: int) -> Path:
        return self._path / f"{number:08}.runs"

    @property
    def bytes(self) -> int:
        """Bytes of all files together."""
        return sum(self.sizes.values())


class _Ranges:
    """Spans of partitions; adjacent spans are joined.

    Only a few are remembered for each partition; the oldest are dropped.
    """

    def __init__(self) -> None:
        self._spans: dict[bytes, list[Span]] = {}
        self._lock = new_lock()

    def add(self, partition_key: bytes, span: Span) -> bool:
        """:returns: whether all of it was there already."""
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
        """Remove and return the span that was added last."""
        with self._lock:
            if not self._spans:
                return None
            partition_key, spans = self._spans.popitem()
            span = spans.pop()
            if spans:
                self._spans[partition_key] = spans
            return partition_key, span


class RunCandidate(NamedTuple):
    """Packs at the beginning of a span that could be one cached run."""

    packs: Sequence[PackEntry]
    """Empty if none are fit."""
    goes_on: MessageId
    """The id after which to look for more packs."""
    is_over: bool
    """Whether there are none until the span grows."""

    @property
    def span(self) -> Span:
        """The span from the first message to the last."""
        return Span(self.packs[0].first.before(), self.packs[-1].last)


class _Run:
    """Packs that follow each other."""

    def __init__(self) -> None:
        self.packs: list[PackEntry] = []
        self._messages = self._bytes = 0

    def takes(self, entry: PackEntry, size: int) -> bool:
        """Add a pack; returns whether there was room for it."""
        if self._messages + entry.messages > sqlite_pages.RUN_MESSAGES or self._bytes + size > MOST_BYTES:
            return False
        self.packs.append(entry)
        self._messages, self._bytes = self._messages + entry.messages, self._bytes + size
        return True

    @property
    def share(self) -> float:
        """The part of a full run that it has."""
        return max(self._messages / sqlite_pages.RUN_MESSAGES, self._bytes / MOST_BYTES)


def find_run(ask: Ask, partition_key: bytes, span: Span, now_ticks: int) -> RunCandidate:
    """Find packs for a run that no cached run has yet.

    All of their messages are alive, and nothing that has expired lies between them: a run around another one is neither
    found nor forgotten with its packs.

    :param span: not past the watermark.
    """
    run, begin, last = _Run(), span.after, span.after
    rows = ask(SQL["ids_ascending"], (partition_key, *span.after, *span.upto, BEFORE_ALL))
    try:
        for row in islice(rows, _LOOKED_AT):
            entry, end = entry_of(row), MessageId(*row[:2])
            size = None if entry is None or end > span.upto else _size_of(ask, partition_key, entry, now_ticks)
            if entry is None or size is None or not run.takes(entry, size):
                if run.share >= _WORTH:
                    return RunCandidate(run.packs, last, is_over=False)
                run, begin = _Run(), end
            last = end
        is_over = next(rows, None) is None
    finally:
        rows.close(True)
    if run.share >= (_FULL if is_over else _WORTH):
        return RunCandidate(run.packs, last, is_over)
    return RunCandidate([], begin if is_over else last, is_over)


def _size_of(ask: Ask, partition_key: bytes, entry: PackEntry, now_ticks: int) -> int | None:
    """Bytes of a pack's rest, if the pack may become part of a run."""
    if entry.earliest_ticks <= now_ticks or ask(SQL["cached_run_over"], (partition_key, *entry.last)).fetchall():
        return None
    ((size,),) = ask(SQL["pack_size"], (entry.seq,)).fetchall()
    return None if size is None else int(size)  # a damaged row may have any value


def read_run(ask: Ask, packs: Sequence[PackEntry]) -> Columns | None:
    """Their messages; None if a pack is damaged."""
    parts = []
    for entry in packs:
        head, rest = pack_of(ask, entry.seq)
        if head is None or not rest.is_sound:
            return None
        parts.append(columns_of(head, rest, range(entry.messages))[0])
    return Columns.joined(parts)


def keep(transaction: Transaction, partition_key: bytes, run: RunCandidate, written: Written) -> None:
    """Note a cached run, unless something has changed since its packs were read."""
    span = run.span
    rows = transaction.execute(SQL["ids_ascending"], (partition_key, *span.after, *span.upto, BEFORE_ALL))
    if [entry_of(row) for row in rows] != run.packs:
        return
    messages, earliest = sum([one.messages for one in run.packs]), min([one.earliest_ticks for one in run.packs])
    found = CachedRun(run.packs[0].seq, run.packs[0].first, span.upto, messages, earliest, written)
    first_pack, *others = found.bound(partition_key).entry
    transaction.look(SQL["cached_run_insert"], (first_pack, partition_key, *others))


class ReadCache:
    """The cached runs of a store.

    It finds them for readers, and notes for the upkeep what is worth caching.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        """:param path: a folder, which need not exist.
        :param most_bytes: the most bytes of all files together.
        """
        self.folder = _Folder(path)
        self._most_bytes = most_bytes
        self._met, self._wanted = _Ranges(), _Ranges()
        self._tails: dict[bytes, Span] = {}
        """What readers wanted of a partition, and is too little for a run so far."""
        self.spoilt: set[int] = set()
        """First packs of runs that could not be used."""
        self._due = float("-inf")
        self._used: dict[int, int] = {}
        """When each file was last read, in ticks."""

    def next_run(self, ask: Ask, partition_key: bytes, request: ReadRequest, now_ticks: int) -> NextRun | None:
        """The first cached run that begins in a span, if it may be a page."""
        after, upto = request.span
        for row in ask(SQL["cached_runs_ahead"], (partition_key, *after)).fetchall():
            if None in row:  # damage: no value may be missing
                self.spoilt.add(row[0])
                return None
            found = CachedRun.of_index(row).bound(partition_key)
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
        """Note that a page came from packs, up to this message.

        What bulk readers read from packs a second time is wanted as a run.
        """
        span = Span(request.span.after, last)
        if is_bulk(request) and self._met.add(partition_key, span):
            self._wanted.add(partition_key, span)

    def take(self) -> tuple[bytes, Span] | None:
        """Remove and return a wanted span."""
        found = self._wanted.take()
        if found is None:
            return None
        partition_key, span = found
        tail = self._tails.pop(partition_key, span)
        return partition_key, Span(min(tail.after, span.after), span.upto) if tail.upto >= span.after else span

    def went_on(self, partition_key: bytes, span: Span, run: RunCandidate) -> None:
        """Note what is left of a span that was taken."""
        left = Span(run.goes_on, span.upto)
        if not run.is_over:
            self._wanted.add(partition_key, left)
        elif left.after < left.upto:
            self._tails[partition_key] = left
            if len(self._tails) > _PLACES:
                del self._tails[next(iter(self._tails))]

    def is_due(self, elapsed: float) -> bool:
        """Whether it is time to look for files without runs: once a minute."""
        is_due = elapsed >= self._due
        if is_due:
            self._due = elapsed + _SWEEP_SECONDS
        return is_due

    def unused(self, now_ticks: int) -> list[int]:
        """Files to delete to make space.

        They are the files that were read longest ago, and by no reader within the last hour. Age does not decide: if a
        partition does not fit as a whole, its beginning would be deleted each time its end is read.
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
