"""Group commit: one thread writes, and all who wait share its commits (G1).

A request hands over a job and gets a promise. The committer takes every job that is waiting, runs
them one after the other in one ``BEGIN IMMEDIATE`` transaction, commits, and only then keeps their
promises. While a commit is on its way to disk the next group gathers. A job that refuses raises
before it writes anything; the others of its group are not touched.

Neighbouring appends are inserted together, many rows to a statement: each statement that SQLite
steps through lets another thread take the interpreter, and getting it back is what costs most.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import apsw

from queuey.errors import OutcomeUnknown, QueueyError, StorageFull, StorageUnavailable
from queuey.ids import IdGenerator
from queuey.promise import Promise
from queuey.storage.sqlite_guard import Guard

log = logging.getLogger(__name__)

Row = tuple[Any, ...]
_COLUMNS = 8
_ROWS_A_STATEMENT = 128
_GROUP = 4096
"""Jobs of one transaction at most: bounds the memory and the wait of the first."""

_CROWD = 8
_GATHER_SECONDS = 0.0005
"""After a group of this many, the next waits this long for company: the same clients are about to come again, and one
commit for all of them costs the processor a third less than three (docs/performance)."""

INSERT = "insert into messages (place, ticks, tail, expires, seal, content_type, key, body) values "


class Transaction:
    """What a job may use while its group's transaction is open."""

    def __init__(self, connection: apsw.Connection, ids: IdGenerator) -> None:
        self.connection = connection
        self._ids = ids
        self._stamps = False
        self._values: list[Any] = []

    @property
    def ids(self) -> IdGenerator:
        """Where ids come from. From its first use to the end of the group, no watermark passes the group's ids."""
        if not self._stamps:
            self._stamps = True
            self._ids.open_group()
        return self._ids

    def execute(self, sql: str, bindings: tuple[Any, ...] = ()) -> list[Row]:
        """Run one statement, after the inserts that came before it."""
        self.flush()
        return self.connection.execute(sql, bindings).fetchall()

    def look(self, sql: str, bindings: tuple[Any, ...]) -> list[Row]:
        """Run a query that does not touch the messages table, without flushing inserts."""
        return self.connection.execute(sql, bindings).fetchall()

    def insert(self, values: Row) -> None:
        """Insert one message; values in the order of :data:`INSERT`."""
        self._values += values

    def flush(self) -> None:
        """Write gathered inserts, in statements of falling powers of two rows, so that few texts are prepared."""
        values = self._values
        if not values:
            return
        self._values = []
        rows, start, size = len(values) // _COLUMNS, 0, _ROWS_A_STATEMENT
        while start < rows:
            while size > rows - start:
                size //= 2
            part = values if size == rows else values[start * _COLUMNS : (start + size) * _COLUMNS]
            self.connection.execute(_insert_statement(size), part)
            start += size


_statements: dict[int, str] = {}


def _insert_statement(rows: int) -> str:
    if rows not in _statements:
        _statements[rows] = INSERT + ",".join(["(?,?,?,?,?,?,?,?)"] * rows)
    return _statements[rows]


Job = Callable[[Transaction], Any]


