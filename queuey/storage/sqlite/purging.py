"""Gives back the space of expired and dropped messages in an embedded store."""

from __future__ import annotations

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
_PACK_ROWS = 100
"""Rows that are deleted in the time of one pack."""
_DROPPED_SECONDS = 600.0
"""How long a dropped incarnation is remembered, to refuse appends that were under way. Its rows are purged in any
case."""


class Purge(NamedTuple):
    """Statements that give back space, some rows at a time.

    Each binds those of ``now``, ``lease_now``, ``queue``, ``end``, ``first_place``, ``last_place``, ``rows`` and ``packs``
    that it names.
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
        dropped: dict[bytes, float],
        counters: Counters,
    ) -> None:
        """:param dropped: incarnations, and when each was dropped; those without rows are removed from it here."""
        self._counters = counters
        self._clock, self._lease_clock = clocks
        self._committer = committer
        self._readers = readers
        self._dropped = dropped
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
        now = self._clock.elapsed()
        with self._readers.lend() as reader:
            for queue, since in list(self._dropped.items()):
                if now - since > _DROPPED_SECONDS and not reader.ask(SQL["dropped_find"], (queue,), list):
                    del self._dropped[queue]
            ((found,),) = reader.ask(SQL["refuse"], (self._clock.now_ticks(), self._lease_clock.look()), list)
        return bool(found)

    def purge(self, rows: int) -> Future[int]:
        """Delete up to ``rows`` rows by each statement.

        :returns: the number of deleted rows, more than 0 as long as there may be more.
        """

        def job(transaction: Transaction) -> int:
            given: dict[str, Any] = {
                "now": self._clock.now_ticks(),
                "lease_now": self._lease_clock.look(),
                "rows": rows,
                "packs": rows // _PACK_ROWS + 1,
            }

            def delete(names: Sequence[str], **more: Any) -> int:
                gone = 0
                for name in names:
                    returning = self._counted.get(name, "") if transaction.counted.is_counting else ""
                    deleted = transaction.execute(SQL[name] + returning, given | more)
                    gone += transaction.connection.changes()
                    for partition_key, messages, size in deleted:
                        transaction.counted.add(partition_key, -messages, -size)
                return gone

            gone = delete(self._expired)
            for (queue,) in transaction.look(SQL["dropped_one"], ()):
                self._counters.forget_queue(queue)
                left = delete(self._of_dropped, queue=queue, end=queue + b"\xff", **places_of(queue))
                if not left:
                    transaction.execute(SQL["drop_done"], (queue,))
                gone += left + 1
            return gone

        return self._committer.submit(job, grows=False)
