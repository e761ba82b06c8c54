"""The file of an embedded store: connections, writer, health and upkeep.

WAL with ``synchronous=FULL``: acknowledged means on disk. One committer writes in groups
(:mod:`queuey.storage.sqlite.committer`). Readers do not wait for it. Two more threads do what need not happen at once (:mod:`queuey.storage.sqlite.upkeep`, :mod:`queuey.storage.sqlite.search`). Messages,
offsets and metadata are parts that get the file as an argument.

The layout and its measurements are in docs/decisions/004.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import apsw

from queuey.clock import Clock
from queuey.errors import ConfigurationError, QueueyError, StorageUnavailable
from queuey.future import Future, Inbox
from queuey.ids import IdGenerator
from queuey.storage.checksums import NONSENSE
from queuey.storage.leasing.book import LeaseBook
from queuey.storage.observing import Observer, Unobserved
from queuey.storage.sqlite.checkpoints import Checkpoints
from queuey.storage.sqlite.committer import Committer
from queuey.storage.sqlite.connections import Connections
from queuey.storage.sqlite.counters import Counters
from queuey.storage.sqlite.group_writer import CommittedMemory, GroupWriter
from queuey.storage.sqlite.health import DiskHealth, FolderLock, make_private, refuse_half_restored
from queuey.storage.sqlite.loop_turns import CommitTimes, processor_waits
from queuey.storage.sqlite.mark import FileMark, give_mark, refuse_foreign_log
from queuey.storage.sqlite.moments import Moments
from queuey.storage.sqlite.options import SqliteOptions
from queuey.storage.sqlite.purging import Purger
from queuey.storage.sqlite.readers import Readers
from queuey.storage.sqlite.scrub import DAMAGE
from queuey.storage.sqlite.search import DamageSearch
from queuey.storage.sqlite.statements import SQL
from queuey.storage.sqlite.transaction import Row, Transaction
from queuey.storage.sqlite.upkeep import Upkeep

__all__ = ["File"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_FORKED = (
    "this process was forked from one that has the store open, and cannot use it; nothing was stored: start one server process "
    "that opens the store itself, such as gunicorn with one worker and without --preload"
)
_OPEN: weakref.WeakSet[File] = weakref.WeakSet()


def _forsake_all() -> None:
    for file in [*_OPEN]:
        file.forsake()


os.register_at_fork(after_in_child=_forsake_all)


class _OfAPart(Protocol):
    """Something that a part of the store runs, which ends with the file."""

    def close(self) -> None: ...

    def forsake(self, why: str) -> None:
        """Give up, in the child of a fork."""


class File:
    """One file, opened.

    :raises StoreInUse: another server process serves this file.
    :raises ConfigurationError: the file cannot be opened, is no store, or lies on a network file system.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock,
        ids: IdGenerator,
        options: SqliteOptions,
        *,
        serve: bool = True,
        observer: Observer | None = None,
    ) -> None:
        """:param serve: False opens the file beside a running server, for commands such as those on keys.

        It takes no lock, and runs no upkeep.
        """
        self.path = path = path.resolve()
        self.clock = clock
        self.ids = ids
        self.options = options
        self.observer = observer or Unobserved()
        self._closed = False
        self._running: list[_OfAPart] = []
        self._lock = FolderLock(path) if serve else None
        read_only = self._lock is not None and self._lock.read_only
        self.connections = Connections(path, options, read_only=read_only)
        self.serves = serve and not read_only
        """Whether this process writes to the file and maintains it."""
        mark: FileMark | None = None
        try:
            refuse_foreign_log(path)
            refuse_half_restored(path)
            make_private(path)
            self.writer = self.connections.writer()
            dropped: list[Row] = self.writer.execute(SQL["dropped_all"]).fetchall()
            self._moments = Moments(self.writer, clock, ids)
            self._moments.raise_floor()
            if self._lock is not None and self.serves:
                mark = give_mark(self.writer, self._lock)
                self._moments.begin()
            self.lease_clock = self._moments.lease_clock(keep=self.serves)
        except ConfigurationError:
            self._release()
            raise
        except apsw.Error as error:
            self._release()
            raise ConfigurationError(f"cannot open the store {path}: {error}{_hint(error)}") from error
        self.health = DiskHealth(path, reserve_bytes=options.reserve_mb << 20, read_only=read_only)
        self.unsound: set[bytes] = set()
        """Keys of partitions in which an index hides messages."""
        self.dropped: set[bytes] = {queue for (queue,) in dropped}
        """Dropped incarnations that are remembered."""
        self.readers = Readers(self.connections.reader)
        with self.readers.lend() as reader:
            reader.ask(SQL["dropped_all"], (), list)  # so reads go on if the file is removed (G18)
        self.counters = Counters()
        self.lease_book = LeaseBook(in_portions=True, observer=self.observer.leases)
        limit_seconds, switched = options.loop_commit_ms / 1000, self.observer.commits_switched
        times = CommitTimes(limit_seconds, clock.elapsed, switched, processor_waits)
        memory = CommittedMemory(self.counters, self.lease_book)
        self.committer = Committer(GroupWriter(self.writer, ids, self.health, self.observer, memory, times))
        clocks = (clock, self.lease_clock)
        self.purger = Purger(clocks, self.committer, self.readers, self.dropped, self.counters)
        self.upkeep: Upkeep | None = None
        if mark is not None:
            self._begin_upkeep(mark)
        _OPEN.add(self)

    def _begin_upkeep(self, mark: FileMark) -> None:
        self.checkpoints = Checkpoints(self.writer, self.connections.beside(), self.committer, self.health, mark)
        self.search = DamageSearch(self.connections.beside, self.health, self.unsound, self.options.scrub_percent)
        duties = (
            lambda: self._moments.probe(self.committer, self.health),
            self.checkpoints.run,
            lambda: self._moments.note(self.committer),
        )
        self.upkeep = Upkeep(duties, self.health.report_damage)
        self.upkeep.add(self.purger.run)
        self.checkpoints.begin(self.options.wal_mb << 20, self.upkeep.wake)
        self.upkeep.start()
        self.search.start()

    def use_loop(self, inbox: Inbox | None) -> None:
        """See :meth:`queuey.storage.MessageStore.use_loop`."""
        if inbox is None:
            self.committer.turns.end()
        elif self.serves:
            self.committer.turns.begin(inbox)

    def add_running(self, part: _OfAPart) -> None:
        """Close this part with the file."""
        self._running.append(part)

    def close(self) -> None:
        """Commit what was accepted, then release files and threads. May be repeated."""
        if self._closed:
            return
        self._closed = True
        if self.upkeep is not None:
            self.checkpoints.stop()
            self.search.stop()
            self.upkeep.stop()
            self.checkpoints.close()
        self.committer.close(None if self.upkeep is None else self._moments.end)
        for part in self._running:
            part.close()
        self.readers.close()
        self.writer.close()
        self._release()

    def forsake(self) -> None:
        """Refuse everything, in the child of a fork, without using SQLite.

        The threads do not exist there, and no call into SQLite is allowed, not even to close a connection. The lock of
        the folder stays the parent's alone.
        """
        self._closed = True
        self.health.refuse(StorageUnavailable(_FORKED))
        self.committer.forsake(_FORKED)
        for part in self._running:
            part.forsake(_FORKED)
        self.readers.forsake(_FORKED)
        self.connections.forsake()
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()

    def problems(self) -> Sequence[str]:
        """What makes the store unable to work."""
        return self.health.problems()

    def query(self, sql: str, bindings: tuple[Any, ...], shape: Callable[[list[Row]], T]) -> Future[T]:
        """What ``shape`` makes of a statement's rows."""
        try:
            with self.readers.lend() as reader:
                return Future.of(shape(reader.ask(sql, bindings, list)))
        except (QueueyError, apsw.Error, *NONSENSE) as error:
            return Future.failed(self.read_failed(error))

    def change(self, sql: str, bindings: tuple[Any, ...] = ()) -> Future[None]:
        """Run one statement that needs no more space."""

        def job(transaction: Transaction) -> None:
            transaction.execute(sql, bindings)

        return self.committer.submit(job, grows=False)

    def refusal_of(self, partition_key: bytes) -> QueueyError:
        """The error of a read of an unsound partition."""
        number, queue = partition_key[-1], partition_key[:-1].hex()
        return self.read_failed(
            StorageUnavailable(
                f"an index of the store is damaged and hides messages of partition {number} of queue {queue}: stop the server "
                "and run 'queuey verify --repair'"
            )
        )

    def read_failed(self, error: Exception) -> QueueyError:
        """The caller's error for a failed read. Damage that it met stops all writing."""
        if isinstance(error, QueueyError):
            self.observer.failed("read", error.code)
            return error
        if isinstance(error, DAMAGE):
            self.health.found_damage(str(error))
        elif isinstance(error, NONSENSE):
            log.error("the store holds what makes no sense", exc_info=error)
        elif not isinstance(error, apsw.Error):
            log.error("the store could not be read", exc_info=error)
        self.observer.failed("read", StorageUnavailable.__name__)
        return StorageUnavailable(f"the store could not be read: {str(error) or type(error).__name__}")


def _hint(error: apsw.Error) -> str:
    """What to look at, where the error does not say it."""
    needs_room = isinstance(error, apsw.CantOpenError | apsw.FullError)
    return ". Its disk may have no room, or no inodes: look with 'df' and 'df -i'" if needs_room else ""