class Committer:
    """The one writer of a store file."""

    def __init__(self, connection: apsw.Connection, ids: IdGenerator, guard: Guard, name: str) -> None:
        self._connection = connection
        self._ids = ids
        self._guard = guard
        self._waiting: SimpleQueue[tuple[Job, bool, Promise[Any]] | None] = SimpleQueue()
        self._closed = False
        self._close_lock = threading.Lock()
        self._between: Callable[[], object] | None = None
        self._thread = threading.Thread(target=self._work, name=f"committer-{name}", daemon=True)
        self._thread.start()

    def submit(self, job: Job, *, grows: bool) -> Promise[Any]:
        """Run ``job`` in the next group's transaction.

        :param grows: it takes more room, so it is refused when the disk is full up to the reserve.
        :returns: kept with the job's value once the group is on disk.
        :raises StorageFull, StorageReadOnly, StorageUnavailable: by the promise; nothing was written.
        :raises OutcomeUnknown: by the promise; the commit itself failed.
        """
        promise: Promise[Any] = Promise()
        if self._closed:
            promise.fail(StorageUnavailable("the store is closing; nothing was stored"))
        else:
            self._waiting.put((job, grows, promise))
        return promise

    def run_between(self, work: Callable[[], object]) -> None:
        """Let the committer's thread do ``work`` once, between two groups."""
        self._between = work

    def close(self) -> None:
        """Commit what was accepted, then end. Later jobs are refused."""
        with self._close_lock:
            if not self._closed:
                self._closed = True
                self._waiting.put(None)
        self._thread.join()
        while not self._waiting.empty():
            left = self._waiting.get_nowait()
            if left is not None:
                left[2].fail(StorageUnavailable("the store is closing; nothing was stored"))

    def _work(self) -> None:
        crowded = False
        while True:
            first = self._waiting.get()
            if first is None:
                return
            if crowded:
                time.sleep(_GATHER_SECONDS)
            group, last = [first], False
            for _ in range(min(self._waiting.qsize(), _GROUP - 1)):
                job = self._waiting.get_nowait()
                if job is None:
                    last = True
                    break
                group.append(job)
            self._commit(group)
            crowded = len(group) >= _CROWD
            del group, first
            if self._between is not None:
                work, self._between = self._between, None
                self._guarded(work)
            if last:
                return

    def _guarded(self, work: Callable[[], object]) -> None:
        try:
            work()
        except apsw.BusyError:
            return  # the keeper is at it: it will ask again
        except apsw.Error as error:
            log.warning("work between commits failed: %s", error)

    def _commit(self, group: list[tuple[Job, bool, Promise[Any]]]) -> None:
        try:
            refusal = self._guard.refusal()
            full = self._guard.refusal_to_grow() if refusal is None else None
        except OSError as error:
            refusal, full = StorageUnavailable(f"the store's folder cannot be looked at: {error.strerror}"), None
        if refusal is not None:
            return self._fail(group, refusal)
        try:
            outcomes = self._transact(group, full)
        except apsw.FullError as error:
            self._after_failure(group, StorageFull(), error)
            return None
        except (apsw.CorruptError, apsw.NotADBError) as error:
            self._guard.damage = str(error)
            self._after_failure([], StorageUnavailable(), error)
            return self._fail(group, self._guard.refusal() or StorageUnavailable())
        except apsw.Error as error:
            self._after_failure(group, StorageUnavailable(f"the store refused the write: {error}"), error)
            return None
        except _CommitFailed as failed:
            self._after_failure([], OutcomeUnknown(), failed)
            return self._fail(group, OutcomeUnknown(f"the commit failed and may or may not be on disk: {failed}"))
        except Exception as error:  # noqa: BLE001 - the loop must survive a faulty job
            self._after_failure(group, QueueyError("a write failed inside the store; nothing was stored"), error)
            return None
        finally:
            self._ids.close_group()
        if not self._guard.file_is_ours():
            return self._fail(group, OutcomeUnknown("the store's file was replaced or removed during the write"))
        for (_, _, promise), (value, error_of_job) in zip(group, outcomes, strict=True):
            if error_of_job is None:
                promise.keep(value)
            else:
                promise.fail(error_of_job)
        return None

    def _transact(
        self, group: list[tuple[Job, bool, Promise[Any]]], full: QueueyError | None
    ) -> list[tuple[Any, BaseException | None]]:
        connection = self._connection
        connection.execute("begin immediate")
        transaction = Transaction(connection, self._ids)
        outcomes: list[tuple[Any, BaseException | None]] = []
        for job, grows, _ in group:
            if grows and full is not None:
                outcomes.append((None, full))
                continue
            try:
                outcomes.append((job(transaction), None))
            except QueueyError as refused:
                outcomes.append((None, refused))
        transaction.flush()
        try:
            connection.execute("commit")
        except (apsw.IOError, apsw.InternalError) as error:
            raise _CommitFailed(str(error)) from error
        return outcomes

    def _after_failure(
        self, group: list[tuple[Job, bool, Promise[Any]]], refusal: QueueyError, error: Exception
    ) -> None:
        """Roll back; then try the jobs one by one, so that one that cannot be stored takes no other with it."""
        log.error("a group of writes failed", extra={"error": str(error), "jobs": len(group)})
        if self._connection.in_transaction:
            self._connection.execute("rollback")
        self._ids.close_group()
        if len(group) > 1:
            for job in group:
                self._commit([job])
        else:
            self._fail(group, refusal)

    def _fail(self, group: list[tuple[Job, bool, Promise[Any]]], error: QueueyError) -> None:
        for _, _, promise in group:
            promise.fail(error)


class _CommitFailed(Exception):
    """COMMIT itself failed: the write-ahead log may or may not hold the group."""
