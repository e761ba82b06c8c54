"""Searches for damage that hides messages.

An embedded store's tables and indexes must agree. SQLite notices a page that makes no sense. It does not notice a
flipped bit that turns a key into another one: a page of messages that is read through such an index lacks some, and
looks complete. So each row is looked up in the index, and each index entry in the table. The ends of packs are compared
with their heads, and rows of small tables with their checksums.

A pass is a series of steps. Each reads a few hundred rows in a read transaction of its own, so the caller may pause
between steps.
"""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import apsw

from queuey.storage.checksums import NONSENSE
from queuey.storage.sqlite.checked_rows import CHECKED_TABLES, CheckedTable
from queuey.storage.sqlite.packs import PackHead, Piece, read_head
from queuey.storage.sqlite.readers import read_snapshot
from queuey.storage.sqlite.statements import SQL

__all__ = ["DAMAGE", "Finding", "Scrub", "described", "own_check"]

ROWS = 256
"""Rows compared in one step: about a millisecond."""
_HEADS = 32
_MOST_FINDINGS = 1000
"""Kinds of findings for each partition; more are counted together."""
_TABLES = (
    "queues",
    "named",
    "offsets",
    "idempotency",
    "lease_groups",
    "lease_changes",
    "lease_attempts",
    "tasks",
    "dropped",
    "removed",
    "app_keys",
)
"""Tables that are an index themselves: SQLite's own check covers their order."""

_WALKS: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
    ("scrub_rows", "messages that the index does not lead to", (-(2**63),)),
    ("scrub_entries", "entries of the index without their message", (b"", 0, 0)),
    ("scrub_packs", "packs that the index does not lead to", (-(2**63),)),
    ("scrub_pack_entries", "entries of the index without their pack", (b"", 0, 0)),
)
"""A statement, what it finds, and the key before the first."""


DAMAGE = (apsw.CorruptError, apsw.NotADBError)
"""What SQLite raises for a damaged file. Its other errors say nothing about the stored data."""
_UNREAD = re.compile(r"error code=(\d+)")


def own_check(connection: apsw.Connection, name: str) -> list[str]:
    """The findings of a check of SQLite's own.

    :raises apsw.Error: a page could not be read just now, which the check would list as damage.
    """
    told = [str(text) for (text,) in connection.execute(f"pragma {name}")]
    for text in told:
        if (found := _UNREAD.search(text)) and not isinstance(error := apsw.exception_for(int(found[1])), DAMAGE):
            raise type(error)(text)
    return told


class Finding(NamedTuple):
    """What is wrong, and where."""

    partition_key: bytes
    """A queue's incarnation and one byte of partition number; empty if the damage is not in one partition."""
    what: str


