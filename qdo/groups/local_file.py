"""The file that the groups of one machine share. Each change is one transaction: it happens whole, or not at all when its
process dies (SQLite, FULL).
"""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from queuey.clock import Clock
from queuey.errors import ConfigurationError, CoordinatorUnavailable, SessionLost
from queuey.file_system import network_file_system_of

__all__ = ["GroupFile"]

BUSY_MS = 5000
_SCHEMA = Path(__file__).with_name("local.sql")


class GroupFile:
    """One connection to the file, for one group."""

    def __init__(self, group: str, folder: Path, clock: Clock) -> None:
        """:raises ConfigurationError: the folder or the file cannot be used."""
        self._group = group
        self._clock = clock
        self.lock = threading.RLock()
        self.name: str | None = None
        """Of the member that has joined with this connection; None if it is no member."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if (kind := network_file_system_of(folder)) is not None:
                raise ConfigurationError(
                    f"{folder} is on a network file system ({kind}), whose locks do not keep two workers from one "
                    "partition: choose a local folder with --state or QDO_STATE, or let workers meet in ZooKeeper"
                )
            self._connection = _opened(folder)
        except (OSError, apsw.Error, CoordinatorUnavailable) as error:
            raise ConfigurationError(f"the groups of this machine cannot be kept in {folder}: {error}") from error

    def close(self) -> None:
        self._connection.close()

    def ask(self, sql: str, *bindings: Any) -> list[Any]:
        return self._connection.execute(sql, bindings).fetchall()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """:raises CoordinatorUnavailable: in place of whatever SQLite raises."""
        with self.lock:
            try:
                yield
            except apsw.Error as error:
                raise CoordinatorUnavailable(f"the groups' file cannot be read: {error}") from error

    @contextmanager
    def changing(self, *, told: bool = True) -> Iterator[None]:
        """One transaction. It begins by burying the dead.

        :param told: other members hear that something has changed.
        :raises CoordinatorUnavailable: in place of whatever SQLite raises.
        """
        with self.lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    if self.bury(self.dead()) or told:
                        self.ask(
                            "INSERT INTO groups (name) VALUES (?) ON CONFLICT DO UPDATE SET changes = changes + 1",
                            self._group,
                        )
                    yield
                    self._connection.execute("COMMIT")
                except BaseException:
                    self._connection.execute("ROLLBACK")
                    raise
            except apsw.Error as error:
                raise CoordinatorUnavailable(f"the groups' file cannot be changed: {error}") from error

    def must_live(self) -> None:
        """:raises SessionLost: the member is dead to the others."""
        if self.name is None or not self.ask("SELECT 1 FROM members WHERE name = ?", self.name):
            self.name = None
            raise SessionLost(f"the members of group {self._group} hold this one for dead")

    def dead(self) -> list[str]:
        """Names of members that were silent for longer than their session timeout, or before the machine booted."""
        rows = self.ask(
            "SELECT name FROM members WHERE grp = ? AND (boot != ? OR heard + timeout <= ?)",
            *(self._group, self._clock.boot(), self._clock.elapsed()),
        )
        return [name for (name,) in rows]

    def bury(self, names: Collection[str]) -> bool:
        """Remove members and free their claims; part of a change.

        :returns: whether there were any.
        """
        for name in names:
            self.ask("UPDATE claims SET member = NULL WHERE grp = ? AND member = ?", self._group, name)
            self.ask("DELETE FROM members WHERE name = ?", name)
        return bool(names)


def _opened(folder: Path) -> apsw.Connection:
    """The shared file, made if it does not exist.

    One process after the other opens it. SQLite turns some of several processes away that make a file at one moment,
    however long they would wait.
    """
    with (folder / "groups.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        connection = apsw.Connection(str(folder / "groups.db"))
        connection.set_busy_timeout(BUSY_MS)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(_SCHEMA.read_text())
    return connection
