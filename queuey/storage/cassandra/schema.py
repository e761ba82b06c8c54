"""Makes and checks the tables of a keyspace."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from cassandra import ConsistencyLevel, InvalidRequest, OperationTimedOut, Unauthorized
from cassandra.cluster import NoHostAvailable, Session

from queuey.errors import ConfigurationError
from queuey.storage.cassandra.cluster import Options, agree, asked, connect, none_reached, prepared, repeated
from queuey.storage.cassandra.tables import CQL, check_columns

VERSION = 1
"""Version of the tables. A server refuses a keyspace of another version; ``queuey init`` upgrades it."""
_PART = "tables"
_SCHEMA_SECONDS = 60.0
_REPLICATION = re.compile(r"[1-9][0-9]*|[\w.-]+:[1-9][0-9]*(,\s*[\w.-]+:[1-9][0-9]*)*")
GC_GRACE_SECONDS = 864_000
"""Cassandra's own default. A node that was away for longer must be repaired or replaced before it returns."""
LISTED_SECONDS = 3600
"""How long the lists of names keep what is removed from them, at least. A read of a list steps over that, and a node refuses
to step over 100,000. A row that comes back with a node costs its readers a look and does no harm."""


def replication_of(text: str) -> dict[str, str]:
    """``3``, or ``centre:3,other:2``, as Cassandra's replication.

    :raises ConfigurationError: neither of these.

    >>> replication_of("eu:3, us:2")
    {'class': 'NetworkTopologyStrategy', 'eu': '3', 'us': '2'}
    """
    if not _REPLICATION.fullmatch(text):
        raise ConfigurationError(
            f"replication {text!r}: expected a number of copies, or one for each data centre as in 'eu:3,us:2'"
        )
    if text.isdigit():
        return {"class": "NetworkTopologyStrategy", "replication_factor": text}
    centres = (part.strip().rpartition(":") for part in text.split(","))
    return {"class": "NetworkTopologyStrategy"} | {name: copies for name, _, copies in centres}


def make_tables(
    options: Options,
    replication: str,
    *,
    gc_grace_seconds: int = GC_GRACE_SECONDS,
    say: Callable[[str, int, int], None] = lambda what, done, of: None,
) -> None:
    """Make the keyspace and the tables that are missing. May be repeated.

    :param replication: see :func:`replication_of`; an existing keyspace's replication is left alone.
    :param say: called with each step.
    :raises ConfigurationError: the credentials are refused, or this role lacks the permission; or a table is
        there that has other columns.
    :raises StorageUnavailable: no node answers.
    """
    names: dict[str, Any] = {
        "keyspace": options.keyspace,
        "replication": str(replication_of(replication)),
        "gc_grace_seconds": gc_grace_seconds,
        "listed": _listed(LISTED_SECONDS),
    }
    steps = [name for name in CQL if name == "keyspace" or name.startswith("table_")]
    cluster = connect(options)
    try:
        session = cluster.connect()
        for number, name in enumerate(steps, 1):
            make = partial(_make, session, CQL[name] % names)
            repeated(session, make, "nodes do not know the new tables yet, or do not answer, try again")
            say(name, number, len(steps))
        agree(session)  # of a table that another 'queuey init' makes just now, the driver waits for no node
        check_columns(session, options.keyspace)
        check_tables(session, options.keyspace, keep=True)
    except NoHostAvailable as error:
        raise none_reached(options, error) from error
    except (Unauthorized, InvalidRequest) as error:
        raise ConfigurationError(
            f"[cassandra] {options.username or 'this role'} cannot make the keyspace {options.keyspace}: {error}"
        ) from error
    finally:
        cluster.shutdown()


def _make(session: Session, statement: str) -> None:
    try:
        session.execute(statement, timeout=_SCHEMA_SECONDS)
    except OperationTimedOut:
        agree(session)  # the node may still be at it, and another one would make the table under another id
        raise


def _listed(seconds: int) -> str:
    """Options of tables whose rows are added and removed: tombstones go soon after this time.

    A node drops one only where it merges all that it has of a partition, what is in its memory included.
    """
    return (
        f"gc_grace_seconds = {seconds} and memtable_flush_period_in_ms = {1000 * seconds} "
        "and compaction = {'class': 'LeveledCompactionStrategy', "
        f"'tombstone_compaction_interval': '{seconds}', 'unchecked_tombstone_compaction': 'true'}}"
    )


def check_tables(session: Session, keyspace: str, *, keep: bool = False) -> None:
    """Check that the tables have this version's form.

    :param keep: note the form if none is noted.
    :raises ConfigurationError: they have another form, or none.
    :raises StorageUnavailable: too few nodes answer.
    """
    query = CQL["version_find"] % {"keyspace": keyspace}
    statement = prepared(session, query)
    statement.consistency_level = ConsistencyLevel.QUORUM
    rows = asked(session, statement, (_PART,))
    if rows and rows[0][0] != VERSION:
        raise ConfigurationError(
            f"the tables of keyspace {keyspace} have form {rows[0][0]}, this version needs {VERSION}: "
            "run the version of Queuey that made them, or 'queuey init' of the newest"
        )
    if not rows and keep:
        statement = prepared(session, CQL["version_keep"] % {"keyspace": keyspace})
        statement.consistency_level = ConsistencyLevel.QUORUM
        asked(session, statement, (_PART, VERSION))
    elif not rows:
        raise ConfigurationError(f"the tables of keyspace {keyspace} are not complete: run 'queuey init'")