class Scrub:
    """One pass over a file.

    A read that fails raises another ``apsw.Error`` from :meth:`steps`: it may succeed the next time.
    """

    unreadable: tuple[type[Exception], ...] = (*DAMAGE, *NONSENSE)
    """The errors that count as damage."""
    tables: Sequence[str] = _TABLES
    """Those that SQLite checks."""

    def __init__(self, connection: apsw.Connection) -> None:
        """:param connection: used for nothing else during the pass."""
        self.connection = connection
        self.found: Counter[Finding] = Counter()

    def steps(self) -> Iterator[None]:
        """Compare everything, a little at each step."""
        for name, what, begin in _WALKS:
            yield from self._walk(name, what, begin)
        yield from self._heads()
        for checked in CHECKED_TABLES:
            yield from self._sums(checked)
        for table in self.tables:
            self._check(table)
            yield

    def _walk(self, name: str, what: str, key: tuple[Any, ...]) -> Iterator[None]:
        after: tuple[Any, ...] | None = key
        while after is not None:
            try:
                after = self._compare(name, what, after)
            except self.unreadable as error:
                self.finds(b"", f"pages that cannot be read ({error})")
                return
            yield

    def _compare(self, name: str, what: str, after: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """:returns: the key from which to go on; None at the end."""
        with read_snapshot(self.connection):
            ends = self.connection.execute(SQL[f"{name}_next"], (*after, ROWS)).fetchall()
            for partition_key, _ in self.connection.execute(SQL[name], (*after, ROWS)):
                self.finds(partition_key, what)
        if not ends:
            return None
        (end,) = ends
        if not _follows(end, after):
            self.finds(end[0] if len(end) > 1 else b"", "entries of the index out of order")
            return None
        return tuple(end)

    def _heads(self) -> Iterator[None]:
        after: Any = -(2**63)
        while True:
            try:
                with read_snapshot(self.connection):
                    rows = self.connection.execute(SQL["scrub_heads"], (after, _HEADS)).fetchall()
                    for _, partition_key, *told in rows:
                        self._compare_head(partition_key, *told)
            except self.unreadable as error:
                self.finds(b"", f"pages that cannot be read ({error})")
                return
            if len(rows) < _HEADS:
                return
            before, after = after, rows[-1][0]
            if after <= before:
                self.finds(b"", "packs out of order")
                return
            yield

    def _compare_head(self, partition_key: Any, *told: Any) -> None:
        *ends, messages, earliest, latest, crc, data = told
        head = read_head(Piece(data, crc))
        if head is None:
            return  # such damage hides nothing: readers get CorruptMessage
        if (*ends, messages, earliest, latest) != _told_by(head):
            self.finds(partition_key, "packs whose ends are not those of their messages")
        elif self.connection.execute(SQL["scrub_inside"], (partition_key, *ends)).fetchall() != [(0,)]:
            self.finds(partition_key, "packs with other messages between their ends")

    def _sums(self, table: CheckedTable) -> Iterator[None]:
        try:
            for page in table.pages(self.connection):
                for row in page:
                    if not row.is_sound:
                        self.finds(b"", f"row that does not match its checksum, {table.described(row)}")
                yield
        except self.unreadable as error:
            self.finds(b"", f"rows of the table {table.name} that cannot be read ({error})")

    def _check(self, table: str) -> None:
        try:
            told = own_check(self.connection, f"integrity_check({table})")
        except self.unreadable as error:
            told = [str(error)]
        for text in told:
            if text != "ok":
                self.finds(b"", f"damage of the table {table} ({text})")

    def finds(self, partition_key: Any, what: str) -> None:
        finding = Finding(partition_key if isinstance(partition_key, bytes) and len(partition_key) == 17 else b"", what)
        if finding not in self.found and len(self.found) >= _MOST_FINDINGS:
            finding = Finding(b"", "findings beyond the first")
        self.found[finding] += 1


def _follows(end: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
    try:
        return bool(end > after)
    except TypeError:  # damage changed the type of a number
        return False


def _told_by(head: PackHead) -> tuple[int, ...]:
    """What a head says.

    It has the columns of ``packs`` from ``first_ticks`` to ``latest``.
    """
    first, last = head.id_at(0), head.id_at(-1)
    return (*first, *last, len(head.ticks), min(head.expires_ticks), max(head.expires_ticks))


def described(connection: apsw.Connection, finding: Finding, count: int) -> str:
    """A finding in words.

    :param connection: to the file with the queues; queues of another file are named by their ids.
    """
    if not finding.partition_key:
        return f"{count} {finding.what}"
    return f"{count} {finding.what} in {queue_at(connection, finding.partition_key)}, partition {finding.partition_key[16]}"


def queue_at(connection: apsw.Connection, partition_key: bytes) -> str:
    """The name of a queue, if its metadata is in this file and undamaged."""
    key = partition_key[:16]
    with suppress(apsw.Error, *NONSENSE):
        for application, name in connection.execute(SQL["queue_of"], (key,)):
            return f"queue {application}/{name}"
    return f"queue {uuid.UUID(bytes=key).hex}"
