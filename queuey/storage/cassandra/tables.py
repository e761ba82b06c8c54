"""Whether a keyspace has its tables."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from cassandra.cluster import Session

from queuey.errors import ConfigurationError
from queuey.locks import new_lock
from queuey.storage.cassandra.cluster import asked
from queuey.storage.statements import load_statements

__all__ = ["CQL", "Tables"]

log = logging.getLogger(__name__)

CQL = load_statements("queuey.storage.cassandra", "schema.cql", "statements.cql")
_WANTED = {name.removeprefix("table_") for name in CQL if name.startswith("table_")}
_TABLES = "select table_name from system_schema.tables where keyspace_name = %s"
_PAUSE_SECONDS = 1.0


class Tables:
    """The tables of one keyspace. It looks at the start, and again while they are in doubt. Thread-safe."""

    def __init__(self, driver: Session, keyspace: str) -> None:
        """:raises ConfigurationError: the keyspace or some of its tables are missing."""
        self._driver, self._keyspace = driver, keyspace
        self._lock = new_lock()
        self._looks = False
        self.missing = _missing(asked(driver, _TABLES, (keyspace,)))
        """What is not there, as far as is known."""
        if self.missing:
            raise ConfigurationError(
                f"[cassandra] keyspace = {keyspace} lacks {self.missing}: run 'queuey init' once, as a role that may make "
                "keyspaces"
            )

    def doubt(self) -> None:
        """A node says that it lacks one: look until all are there. It waits for nothing."""
        with self._lock:
            if self._looks:
                return
            self._looks = True
        self._look()

    def problems(self) -> Sequence[str]:
        """See :meth:`queuey.storage.MessageStore.problems`."""
        text = (
            f"[cassandra] keyspace = {self._keyspace} lacks {self.missing}: restore it from a backup, or run 'queuey init' to "
            "begin anew"
        )
        return (text,) if self.missing else ()

    def _look(self) -> None:
        try:
            self._driver.execute_async(_TABLES, (self._keyspace,)).add_callbacks(self._seen, self._unseen)
        except Exception as error:  # noqa: BLE001 - as an answer that does not come
            self._unseen(error)

    def _seen(self, rows: Sequence[tuple[Any, ...]] | None) -> None:
        missing = _missing(rows or ())
        if missing != self.missing:
            log.error("keyspace %s lacks %s", self._keyspace, missing or "nothing any more")
        self.missing = missing
        if missing:
            self._look_later()
        else:
            self._looks = False

    def _unseen(self, error: BaseException) -> None:
        log.debug("the tables of keyspace %s are not known: %s", self._keyspace, error)
        self._look_later()

    def _look_later(self) -> None:
        if not self._driver.is_shutdown:
            self._driver.cluster.loop.later(_PAUSE_SECONDS, self._look)


def _missing(rows: Sequence[tuple[Any, ...]]) -> str:
    """What a keyspace lacks that has these tables."""
    there = {name for (name,) in rows}
    return ", ".join(sorted(_WANTED - there)) if there else "all of it"
