"""``queuey verify --repair``: a store with the same rows, and indexes that are built anew from them.

An index whose pages make no sense can be neither rebuilt nor dropped in place, since SQLite walks through them to free them.
So the tables are copied to a new file, in which the indexes are made.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from queuey.errors import ConfigurationError
from queuey.storage.sqlite.checked_rows import CHECKED_TABLES
from queuey.storage.sqlite.health import PRIVATE, FolderLock, beside
from queuey.storage.sqlite.mark import is_of_a_store, new_mark
from queuey.storage.sqlite.statements import SQL
from queuey.storage.sqlite.verify import check_is_there, connected
from queuey.whole_files import sync

__all__ = ["Repaired", "repair"]


class Repaired(NamedTuple):
    """What a repair did."""

    kept: Path
    """Where a copy of the former store lies."""
    mended: Sequence[str]
    """Rows of small tables that did not match their checksums: each in words."""


_MADE_ANEW = ("cached_runs", "named", "removed", "dropped")
"""Tables that are not copied as they are: of copies of what is here, of the principals of queues, and of queues that were removed,
without what makes no sense."""


def repair(path: Path) -> Repaired:
    """Rebuild the indexes of a store from its tables, and mend rows of small tables that do not match their checksums.

    It takes the room of the store twice.

    :raises StoreInUse: a server uses it.
    :raises ConfigurationError: it cannot be repaired; the store is unchanged.
    """
    path = path.resolve()
    check_is_there(path)
    is_backup = not is_of_a_store(path)
    lock = FolderLock(path)
    try:
        with closing(connected(path)) as connection:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            before = _version(connection)
            with _rebuilt(path) as (rebuilt, mended):
                kept = _kept(path)
                if _version(connection) != before:  # such as "queuey key new", which needs no server
                    kept.unlink()
                    raise ConfigurationError(
                        f"another command has written to {path} meanwhile, so it stays as it is: repeat this"
                    )
                connection.close()  # else its log would stay beside the new file
                rebuilt.replace(path)
                sync(path.parent)
    except (apsw.FullError, OSError) as error:
        why = "the disk is full" if isinstance(error, apsw.FullError) else error
        raise ConfigurationError(f"{path} was not repaired, and is as it was: {why}") from error
    except (apsw.Error, ValueError) as error:
        raise ConfigurationError(f"{path} cannot be repaired ({error}): restore the last backup") from error
    finally:
        if is_backup:
            lock.path.unlink(missing_ok=True)  # beside a backup it would make a store of it
        lock.close()
    return Repaired(kept, mended)


def _version(connection: apsw.Connection) -> Any:
    """A number that changes with each commit of others."""
    return connection.execute("pragma data_version").fetchall()


@contextmanager
def _rebuilt(path: Path) -> Iterator[tuple[Path, Sequence[str]]]:
    """A file beside the store with all that its tables hold, and what was mended in it. It is removed, unless the block renames it."""
    rebuilt = path.with_name(f"{path.name}.repairing")
    rebuilt.unlink(missing_ok=True)
    rebuilt.touch(PRIVATE)
    try:
        with closing(apsw.Connection(str(rebuilt))) as connection:
            _copy_tables(connection, path)
            mended = [*_mend_rows(connection)]
        sync(rebuilt)
        yield rebuilt, mended
    finally:
        for one in (rebuilt, *beside(rebuilt), rebuilt.with_name(f"{rebuilt.name}-journal")):
            one.unlink(missing_ok=True)


def _copy_tables(connection: apsw.Connection, path: Path) -> None:
    """Copy all rows as they are: SQLite copies a whole table to an empty one of the same form without a look at its values."""
    connection.execute("attach ? as former", (str(path),))
    for name in ("page_size", "user_version"):
        ((value,),) = connection.execute(f"pragma former.{name}").fetchall()
        connection.execute(f"pragma {name} = {value}")
    connection.execute("pragma synchronous = off")
    connection.execute("begin")
    for name, made in _tables():
        connection.execute(made)
        if name not in _MADE_ANEW:
            connection.execute(f"insert into main.{name} select * from former.{name}")  # noqa: S608 - of the schema
    connection.execute(SQL["schema"])
    for name in ("named", "removed", "dropped"):
        connection.execute(SQL[f"rebuild_{name}"])
    connection.execute("commit")
    connection.execute("detach former")
    connection.execute(f"pragma application_id = {new_mark()}")


def _mend_rows(connection: apsw.Connection) -> Iterator[str]:
    """Mend rows that do not match their checksums: each in words."""
    connection.execute("begin")
    for table in CHECKED_TABLES:
        for page in table.pages(connection):
            for row in page:
                if not row.is_sound:
                    table.mend(connection, row)
                    done = "is taken as it stands: look at what it says" if table.is_kept else "is left out"
                    yield f"{table.described(row)} did not match its checksum, and {done}"
    connection.execute("commit")


def _tables() -> list[tuple[str, str]]:
    """The tables of a store by name, each with the statement that makes it."""
    with closing(apsw.Connection(":memory:")) as empty:
        empty.execute(SQL["schema"])
        return [*empty.execute("select name, sql from sqlite_schema where type = 'table'")]


def _kept(path: Path) -> Path:
    """A copy beside the file, under a free name."""
    number, kept = 1, path.with_name(f"{path.name}.before-repair")
    while kept.exists():
        number += 1
        kept = path.with_name(f"{path.name}.before-repair-{number}")
    kept.touch(PRIVATE)
    try:
        shutil.copyfile(path, kept)
        sync(kept)
    except BaseException:  # a full disk, or a signal: half a copy is in the way
        kept.unlink()
        raise
    return kept
