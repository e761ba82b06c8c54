"""The file of an embedded store: opening and closing it, its one writer, its readers, and what its keeper asks for.

WAL with ``synchronous=FULL``: acknowledged means on disk. One committer writes in groups
(:mod:`queuey.storage.sqlite.committer`), a reader per thread reads without waiting for it, and a
keeper thread (:mod:`queuey.storage.sqlite.upkeep`) does what need not happen on the way.

The layout and its measurements are in docs/decisions/004.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from queuey.clock import Clock
from queuey.errors import ConfigurationError, QueueyError, StorageUnavailable
from queuey.future import Future
from queuey.ids import ANCHOR_SLACK_SECONDS, TICKS_PER_SECOND, Anchor, IdGenerator, MessageId
from queuey.model import Queue
from queuey.storage import Observer, Unobserved
from queuey.storage.checksums import NONSENSE
from queuey.storage.sqlite.committer import Committer, Row, Transaction
from queuey.storage.sqlite.health import DiskHealth, FolderLock, make_private
from queuey.storage.sqlite.mark import Mark, give_mark, refuse_foreign_log
from queuey.storage.sqlite.readers import LookupThread, Reader, Readers
from queuey.storage.sqlite.scrub import DAMAGE, Scrub, described
from queuey.storage.sqlite.statements import SQL
from queuey.storage.sqlite.upkeep import Upkeep

log = logging.getLogger(__name__)

_OTHER_BOOT_SECONDS = 5.0
"""How far a process may have run past its anchor if the machine went down with it; one boot's clocks do not tell the other."""
_SAME_BOOT_SECONDS = 3600.0
"""The longest that a process can have lived on without a new anchor."""
_CLOSED = "closed"
"""In place of the boot's name: the process closed the store, and was not past the moment noted."""
_BUSY_MS = 5000
"""How long a write waits for another process that writes, such as ``queuey key new``."""
_PATIENCE_MS = 50
"""How long the committer, and all who wait for it, wait for readers of an old snapshot, such as a backup, and in a probe."""
_FORMAT = 1
"""Of the file, in its ``user_version``."""
_PACK_ROWS = 100
"""Rows that are deleted in the time of one pack."""
_FORKED = (
    "this process was forked from one that has the store open, and cannot use it; nothing was stored: start one server process "
    "that opens the store itself, such as gunicorn with one worker and without --preload"
)
_TOLD = 5
"""Kinds of damage that readiness lists."""
_DROPPED_SECONDS = 600.0
"""How long a dropped incarnation is remembered to refuse appends that were under way; rows go by themselves."""


PAGE_BYTES = 8192
"""Of a file that is made now; another one keeps its own. Twice SQLite's own: packs are many pages long, each of which is two calls of the system in the log and
two in a checkpoint. Bulk writes are a twelfth faster, small ones as fast, over ten queues and over 100,000 (measured)."""


_OPEN: weakref.WeakSet[SqliteFile] = weakref.WeakSet()


def _forsake_all() -> None:
    for store in [*_OPEN]:
        store.forsake()


os.register_at_fork(after_in_child=_forsake_all)


