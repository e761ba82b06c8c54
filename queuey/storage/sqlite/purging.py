"""Gives back the space of expired and dropped messages in an embedded store."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from queuey.clock import Clock
from queuey.future import Future
from queuey.storage.leasing.clock import LeaseClock
from queuey.storage.sqlite.committer import Committer
from queuey.storage.sqlite.counters import Counters
from queuey.storage.sqlite.readers import Readers
from queuey.storage.sqlite.remembering import places_of
from queuey.storage.sqlite.statements import SQL
from queuey.storage.sqlite.transaction import Transaction

__all__ = ["Purge", "Purger"]

PURGE_ROWS = 2000
"""Rows deleted in one transaction: a few milliseconds of the committer's time."""
_FIRST_ROWS, _ROWS_AT_ONCE = 10, 100
"""Rows of the first statement, as they may be large, and of one at most: each has twice as many as the one before. A hundred
are deleted in the time of one pack."""
_MOST_BYTES = 16 << 20
"""Bytes that a statement frees in one transaction: nearly all pages that had them are read for it."""
_QUEUES = 16
"""Dropped incarnations that are looked at in one transaction: one without rows takes a fifth of a millisecond."""
_DROPPED_SECONDS = 600.0
"""How long a dropped incarnation is remembered, to refuse appends that were under way. Its rows are purged in any
case."""


class Purge(NamedTuple):
    """Statements that give back space, some rows at a time.

    Each binds those of ``now``, ``lease_now``, ``queue``, ``end``, ``first_place``, ``last_place`` and ``rows`` that it
    names. Those of packs delete one at a time.
    """

    expired: Sequence[str] = ()
    """Deletes what has expired."""
    dropped: Sequence[str] = ()
    """Deletes what belongs to a dropped incarnation."""
    counted: Mapping[str, str] = MappingProxyType({})
    """By the name of a statement in ``expired``, the clause that makes it return the partition key of what it deletes,
    the number of messages, and the bytes of their bodies. It is added only if some partition has a counter."""


class Purger:
    """Gives back space by the statements that the store's parts register."""

    def __init__(
        self,
        clocks: tuple[Clock, LeaseClock],
        committer: Committer,
        readers: Readers,
        dropped: set[bytes],
        counters: Counters,
    ) -> None:
        """:param dropped: incarnations; those without rows are removed from it here."""
        self._counters = counters
        self._clock, self._lease_clock = clocks
        self._committer = committer
        self._readers = readers
        self._dropped = dropped
        self._emptied: deque[tuple[bytes, float]] = deque()
        """Dropped incarnations whose rows are gone, and since when, the first ones first."""
        self._expired: list[str] = []
        self._of_dropped: list[str] = []
        self._counted: dict[str, str] = {}

    def add(self, purge: Purge) -> None:
        self._expired += purge.expired
        self._of_dropped += purge.dropped
        self._counted.update(purge.counted)

    def run(self) -> bool:
        """Purge some rows; True if there may be more."""
        return self.has_refuse() and self.purge(PURGE_ROWS).wait() > 0

    def has_refuse(self) -> bool:
        """Whether some space can be given back."""
        before = self._clock.elapsed() - _DROPPED_SECONDS
        with self._readers.lend() as reader:
            while self._emptied and self._emptied[0][1] < before:
                queue, _ = self._emptied.popleft()
                if not reader.ask(SQL["dropped_find"], (queue,), list):  # else its rows came back with the transaction
                    self._dropped.discard(queue)
            ((found,),) = reader.ask(SQL["refuse"], (self._clock.now_ticks(), self._lease_clock.look()), list)
        return bool(found)

    def purge(self, rows: int) -> Future[int]:
        """Delete up to ``rows`` rows by each statement, fewer if they are large.

        :returns: the number of deleted rows, more than 0 as long as there may be more.
        """

        def job(transaction: Transaction) -> int:
            given = {"now": self._clock.now_ticks(), "lease_now": self._lease_clock.look()}
            deletion = _Deletion(transaction, given, self._counted, rows, self._committer.writer.page_bytes)
            deletion.run(self._expired)
            for (queue,) in transaction.look(SQL["dropped_some"], (_QUEUES,)):
                self._counters.forget_queue(queue)
                deletion.gone += 1
                if not deletion.run(self._of_dropped, queue=queue, end=queue + b"\xff", **places_of(queue)):
                    break  # the others have the next turns
                transaction.execute(SQL["drop_done"], (queue,))
                self._emptied.append((queue, self._clock.elapsed()))
            return deletion.gone

        return self._committer.submit(job, grows=False)


class _Deletion:
    """Deletes rows in one transaction, some by each statement."""

    def __init__(
        self,
        transaction: Transaction,
        given: Mapping[str, Any],
        counted: Mapping[str, str],
        most: int,
        page_bytes: int,
    ) -> None:
        """:param most: rows by each statement.
        :param page_bytes: of a page of this file.
        """
        self._transaction, self._given, self._most = transaction, given, most
        self._most_pages = _MOST_BYTES // page_bytes
        self._counted = counted if transaction.counted.is_counting else {}
        self.gone = 0
        """Deleted rows."""

    def run(self, names: Sequence[str], **more: Any) -> bool:
        """Let each of these statements delete its rows; returns whether all have deleted all they find."""
        found = [self._delete(SQL[name] + self._counted.get(name, ""), more) for name in names]  # each has its turn
        return all(found)

    def _delete(self, sql: str, more: Mapping[str, Any]) -> bool:
        free, left, at_once = self._free_pages(), self._most, _FIRST_ROWS
        while left > 0 and self._free_pages() - free < self._most_pages:
            rows = min(left, at_once)
            deleted = self._transaction.execute(sql, {**self._given, **more, "rows": rows})
            if not (gone := self._transaction.connection.changes()):
                return True
            self.gone += gone
            left, at_once = left - rows, min(2 * at_once, _ROWS_AT_ONCE)
            for partition_key, messages, size in deleted:
                self._transaction.counted.add(partition_key, -messages, -size)
        return False

    def _free_pages(self) -> int:
        ((pages,),) = self._transaction.look("pragma freelist_count", ())
        return int(pages)
