"""How many copies a keyspace has, and what an acknowledgement is worth with them (G1).

An operator may change both while servers run. So they are asked for again, and the driver's map of the copies is made anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any

from cassandra import Unauthorized
from cassandra.cluster import Session

from queuey.locks import new_lock
from queuey.storage.cassandra.cluster import asked, know_replicas

__all__ = ["Replication", "copies_of"]

log = logging.getLogger(__name__)

_REPLICATION = "select replication from system_schema.keyspaces where keyspace_name = %s"
_COMMIT_LOG = "select value from system_views.settings where name = 'commitlog_sync'"
_UNKNOWN = "unknown"
_PAUSE_SECONDS = 5.0
"""Between two looks, however often problems are asked for."""


class Replication:
    """The copies of one keyspace. Thread-safe.

    It asks at the start, and again when :meth:`look` is called.
    """

    def __init__(self, driver: Session, keyspace: str) -> None:
        """:raises StorageUnavailable: too few nodes answer."""
        self._driver, self._keyspace = driver, keyspace
        self._lock = new_lock()
        self._looks, self._next = False, monotonic() + _PAUSE_SECONDS
        self._copies = _read(asked(driver, _REPLICATION, (keyspace,)))
        self._mode = _UNKNOWN
        try:
            self._note_mode(asked(driver, _COMMIT_LOG, ()))
        except Unauthorized:
            log.debug("this role may not see how the nodes sync their commit logs")
        self._mapped = self._copies if know_replicas(driver.cluster, keyspace) else None
        """What the driver's map is made of."""

    def weaknesses(self) -> Sequence[str]:
        """What makes this cluster weaker than a strong queue promises (G1). Each finding is a sentence."""
        found = []
        for where, number in copies_of(self._copies).items():
            named = f" in {where}" if where != "replication_factor" else ""
            if number == 1 and self._mode in ("group", "batch"):
                found.append(
                    f"keyspace {self._keyspace} has 1 copy{named}: an acknowledged message survives a crash, "
                    "not the loss of its node"
                )
            elif number < 3:
                found.append(
                    f"keyspace {self._keyspace} has {number} copies{named} and commitlog_sync is {self._mode}: "
                    "losing one node can lose acknowledged messages; use 3 copies, or 1 with commitlog_sync: group"
                )
        return found

    def look(self) -> None:
        """Ask again, unless that was done a moment ago. It waits for nothing."""
        now = monotonic()
        with self._lock:
            if self._looks or now < self._next:
                return
            self._looks, self._next = True, now + _PAUSE_SECONDS
        self._ask(_REPLICATION, (self._keyspace,), self._seen)

    def _ask(self, statement: str, values: Sequence[Any], seen: Callable[[Any], None]) -> None:
        try:
            self._driver.execute_async(statement, values or None).add_callbacks(seen, self._unseen)
        except Exception as error:  # noqa: BLE001 - as an answer that does not come
            self._unseen(error)

    def _seen(self, rows: Sequence[tuple[Any, ...]] | None) -> None:
        found = _read(rows or ())
        if found and found != self._copies:
            log.warning("the replication of keyspace %s is %s now", self._keyspace, found)
            self._copies = found
        self._ask(_COMMIT_LOG, (), self._seen_mode)

    def _seen_mode(self, rows: Sequence[tuple[Any, ...]] | None) -> None:
        self._note_mode(rows or ())
        self._map()

    def _unseen(self, error: BaseException) -> None:
        if isinstance(error, Unauthorized):
            self._mode = _UNKNOWN
        log.debug("the replication of keyspace %s is not known: %s", self._keyspace, error)
        self._map()

    def _note_mode(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self._mode = str(rows[0][0]) if rows else _UNKNOWN

    def _map(self) -> None:
        """Make the driver's map anew if it is old: in a thread of the driver, since that waits for a node."""
        if self._mapped == self._copies or self._driver.submit(self._map_now) is None:
            self._looks = False

    def _map_now(self) -> None:
        copies = self._copies
        try:
            if know_replicas(self._driver.cluster, self._keyspace):
                self._mapped = copies
        finally:
            self._looks = False


def _read(rows: Sequence[tuple[Any, ...]]) -> dict[str, str]:
    return dict(rows[0][0]) if rows else {}


def copies_of(replication: Mapping[str, str]) -> dict[str, int]:
    """Copies by data centre.

    >>> copies_of({"class": "org...NetworkTopologyStrategy", "eu": "3", "us": "2/1"})
    {'eu': 3, 'us': 2}
    """
    return {where: int(text.partition("/")[0]) for where, text in replication.items() if where != "class"}