class SqliteFile(ABC):
    """One file, opened.

    :raises StoreInUse: another server process serves this file.
    :raises ConfigurationError: the file cannot be opened, is no store, or lies on a network file system.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock,
        ids: IdGenerator,
        *,
        synchronous: str = "full",
        reserve_mb: int = 64,
        cache_mb: int = 4,
        wal_mb: int = 64,
        scrub_percent: int = 0,
        serve: bool = True,
        observer: Observer | None = None,
    ) -> None:
        """:param scrub_percent: share of one core's time for the search for damage.
        :param serve: False opens the file beside a running server, for keys and the like: no lock, no keeper.
        """
        self._observer = observer or Unobserved()
        path = path.resolve()
        self._path = path
        self._clock = clock
        self._ids = ids
        self._cache_kib = cache_mb * 1024
        self._wal_bytes = wal_mb << 20
        self._connections: weakref.WeakSet[apsw.Connection] = weakref.WeakSet()
        """All that were opened here, whichever object holds them."""
        self._readers = Readers(self._open_reader)
        self._lookups = LookupThread(self._find_all)
        self._loose: dict[bytes, MessageId] = {}
        """After which id of a partition messages lie that are worth a pack."""
        self._closed = False
        self._lock = FolderLock(path) if serve else None
        self._read_only = self._lock is not None and self._lock.read_only
        mark: Mark | None = None
        try:
            refuse_foreign_log(path)
            make_private(path)
            self._writer = self._open_writer(synchronous)
            dropped = self._writer.execute(SQL["dropped_all"]).fetchall()
            self._raise_floor()
            if self._lock is not None and not self._read_only:
                mark = give_mark(self._writer, self._lock)
                self._begin_moment()
        except ConfigurationError:
            self._release()
            raise
        except apsw.Error as error:
            self._release()
            raise ConfigurationError(f"cannot open the store {path}: {error}") from error
        self._guard = DiskHealth(path, reserve_bytes=reserve_mb << 20, read_only=self._read_only)
        self._unsound: set[bytes] = set()
        """Partitions of which an index hides messages."""
        self._dropped: dict[Any, float] = {queue: clock.elapsed() for (queue,) in dropped}
        self._open_readers()
        self._committer = Committer(self._writer, ids, self._guard, self._observer)
        self._keeper: Upkeep | None = None
        if mark is not None:
            self._keeper = Upkeep(self, mark, lambda: self._connect(read_only=False), self._wal_bytes, scrub_percent)
            self._writer.set_wal_hook(self._wal_grew)
            self._keeper.start()
        _OPEN.add(self)

    def _open_readers(self) -> None:
        """Of this thread and of lookups, while the file is there: reads go on if somebody removes it (G18)."""
        self._reader().ask(SQL["dropped_all"], (), list)
        self._lookups.ask(("", "")).wait()

    @abstractmethod
    def tidy_some(self) -> bool:
        """Put together some of what was read; True as long as there is more to do."""

    @abstractmethod
    def _find_all(self, names: Sequence[tuple[str, str]]) -> Sequence[Queue | None]:
        """The queues of these applications and names, in order; called by the thread of lookups."""

    def _open_writer(self, synchronous: str) -> apsw.Connection:
        if self._read_only:
            return self._connect(read_only=True)
        connection = self._connect(read_only=False)
        connection.execute(f"pragma page_size = {PAGE_BYTES}")
        if connection.execute("pragma journal_mode = wal").fetchall() != [("wal",)]:
            raise ConfigurationError(f"the store {self._path} cannot use a write-ahead log on this file system")
        connection.execute(f"pragma synchronous = {synchronous}")
        connection.execute("pragma wal_autocheckpoint = 0")
        connection.execute(f"pragma journal_size_limit = {self._wal_bytes}")
        connection.execute("begin immediate")
        if not self._has_tables(connection):
            connection.execute(SQL["schema"])
            connection.execute(f"pragma user_version = {_FORMAT}")
        connection.execute("commit")
        return connection

    def _has_tables(self, connection: apsw.Connection) -> bool:
        """False of a file that is empty so far.

        :raises ConfigurationError: it has another format than this version reads.
        """
        if not connection.execute("select 1 from sqlite_schema limit 1").fetchall():
            return False
        rows: list[Row] = connection.execute("pragma user_version").fetchall()
        ((found,),) = rows
        if found != _FORMAT:
            raise ConfigurationError(
                f"the store {self._path} has format {found}, and this version of queuey reads format {_FORMAT} alone: use the "
                "version that wrote it, or move the file away to begin with an empty store"
            )
        return True

    def _open_reader(self) -> apsw.Connection:
        """The calling thread's connection.

        A queue among many has each message on a page of its own. So the main thread, where the event loop asks for most
        pages, has room for those of some queues that are read again and again.
        """
        connection = self._connect(read_only=True, flags=apsw.SQLITE_OPEN_NOMUTEX)
        often = threading.current_thread() is threading.main_thread()
        connection.execute(f"pragma cache_size = -{self._cache_kib * 2 if often else self._cache_kib // 4}")
        return connection

    def _connect(self, *, read_only: bool, flags: int = 0) -> apsw.Connection:
        """A connection of this thread's own.

        A store on a read-only file system without a write-ahead log cannot change at all, and is opened so.
        """
        if read_only:
            wal = self._path.with_name(self._path.name + "-wal")
            still = self._read_only and not (wal.exists() and wal.stat().st_size)
            uri = f"file:{self._path}?mode=ro" + ("&immutable=1" if still else "")
            connection = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI | flags)
            if self._read_only:
                self._has_tables(connection)
        else:
            connection = apsw.Connection(str(self._path))
        self._connections.add(connection)
        # Else SQLite plans a statement anew whenever a value bound to it changes: 28 of the 32 µs that the index of a page took.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        connection.set_busy_timeout(_BUSY_MS)
        connection.execute(f"pragma cache_size = -{self._cache_kib}")
        return connection

    def _raise_floor(self) -> None:
        """Go on above everything an earlier process may have stamped or promised (G3, G4), also if the clock was set back."""
        rows: list[Row] = self._writer.execute(SQL["moment_read"]).fetchall()
        if rows:
            boot, elapsed, ticks = rows[0]
            lived = _OTHER_BOOT_SECONDS
            if boot == _CLOSED:
                lived = 0.0
            elif boot and boot == self._clock.boot():
                lived = min(self._clock.elapsed() - elapsed, _SAME_BOOT_SECONDS)
            floor = Anchor(ticks, 0.0).bound(lived)
            self._ids.raise_floor(floor)
            ahead = (floor - self._clock.now_ticks()) / TICKS_PER_SECOND
            if 0 < ahead <= ANCHOR_SLACK_SECONDS:
                time.sleep(ahead)  # no message is given out before its moment, not even by the slack (G13)

    def _begin_moment(self) -> None:
        """Note where this process begins, before it gives anything out."""
        anchor = self._ids.anchor()
        try:
            self._writer.execute(SQL["moment_keep"], (self._clock.boot(), anchor.elapsed, anchor.ticks))
        except apsw.FullError:
            return  # the keeper tries again; a full store still has to open, for reading and deleting
        self._ids.anchored(anchor)

    def _reader(self) -> Reader:
        return self._readers.mine()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._keeper is not None:
            self._keeper.stop()
        self._committer.close(None if self._keeper is None else self._end_moment)
        self._lookups.close()
        self._readers.close()
        self._writer.close()
        self._release()

    def forsake(self) -> None:
        """After a fork, in the child: the threads are not there, and SQLite must not be entered, not even to close a connection.

        A thread of the parent may have held one of SQLite's own locks, which is then held for ever here. The end of the process would
        wait for it: it frees connections, and apsw, when it is freed itself, closes all that it knows of. So none of them is ever
        freed. The lock of the folder stays the parent's alone.
        """
        self._closed = True
        self._guard.refuse(StorageUnavailable(_FORKED))
        self._committer.forsake(_FORKED)
        self._lookups.forsake(_FORKED)
        self._readers.forsake(_FORKED)
        for kept in (apsw, *self._connections):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()

    def problems(self) -> Sequence[str]:
        return self._guard.problems()

    def _refuses(self, partition_key: bytes) -> Future[Any]:
        """What a read of an unsound partition gets."""
        number, queue = partition_key[-1], partition_key[:-1].hex()
        return Future.failed(
            self._read_failed(
                StorageUnavailable(
                    f"an index of the store is damaged and hides messages of partition {number} of queue {queue}: stop the server "
                    "and run 'queuey verify --repair'"
                )
            )
        )

    def _read_failed(self, error: Exception) -> QueueyError:
        """What a failed read is to the caller; damage found on the way stops the writing."""
        if isinstance(error, QueueyError):
            self._observer.failed("read", error.code)
            return error
        if isinstance(error, DAMAGE):
            self._guard.found_damage(str(error))
        elif not isinstance(error, apsw.Error):
            log.error("the store holds what makes no sense", exc_info=error)
        self._observer.failed("read", StorageUnavailable.__name__)
        return StorageUnavailable(f"the store could not be read: {error}")

    def _ask(self, sql: str, bindings: tuple[Any, ...], shape: Callable[[list[Row]], Any]) -> Future[Any]:
        try:
            return Future.of(shape(self._reader().ask(sql, bindings, list)))
        except (apsw.Error, *NONSENSE) as error:
            return Future.failed(self._read_failed(error))

    def _tell(self, sql: str, bindings: tuple[Any, ...]) -> Future[None]:
        def job(transaction: Transaction) -> None:
            transaction.execute(sql, bindings)

        return self._committer.submit(job, grows=False)

    def _wal_grew(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._guard.write_succeeded()
        self._note_log(pages * self._committer.page_bytes)
        return apsw.SQLITE_OK

    def _note_log(self, log_bytes: int) -> None:
        self._guard.log_bytes = log_bytes
        if self._keeper is not None:
            self._keeper.committed(log_bytes)

    def probe(self) -> None:
        """Try to write while writes are refused because they failed: if that succeeds, they go on."""

        def write() -> None:
            anchor = self._ids.anchor()
            try:
                with self._impatience():
                    self._writer.execute(SQL["moment_keep"], (self._clock.boot(), anchor.elapsed, anchor.ticks))
            except apsw.Error as error:
                self._guard.write_failed(error, self._writer.system_errno)

        if self._guard.failing is not None:
            self._committer.run_between(write).wait()

    @contextmanager
    def _impatience(self) -> Iterator[None]:
        """Inside, the committer waits for others for a moment only."""
        self._writer.set_busy_timeout(_PATIENCE_MS)
        try:
            yield
        finally:
            self._writer.set_busy_timeout(_BUSY_MS)

    def copied(self, error: apsw.Error | None = None) -> None:
        """The whole log is in the file, or could not be copied.

        A part that was copied says nothing: SQLite syncs the file once the last page of the log is in it.
        """
        if error is None:
            self._guard.copy_succeeded()
        else:
            self._guard.copy_failed(error)

    def searched(self, error: Exception | None = None) -> None:
        """The keeper searched the file for damage, or could not."""
        self._guard.search_error = "" if error is None else str(error) or type(error).__name__

    def finish_checkpoint(self, mode: int, mark: Mark) -> Future[None]:
        """Let the committer copy what the keeper's checkpoint left, and the mark, so that the log can start over with its next commit."""

        def copy() -> None:
            try:
                with self._impatience():
                    if mark.write_last(self._writer, mode, may_write=self._guard.refusal is None):
                        self.copied()
                if mode == apsw.SQLITE_CHECKPOINT_TRUNCATE:
                    self._note_log(0)
            except apsw.BusyError:
                return  # somebody reads an old snapshot, or writes: the log goes on for now
            except apsw.IOError as error:
                self.copied(error)

        return self._committer.run_between(copy)

    def is_short_of_room(self) -> bool:
        """Whether appends are refused for want of room."""
        self._guard.look()
        return self._guard.refusal is None and self._guard.refusal_to_grow(lambda: 0) is not None

    def found_damage(self, text: str) -> None:
        """Stop writing; readiness says why (G18)."""
        log.error("the store is damaged", extra={"error": text})
        self._guard.found_damage(text)

    def found_hidden(self, scrub: Scrub) -> None:
        """Indexes and tables do not say the same: stop writing, and refuse to read what may miss messages (G18)."""
        self._unsound.update(finding.partition_key for finding in scrub.found)
        told = [described(scrub.connection, finding, count) for finding, count in scrub.found.most_common(_TOLD)]
        more = f", and {len(scrub.found) - _TOLD} more kinds" if len(scrub.found) > _TOLD else ""
        self.found_damage(f"{'; '.join(told)}{more}: run 'queuey verify' for all of it")

    def newest_moment(self) -> int:
        """The newest tick stamped or served as a watermark."""
        return self._ids.last_ticks

    @property
    def time_is_held_back(self) -> bool:
        """Whether the wall clock was stepped forward, and the step does not count before it is noted."""
        return self._ids.held_back

    def note_moment(self) -> None:
        """Write down how far time has got, for the next start, and wait for that."""

        def job(transaction: Transaction) -> Anchor:
            anchor = self._ids.anchor()
            transaction.look(SQL["moment_keep"], (self._clock.boot(), anchor.elapsed, anchor.ticks))
            return anchor

        self._ids.anchored(self._committer.submit(job, grows=False).wait())

    def _end_moment(self, transaction: Transaction) -> None:
        """Note that nothing more is given out."""
        transaction.look(SQL["moment_keep"], (_CLOSED, self._clock.elapsed(), self._ids.last_ticks))

    def has_refuse(self) -> bool:
        """Whether there is something whose room can be given back."""
        now = self._clock.elapsed()
        for queue, since in list(self._dropped.items()):
            if now - since > _DROPPED_SECONDS and not self._reader().ask(SQL["dropped_find"], (queue,), list):
                del self._dropped[queue]
        ((found,),) = self._reader().ask(SQL["refuse"], (self._clock.now_ticks(),), list)
        return bool(found)

    def purge(self, rows: int) -> Future[int]:
        """Delete up to ``rows`` expired messages, idempotency keys, and rows of dropped queues each.

        :returns: how many went, more than 0 as long as there may be more.
        """

        def job(transaction: Transaction) -> int:
            def delete(name: str, *bindings: Any, at_most: int = rows) -> int:
                transaction.execute(SQL[name], (*bindings, at_most))
                return transaction.connection.changes()

            now, packs = self._clock.now_ticks(), rows // _PACK_ROWS + 1
            gone = delete("purge_expired", now) + delete("purge_idempotency", now)
            gone += delete("purge_expired_packs", now, at_most=packs)
            for (queue,) in transaction.look(SQL["dropped_one"], ()):
                left = delete("purge_dropped", queue, queue + b"\xff") + delete("purge_dropped_idempotency", queue)
                left += delete("purge_dropped_offsets", queue)
                left += delete("purge_dropped_packs", queue, queue + b"\xff", at_most=packs)
                if not left:
                    transaction.execute(SQL["drop_done"], (queue,))
                gone += left + 1
            return gone

        return self._committer.submit(job, grows=False)
