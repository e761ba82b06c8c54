"""What the jobs of one group do to an embedded store's file, and how that gets to disk.

Every call into SQLite or the kernel releases the interpreter. Getting it back from a busy event loop costs most of all,
up to the switch interval each time. So a group of plain appends is one INSERT of many rows, and this one statement is
the whole transaction: it begins, writes, syncs and commits in one call. Only a group with other work begins a
transaction of several statements.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import apsw

from queuey.errors import QueueyError
from queuey.ids import IdGenerator, MessageId
from queuey.storage.sqlite.counters import ROW_COLUMNS, GroupChanges

__all__ = ["LEASE_CHANGES", "CommitFailed", "Kind", "Row", "Transaction"]

Row = tuple[Any, ...]
Bindings = tuple[Any, ...] | dict[str, Any]
"""Values of a statement in the order of its parameters, or by name."""
_ROWS_AT_ONCE = 256
"""The most rows of one statement. A prepared statement takes 1.2 KiB for each row."""


class Kind(NamedTuple):
    """A table of which a group gathers new rows."""

    table: str
    columns: Sequence[str]
    """The first of them is never null."""

    @property
    def insert(self) -> str:
        """The beginning of an INSERT.

        A row that cannot be stored ends the transaction: one that ended the statement alone would have SQLite copy each
        page before it changes it.
        """
        return f"insert or rollback into {self.table} ({', '.join(self.columns)})"


class Transaction:
    """What a job may use while its group's transaction is open."""

    def __init__(
        self, connection: apsw.Connection, ids: IdGenerator, counted: GroupChanges, *, only_reads: bool = False
    ) -> None:
        """:param counted: notes what changes in partitions that have a counter.
        :param only_reads: no job writes.
        """
        self._only_reads = only_reads
        self.connection = connection
        self.counted = counted
        self._ids = ids
        self._stamps = False
        self._begun = False
        self._values: list[Any] = []
        self._places: dict[bytes, list[int]] = {}
        """Where the rows of each partition begin in the values, in the order of their ids, up to :attr:`_placed`."""
        self._placed = 0
        self._others: dict[Kind, list[Any]] = {}
        """Values of rows of other tables."""
        self._named: dict[tuple[Any, ...], Row] = {}
        """Those of these rows that are looked up by name."""
        self._at_end: list[Callable[[], None]] = []
        self._has_written = False
        """Statements have run that may have changed the messages."""
        self.inserted = 0
        """Messages of the group."""

    @property
    def ids(self) -> IdGenerator:
        """The source of new ids.

        From its first use to the end of the group, no watermark passes the group's ids.
        """
        if not self._stamps:
            self._stamps = True
            self._ids.open_group()
        return self._ids

    def execute(self, sql: str, bindings: Bindings = ()) -> list[Row]:
        """Run one statement, after the inserts that came before it."""
        rows: list[Row] = self.cursor(sql, bindings).fetchall()
        return rows

    def cursor(self, sql: str, bindings: Bindings) -> Any:
        """The rows of a statement, one by one, after the inserts that came before it."""
        self._has_written = True
        self.begin()
        self._flush()
        return self.connection.execute(sql, bindings)

    def look(self, sql: str, bindings: Bindings) -> list[Row]:
        """Run a statement that does not use the messages table.

        Gathered inserts may still wait.
        """
        self.begin()
        return self.connection.execute(sql, bindings).fetchall()

    def lease_changes(self, sql: str, bindings: Bindings) -> list[Row]:
        """Run a statement that reads changes of lease groups. Gathered messages may still wait."""
        if LEASE_CHANGES in self._others:
            return self.execute(sql, bindings)
        return self.look(sql, bindings)

    def named(self, kind: Kind, *name: object) -> Row | None:
        """The last row of this name that :meth:`keep` took, if it is not among those that statements read."""
        return self._named.get((kind, *name))

    def insert(self, values: Row) -> None:
        """Insert one message, by the end of the group at the latest.

        The values are in the order of :data:`_MESSAGES`.
        """
        self._values += values

    def gathered(self, partition_key: bytes, after: MessageId, most: int) -> Sequence[Row]:
        """The next messages behind an id that the group adds to a partition, if it has only added messages so far.

        :returns: as :meth:`insert` took them, in the order of their ids; none if there may be more than these.
        """
        if self._has_written:
            return ()
        self._place_rows()
        values, places = self._values, self._places.get(partition_key, ())
        begin = bisect_right(places, after, key=self._id_at)
        return [tuple(values[at : at + ROW_COLUMNS]) for at in places[begin : begin + most]]

    @property
    def adds(self) -> bool:
        """Whether the group may have added messages so far: readers do not see them yet."""
        return bool(self._values) or self.inserted > 0

    @property
    def changes_messages(self) -> bool:
        """Whether the group may have added messages so far, or changed others."""
        return self._has_written or self.adds

    def _place_rows(self) -> None:
        """Find the rows of each partition, once for all that ask."""
        for at in range(self._placed, len(self._values), ROW_COLUMNS):
            places = self._places.setdefault(self._values[at], [])
            if not places or self._id_at(at) > self._id_at(places[-1]):  # mostly so
                places.append(at)
            else:
                insort(places, at, key=self._id_at)
        self._placed = len(self._values)

    def _id_at(self, at: int) -> MessageId:
        return MessageId(*self._values[at + 1 : at + 3])

    def keep(self, kind: Kind, values: Row, *name: object) -> None:
        """Insert one row of another table, by the end of the group at the latest.

        :param values: in the order of the columns of its kind.
        :param name: for :meth:`named`.
        """
        self._others.setdefault(kind, []).extend(values)
        if name:
            self._named[kind, *name] = values

    def at_end(self, work: Callable[[], None]) -> None:
        """Do this once, after all jobs of the group and before the commit."""
        self._at_end.append(work)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Undo what a job writes in this block if it refuses its request."""
        self.execute("savepoint whole")
        inserted, changes = self.inserted, self.counted.so_far()
        try:
            yield
        except QueueyError:
            self._values.clear()
            self._others.clear()
            self._named.clear()
            self.inserted = inserted
            self.counted.restore(changes)
            self.execute("rollback to whole")
            self.execute("release whole")
            raise
        self.execute("release whole")  # any other error ends the group's transaction

    def begin(self) -> None:
        """Take the lock of writers, unless it was taken or nothing is to be written.

        :raises apsw.BusyError: another process has it.
        """
        if not self._begun:
            self._begun = True
            self.connection.execute("begin" if self._only_reads else "begin immediate")

    def _flush(self) -> None:
        """Write gathered inserts in as few statements as possible."""
        values, self._values = self._values, []
        self.inserted += len(values) // ROW_COLUMNS
        if self.counted.is_counting:
            self.counted.add_rows(values)
        self._write(_MESSAGES, values)
        if self._others:
            others, self._others = self._others, {}
            self._named.clear()
            for kind, more in others.items():
                self._write(kind, more)

    def _write(self, kind: Kind, values: list[Any]) -> None:
        columns = len(kind.columns)
        for start in range(0, len(values), _ROWS_AT_ONCE * columns):
            some = values[start : start + _ROWS_AT_ONCE * columns]
            rows = len(some) // columns
            size = 1 << (rows - 1).bit_length()
            some += [None] * ((size - rows) * columns)
            self.connection.execute(_insert_statement(kind, size), some)

    def commit(self) -> None:
        """Put the group on disk.

        :raises CommitFailed: the group may or may not be on disk.
        """
        for work in self._at_end:
            work()
        statements = -(-len(self._values) // (_ROWS_AT_ONCE * ROW_COLUMNS))
        statements += sum([-(-len(more) // (_ROWS_AT_ONCE * len(kind.columns))) for kind, more in self._others.items()])
        if statements > 1:
            self.begin()
        if self._begun:
            self._flush()
        try:
            self._flush()  # nothing is left, or the flush is the whole transaction
            if self._begun:
                self.connection.execute("commit")
        except (apsw.IOError, apsw.InternalError) as error:
            raise CommitFailed(str(error)) from error


@lru_cache
def _insert_statement(kind: Kind, size: int) -> str:
    """An INSERT of up to ``size`` rows; unused rows are nulls.

    There are only a few sizes, so each stays prepared.
    """
    row = f"({','.join('?' * len(kind.columns))})"
    if size == 1:
        return f"{kind.insert} values {row}"
    return kind.insert + _CHOSEN[0] + ",".join([row] * size) + _CHOSEN[1]


_CHOSEN = (" select * from (values ", ") where column1 is not null")
"""What stands before the rows of an INSERT, and behind them."""


_MESSAGES = Kind(
    "messages", ("partition_key", "ticks", "tail", "expires", "checksum", "content_type", "key", "body", "headers")
)
LEASE_CHANGES = Kind("lease_changes", ("token", "partition", "number", "checksum", "change"))


class CommitFailed(Exception):
    """The commit itself failed: the write-ahead log may or may not have the group."""
