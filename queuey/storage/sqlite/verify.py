"""``queuey verify``: searches a store for damage, and rebuilds its indexes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from queuey.errors import ConfigurationError
from queuey.storage.checksums import all_match
from queuey.storage.sqlite.connections import refuse_other_format
from queuey.storage.sqlite.health import PRIVATE, FolderLock
from queuey.storage.sqlite.mark import refuse_foreign_log
from queuey.storage.sqlite.packs import Piece, read_head, read_whole
from queuey.storage.sqlite.scrub import ROWS, Scrub, own_check, queue_at
from queuey.storage.sqlite.statements import SQL

__all__ = ["Damage", "repair", "verify"]

Progress = Callable[[int, int], None]
_PACKS = 16
_FIRST = -(2**63)


class Damage(NamedTuple):
    """What is wrong with a store."""

    queue: str
    """``application/name``, or the queue's id if its name is not known; empty if the damage is not in one partition."""
    partition: int | None
    found: int
    what: str


class _Whole(Scrub):
    """Also checks pages and bodies."""

    unreadable = (*Scrub.unreadable, apsw.IOError)

    def steps(self) -> Iterator[None]:
        self._check_pages()
        yield
        yield from super().steps()
        yield from self._each("verify_rows", ROWS, self._look_at_row)
        yield from self._each("verify_packs", _PACKS, self._look_at_pack)

    def _check_pages(self) -> None:
        try:
            told = own_check(self.connection, "integrity_check")
        except self.unreadable as error:
            told = [str(error)]
        if told != ["ok"]:
            self.finds(b"", f"damage of pages, such as: {' '.join(told[0].split())}")

    def _each(self, name: str, rows: int, look: Callable[..., None]) -> Iterator[None]:
        after: Any = _FIRST
        while True:
            try:
                found = self.connection.execute(SQL[name], (after, rows)).fetchall()
            except self.unreadable as error:
                self.finds(b"", f"pages that cannot be read ({error})")
                return
            for row in found:
                look(*row[1:])
            if len(found) < rows:
                return
            after = found[-1][0]
            yield

    def _look_at_row(self, partition_key: Any, *row: Any) -> None:
        ticks, tail, kind, key, headers, body, checksum = row
        if not all_match((checksum,), (ticks,), (tail,), ((kind,), (key,), (headers,)), (body,)):
            self.finds(partition_key, "messages that do not match their checksum")

    def _look_at_pack(self, partition_key: Any, *row: Any) -> None:
        head_data, head_crc, rest_data, rest_crc = row
        head, rest = read_head(Piece(head_data, head_crc)), Piece(rest_data, rest_crc)
        if head is None:
            self.finds(partition_key, "packs whose list of messages is damaged")
        elif not rest.is_sound:
            try:
                sound = read_whole(head, rest)[1]
            except ValueError:
                self.finds(partition_key, "packs whose messages cannot be told from each other")
                return
            for _ in range(sound.count(False)):
                self.finds(partition_key, "messages that do not match their checksum")


def verify(path: Path, names: Path | None = None, progress: Progress | None = None) -> Sequence[Damage]:
    """Compare everything in a store with everything else.

    A server may use the store meanwhile.

    :param path: a store or a backup.
    :param names: the file with the queues, if it is another one.
    :param progress: called with (steps done, steps in all), approximately.
    :returns: the damage; empty for a sound store.
    :raises ConfigurationError: there is no store, or it has another format.
    """
    try:
        with closing(_connected(path)) as connection:
            whole = _Whole(connection)
            _follow(whole, progress)
            if names is None or names.resolve() == path.resolve():  # another connection would end this one's locks
                return [_damage(connection, *found) for found in whole.found.most_common()]
            with closing(_connected(names)) as known:
                return [_damage(known, *found) for found in whole.found.most_common()]
    except apsw.Error as error:
        raise ConfigurationError(f"{path} cannot be read as a store: {error}") from error


def _check_is_there(path: Path) -> None:
    """Check that the store exists. Call this before the lock, which makes the file."""
    if not path.is_file():
        raise ConfigurationError(f"there is no store at {path}")


def _connected(path: Path) -> apsw.Connection:
    _check_is_there(path)
    refuse_foreign_log(path.resolve())
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_busy_timeout(5000)
        if not connection.execute("select 1 from sqlite_schema where name = 'packs_in_order'").fetchall():
            raise ConfigurationError(
                f"{path} is no store of Queuey, or its list of tables is damaged: restore a backup"
            )
        refuse_other_format(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _follow(whole: _Whole, progress: Progress | None) -> None:
    sizes: list[Any] = whole.connection.execute(SQL["verify_size"]).fetchall()
    ((rows, packs),) = sizes
    steps = 3 * (rows // ROWS) + packs // 10 + 15
    for done, _ in enumerate(whole.steps()):
        if progress is not None:
            progress(min(done, steps), steps)


def _damage(known: apsw.Connection, finding: Any, count: int) -> Damage:
    partition_key, what = finding
    if not partition_key:
        return Damage("", None, count, what)
    return Damage(queue_at(known, partition_key).removeprefix("queue "), partition_key[16], count, what)


def repair(path: Path) -> Path:
    """Rebuild the indexes of a store from its tables.

    :returns: where a copy of the former store lies.
    :raises StoreInUse: a server uses it.
    :raises ConfigurationError: it cannot be repaired; the store is unchanged.
    """
    path = path.resolve()
    _check_is_there(path)
    lock = FolderLock(path)
    try:
        with closing(_connected(path)) as connection:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        kept = _kept(path)  # before any connection is open, which would lose its locks
        with closing(_connected(path)) as connection:
            connection.execute("begin immediate")
            for table in ("messages", "packs", "idempotency"):
                connection.execute(f"reindex {table}")
            connection.execute(SQL["cached_runs_delete_all"])
            connection.execute("commit")
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except (apsw.FullError, OSError) as error:
        raise ConfigurationError(f"{path} was not repaired, and is as it was: {error}") from error
    except apsw.Error as error:
        raise ConfigurationError(f"{path} cannot be repaired ({error}): restore the last backup") from error
    finally:
        lock.close()
    return kept


def _kept(path: Path) -> Path:
    """A copy beside the file, under a free name."""
    number, kept = 1, path.with_name(f"{path.name}.before-repair")
    while kept.exists():
        number += 1
        kept = path.with_name(f"{path.name}.before-repair-{number}")
    kept.touch(PRIVATE)
    try:
        shutil.copyfile(path, kept)
        descriptor = os.open(kept, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:  # a full disk, or a signal: half a copy is in the way
        kept.unlink()
        raise
    return kept
