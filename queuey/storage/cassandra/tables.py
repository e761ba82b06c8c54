"""Whether a keyspace has its tables, each with its columns."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from cassandra.cluster import Session

from queuey.errors import ConfigurationError
from queuey.locks import new_lock
from queuey.storage.cassandra.cluster import asked
from queuey.storage.statements import load_statements

__all__ = ["CQL", "Lacking", "Tables", "check_columns", "lacking_of"]

log = logging.getLogger(__name__)

CQL = load_statements("queuey.storage.cassandra", "schema.cql", "statements.cql")
_COLUMN = re.compile(r"^ +(?P<name>\w+) +(?P<type>.+?)(?P<static> static)?,$", re.MULTILINE)
_COLUMNS = "select table_name, column_name, type, kind from system_schema.columns where keyspace_name = %s"
_PAUSE_SECONDS = 1.0


def _columns_of(text: str) -> dict[str, str]:
    r"""The columns that a statement makes, each with its type.

    >>> _columns_of("create table (\n    a  map<text, blob>,\n    b  int static,\n    primary key (a)\n)")
    {'a': 'map<text, blob>', 'b': 'int static'}
    """
    return {one["name"]: f"{one['type']}{one['static'] or ''}" for one in _COLUMN.finditer(text)}


_WANTED = {name.removeprefix("table_"): _columns_of(text) for name, text in CQL.items() if name.startswith("table_")}


class Lacking(NamedTuple):
    """What a keyspace lacks: tables, and columns of tables that are there."""

    tables: Sequence[str] = ()
    columns: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.tables or self.columns)

    def __str__(self) -> str:
        return ", ".join([*self.tables, *self.columns])

    @property
    def mended_at_start(self) -> str:
        """What an operator does about it before a server has ever started."""
        if not self.columns:
            return "run 'queuey init' once, as a role that may make keyspaces"
        return "its tables are not Queuey's, or were changed: name another keyspace, or restore this one from a backup"

    @property
    def mended(self) -> str:
        """What an operator does about it while servers run."""
        return "restore it from a backup" + ("" if self.columns else ", or run 'queuey init' to begin anew")


class Tables:
    """The tables of one keyspace. It looks at the start, and again while they are in doubt. Thread-safe."""

    def __init__(self, driver: Session, keyspace: str) -> None:
        """:raises ConfigurationError: the keyspace, some of its tables, or columns of them are missing."""
        self._driver, self._keyspace = driver, keyspace
        self._lock = new_lock()
        self._looks = False
        self.missing = lacking_of(asked(driver, _COLUMNS, (keyspace,)))
        """What is not there, as far as is known."""
        if self.missing:
            raise _refusal(keyspace, self.missing)

    def doubt(self) -> None:
        """A node says that it lacks one: look until all are there. It waits for nothing."""
        with self._lock:
            if self._looks:
                return
            self._looks = True
        self._look()

    def problems(self) -> Sequence[str]:
        """See :meth:`queuey.storage.MessageStore.problems`."""
        missing = self.missing
        return (f"[cassandra] keyspace = {self._keyspace} lacks {missing}: {missing.mended}",) if missing else ()

    def _look(self) -> None:
        try:
            self._driver.execute_async(_COLUMNS, (self._keyspace,)).add_callbacks(self._seen, self._unseen)
        except Exception as error:  # noqa: BLE001 - as an answer that does not come
            self._unseen(error)

    def _seen(self, rows: Sequence[tuple[Any, ...]] | None) -> None:
        missing = lacking_of(rows or ())
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


def check_columns(session: Session, keyspace: str) -> None:
    """Check the tables that are there: what is made if it is missing may be another program's.

    :raises ConfigurationError: one lacks columns.
    """
    lacking = lacking_of(asked(session, _COLUMNS, (keyspace,)))
    if lacking.columns:
        raise _refusal(keyspace, lacking)


def _refusal(keyspace: str, lacking: Lacking) -> ConfigurationError:
    return ConfigurationError(f"[cassandra] keyspace = {keyspace} lacks {lacking}: {lacking.mended_at_start}")


def lacking_of(rows: Sequence[tuple[Any, ...]]) -> Lacking:
    """What a keyspace lacks that has these columns.

    Columns beyond them do no harm: a later version may have added some.
    """
    there: dict[str, dict[str, str]] = {}
    for table, column, type_, kind in rows:
        there.setdefault(table, {})[column] = f"{type_} static" if kind == "static" else type_
    if not there:
        return Lacking(["all of it"])
    return Lacking(
        sorted(_WANTED.keys() - there.keys()),
        [
            f"{table}.{name} ({type_})"
            for table, columns in sorted(_WANTED.items())
            for name, type_ in columns.items()
            if table in there and there[table].get(name) != type_
        ],
    )
