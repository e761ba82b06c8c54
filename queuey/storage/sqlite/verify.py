"""``queuey verify``: searches a store for damage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from queuey.errors import ConfigurationError
from queuey.storage.checksums import all_match, checksum_of_change
from queuey.storage.sqlite.connections import refuse_other_format
from queuey.storage.sqlite.mark import refuse_foreign_log
from queuey.storage.sqlite.packs import Piece, read_head, read_whole
from queuey.storage.sqlite.scrub import ROWS, Scrub, own_check, queue_at
from queuey.storage.sqlite.statements import SQL

__all__ = ["Damage", "check_is_there", "connected", "verify"]

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
        if self._pages_are_sound():
            self.tables = ()  # that included them
        yield
        yield from super().steps()
        yield from self._each("verify_rows", ROWS, self._look_at_row)
        yield from self._each("verify_packs", _PACKS, self._look_at_pack)
        yield from self._lease_changes()
        self._look_at_small_tables()

    def _pages_are_sound(self) -> bool:
        try:
            told = own_check(self.connection, "integrity_check")
        except self.unreadable as error:
            told = [str(error)]
        if told != ["ok"]:
            self.finds(b"", f"damage of pages, such as: {' '.join(told[0].split())}")
        return told == ["ok"]

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
            before, after = after, found[-1][0]
            if after <= before:
                self.finds(b"", "rows out of order")
                return
            yield

    def _lease_changes(self) -> Iterator[None]:
        after: tuple[Any, ...] = (_FIRST, _FIRST, _FIRST)
        try:
            groups: Any = self.connection.execute(SQL["verify_groups"])
            queues = dict(groups)
            while found := self._rows("verify_lease_changes", *after, ROWS):
                for token, partition, number, checksum, change in found:
                    if checksum != checksum_of_change(token, number, change):
                        place = queues.get(token, b"") + bytes((partition & 0xFF,))
                        self.finds(place, "changes of lease groups that do not match their checksum")
                before, after = after, found[-1][:3]
                if after <= before:  # a number that is text lies behind all numbers: the walk would begin anew
                    self.finds(b"", "changes of lease groups out of order")
                    return
                yield
        except self.unreadable as error:
            self.finds(b"", f"lease groups that cannot be read ({error})")

    def _rows(self, name: str, *given: Any) -> list[Any]:
        return self.connection.execute(SQL[name], given).fetchall()

    def _look_at_small_tables(self) -> None:
        try:
            for what, count in self._rows("verify_sense"):
                for _ in range(count):
                    self.finds(b"", what)
            ((missing, too_many),) = self._rows("verify_named")
            if missing or too_many:
                self.finds(
                    b"", f"index of principals without {missing} of its entries, and with {too_many} that are none"
                )
            for (place,) in self._rows("verify_unknown"):
                self.finds(place, "partitions with messages of a queue that nobody knows")
        except self.unreadable as error:
            self.finds(b"", f"queues, lease groups or tasks that cannot be read ({error})")

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
        with closing(connected(path)) as connection:
            whole = _Whole(connection)
            _follow(whole, progress)
            if names is None or names.resolve() == path.resolve():  # another connection would end this one's locks
                return [_damage(connection, *found) for found in whole.found.most_common()]
            with closing(connected(names)) as known:
                return [_damage(known, *found) for found in whole.found.most_common()]
    except apsw.Error as error:
        raise ConfigurationError(f"{path} cannot be read as a store: {error}") from error


def check_is_there(path: Path) -> None:
    """Check that the store exists. Call this before the lock, which makes the file."""
    if not path.is_file():
        raise ConfigurationError(f"there is no store at {path}")


def connected(path: Path) -> apsw.Connection:
    """A connection to a store or a backup, for a command.

    :raises ConfigurationError: there is none, or it has another format, or the log of another file lies beside it.
    """
    check_is_there(path)
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
    rows = packs = 0
    with suppress(*whole.unreadable):  # else the steps say more about that
        ((rows, packs),) = whole.connection.execute(SQL["verify_size"])
    steps = 3 * (rows // ROWS) + packs // 10 + 15
    for done, _ in enumerate(whole.steps()):
        if progress is not None:
            progress(min(done, steps), steps)


def _damage(known: apsw.Connection, finding: Any, count: int) -> Damage:
    partition_key, what = finding
    if not partition_key:
        return Damage("", None, count, what)
    return Damage(queue_at(known, partition_key).removeprefix("queue "), partition_key[16], count, what)
