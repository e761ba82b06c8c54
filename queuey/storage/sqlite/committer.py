"""Group commit: one thread writes, and waiting requests share its commits (G1).

A request submits a job and gets a future. The committer takes all waiting jobs, runs them one after the other in one
``BEGIN IMMEDIATE`` transaction, commits, and only then completes their futures. While a commit is on its way to disk,
the next group gathers. A job that refuses its request raises before it writes anything, or writes inside
:meth:`Transaction.whole`; so it does not affect the other jobs of its group.

Large jobs have a queue and groups of their own, each of a few megabytes. A group of small jobs goes between two of
them, so one message does not wait until all earlier batches are stored.

Every call into SQLite or the kernel releases the interpreter. Getting it back from a busy event loop costs most of all,
up to the switch interval each time. So a group of plain appends is one INSERT of many rows, and this one statement is
the whole transaction: it begins, writes, syncs and commits in one call. Only a group with other work begins a
transaction of several statements.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from queue import SimpleQueue
from typing import Any, NamedTuple

import apsw

from queuey.errors import OutcomeUnknown, QueueyError, StorageFull, StorageUnavailable
from queuey.future import Future
from queuey.ids import IdGenerator
from queuey.locks import new_lock
from queuey.storage import Observer, Unobserved
from queuey.storage.leasing.book import LeaseBook
from queuey.storage.sqlite.counters import ROW_COLUMNS, Counters, GroupChanges
from queuey.storage.sqlite.health import LOCKED, DiskHealth

log = logging.getLogger(__name__)

Row = tuple[Any, ...]
Bindings = tuple[Any, ...] | dict[str, Any]
"""Values of a statement in the order of its parameters, or by name."""
_ROWS_AT_ONCE = 256
"""The most rows of one statement. A prepared statement takes 1.2 KiB for each row."""
_GROUP = 4096
"""The most jobs of one transaction. It bounds the memory, and the wait of the first job."""
_LARGE = 64 << 10
"""A job with this many bytes is large."""
_OF_THE_FILE = (*LOCKED, apsw.ReadOnlyError, apsw.CantOpenError)
"""Errors that every job of a group would meet. Other errors may come from what one job stores, or from a page that only
it reads."""
_LARGE_AT_ONCE = 4 << 20
"""Bytes of large jobs in one transaction, unless a single job has more. Small jobs wait for one such transaction."""


class Transaction:
    """What a job may use while its group's transaction is open."""

    def __init__(self, connection: apsw.Connection, ids: IdGenerator, counted: GroupChanges) -> None:
        """:param counted: notes what changes in partitions that have a counter."""
        self.connection = connection
        self.counted = counted
        self._ids = ids
        self._stamps = False
        self._begun = False
        self._values: list[Any] = []
        self._lease_changes: list[Any] = []
        self._at_end: list[Callable[[], None]] = []
        self.inserted = 0
        """Messages of the group."""

    @property
    def ids(self) -> IdGenerator:
        """The source of new ids.

        From its first use to the end of the group, no watermark passes the group's ids.
        """
        if not self._stamps:
            self._stamps = True
            self._ids.open_group()
        return self._ids

    def execute(self, sql: str, bindings: Bindings = ()) -> list[Row]:
        """Run one statement, after the inserts that came before it."""
        rows: list[Row] = self.cursor(sql, bindings).fetchall()
        return rows

    def cursor(self, sql: str, bindings: Bindings) -> Any:
        """The rows of a statement, one by one, after the inserts that came before it."""
        self._begin()
        self._flush()
        return self.connection.execute(sql, bindings)

    def look(self, sql: str, bindings: Bindings) -> list[Row]:
        """Run a statement that does not use the messages table.

        Gathered inserts may still wait.
        """
        self._begin()
        return self.connection.execute(sql, bindings).fetchall()

    def insert(self, values: Row) -> None:
        """Insert one message, by the end of the group at the latest.

        The values are in the order of :data:`_INSERT`.
        """
        self._values += values

    def keep_lease_change(self, values: Row) -> None:
        """Insert one change of a lease group's state, by the end of the group at the latest.

        The values are in the order of :data:`_INSERT_LEASE_CHANGE`.
        """
        self._lease_changes += values

    def at_end(self, work: Callable[[], None]) -> None:
        """Do this once, after all jobs of the group and before the commit."""
        self._at_end.append(work)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Undo what a job writes in this block if it refuses its request."""
        self.execute("savepoint whole")
        inserted, changes = self.inserted, self.counted.so_far()
        try:
            yield
        except QueueyError:
            self._values.clear()
            self.inserted = inserted
            self.counted.restore(changes)
            self.execute("rollback to whole")
            self.execute("release whole")
            raise
        self.execute("release whole")  # any other error ends the group's transaction

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self.connection.execute("begin immediate")

    def _flush(self) -> None:
        """Write gathered inserts in as few statements as possible."""
        values, self._values = self._values, []
        self.inserted += len(values) // ROW_COLUMNS
        if self.counted.is_counting:
            self.counted.add_rows(values)
        self._write(_INSERT, ROW_COLUMNS, values)
        if self._lease_changes:
            changes, self._lease_changes = self._lease_changes, []
            self._write(_INSERT_LEASE_CHANGE, _LEASE_COLUMNS, changes)

    def _write(self, insert: str, columns: int, values: list[Any]) -> None:
        for start in range(0, len(values), _ROWS_AT_ONCE * columns):
            some = values[start : start + _ROWS_AT_ONCE * columns]
            rows = len(some) // columns
            size = 1 << (rows - 1).bit_length()
            some += [None] * ((size - rows) * columns)
            self.connection.execute(_insert_statement(insert, columns, size), some)

    def commit(self) -> None:
        """Put the group on disk.

        :raises CommitFailed: the group may or may not be on disk.
        """
        for work in self._at_end:
            work()
        statements = -(-len(self._values) // (_ROWS_AT_ONCE * ROW_COLUMNS))
        statements += -(-len(self._lease_changes) // (_ROWS_AT_ONCE * _LEASE_COLUMNS))
        if statements > 1:
            self._begin()
        if self._begun:
            self._flush()
        try:
            self._flush()  # nothing is left, or the flush is the whole transaction
            if self._begun:
                self.connection.execute("commit")
        except (apsw.IOError, apsw.InternalError) as error:
            raise CommitFailed(str(error)) from error


@lru_cache
def _insert_statement(insert: str, columns: int, size: int) -> str:
    """An INSERT of up to ``size`` rows; unused rows are nulls.

    There are only a few sizes, so each stays prepared.
    """
    row = f"({','.join('?' * columns)})"
    return insert + _CHOSEN[0] + ",".join([row] * size) + _CHOSEN[1]


_CHOSEN = (" select * from (values ", ") where column1 is not null")
"""What stands before the rows of an INSERT, and behind them."""


_INSERT = "insert into messages (partition_key, ticks, tail, expires, checksum, content_type, key, body, headers)"
_INSERT_LEASE_CHANGE = "insert into lease_changes (token, partition, number, checksum, change)"
_LEASE_COLUMNS = 5


class CommitFailed(Exception):
    """The commit itself failed: the write-ahead log may or may not have the group."""


Job = Callable[[Transaction], Any]


class Write(NamedTuple):
    """A job, and the future of its caller."""

    job: Job
    grows: bool
    future: Future[Any]
    size: int
    """Bytes to store, approximately."""


class PutOff(NamedTuple):
    """What a job returns that has done nothing, since it lacks something."""

    begin: Callable[[Write], None]
    """Gets the job. It hands the job to :meth:`Committer.resubmit` when that is there."""


class Aside(NamedTuple):
    """Work outside of any transaction, and the future of its caller."""

    work: Callable[[], None]
    future: Future[None]


Group = list[Write]


class Committer:
    """The one writer of a store file."""

    def __init__(
        self,
        connection: apsw.Connection,
        ids: IdGenerator,
        health: DiskHealth,
        observer: Observer | Unobserved,
        counters: Counters,
        leases: LeaseBook,
    ) -> None:
        self._connection = connection
        self._leases = leases
        self._counters = counters
        self.page_bytes = self._pragma("page_size")
        """Paths of the file and of its log."""
        self._ids = ids
        self._health = health
        self._observer = observer
        self._waiting: SimpleQueue[Write | Aside | None] = SimpleQueue()
        self._large: deque[Write] = deque()
        self._closed = False
        self._last: Job | None = None
        self._why_closed = "the store is closing; nothing was stored"
        self._close_lock = new_lock()
        self._thread = threading.Thread(target=self._work, name="committer", daemon=True)
        self._thread.start()

    def submit(self, job: Job, *, grows: bool, size: int = 0) -> Future[Any]:
        """Run ``job`` in the next group's transaction.

        A large job may wait behind small jobs that come later.

        :param grows: the job needs more space, so it is refused when the disk is full up to the reserve.
        :param size: bytes to store, approximately.
        :returns: completes with the job's value once the group is on disk.
        :raises StorageFull, StorageReadOnly, StorageUnavailable: by the future; nothing was written.
        :raises OutcomeUnknown: by the future; the commit itself failed.
        """
        future: Future[Any] = Future()
        if self._closed:
            future.set_error(StorageUnavailable(self._why_closed))
        else:
            self._waiting.put(Write(job, grows, future, size))
        return future

    def resubmit(self, write: Write) -> None:
        """Run a job again that was put off."""
        if self._closed:
            write.future.set_error(StorageUnavailable(self._why_closed))
        else:
            self._waiting.put(write)

    def run_between(self, work: Callable[[], None]) -> Future[None]:
        """Let the committer's thread do ``work`` outside of any transaction.

        :returns: completes when it is done; an error is logged and not passed on.
        """
        future: Future[None] = Future()
        if self._closed:
            future.set_result(None)
        else:
            self._waiting.put(Aside(work, future))
        return future

    def forsake(self, why: str) -> None:
        """Refuse all jobs, in the child of a fork.

        The thread does not exist there.
        """
        self._closed, self._why_closed = True, why

    def close(self, last: Job | None = None) -> None:
        """Commit what was accepted, then end. Later jobs are refused.

        :param last: runs after all others are committed; in the queue it would overtake the large ones.
        """
        with self._close_lock:
            if not self._closed:
                self._closed, self._last = True, last
                self._waiting.put(None)
        self._thread.join()
        while not self._waiting.empty():
            left = self._waiting.get_nowait()
            if left is not None:
                left.future.set_error(StorageUnavailable("the store is closing; nothing was stored"))

    def _work(self) -> None:
        ending = False
        while not ending or self._large:
            items = self._gathered()
            small = [item for item in items if type(item) is Write and item.size < _LARGE]
            if small:
                self._commit(small)
            if len(small) < len(items):
                ending = ending or None in items
                self._large += [item for item in items if type(item) is Write and item.size >= _LARGE]
                self._step_aside([item for item in items if type(item) is Aside])
            del items, small  # an idle committer must hold no bodies
            if self._large:
                self._commit(self._next_large())
        if self._last is not None:
            self._commit([Write(self._last, False, Future(), 0)])

    def _gathered(self) -> list[Write | Aside | None]:
        """What has come since the last group.

        It waits for something if nothing is left to do.
        """
        items = [] if self._large else [self._waiting.get()]
        return items + [self._waiting.get_nowait() for _ in range(min(self._waiting.qsize(), _GROUP - len(items)))]

    def _next_large(self) -> Group:
        """The large jobs of the next group.

        It is one job, or several if they are few bytes together.
        """
        group = [self._large.popleft()]
        left = _LARGE_AT_ONCE - group[0].size
        while self._large and self._large[0].size <= left:
            left -= self._large[0].size
            group.append(self._large.popleft())
        return group

    def _step_aside(self, asides: list[Aside]) -> None:
        for work, future in asides:
            try:
                work()
            except Exception as error:  # faulty work must not end the loop
                log.warning("work between commits failed: %s", error, exc_info=not isinstance(error, apsw.Error))
            future.set_result(None)

    def _commit(self, group: Group) -> None:
        self._health.look()
        if self._health.refusal is not None:
            return self._fail(group, self._health.refusal)
        try:
            outcomes = self._transact(group, self._health.refusal_to_grow(self._free_inside))
        except apsw.FullError as error:
            self._health.was_full()
            return self._fail_alone(group, StorageFull(), error)
        except (apsw.CorruptError, apsw.NotADBError) as error:
            return self._fail_together(group, self._health.found_damage(str(error)), error)
        except _OF_THE_FILE as error:
            return self._fail_together(group, self._write_failed(error), error)
        except apsw.IOError as error:
            return self._fail_alone(group, self._write_failed(error), error)
        except apsw.Error as error:
            return self._fail_alone(group, StorageUnavailable(f"the store refused the write: {error}"), error)
        except CommitFailed as failed:
            self._write_failed(failed)
            self._counters.forget_all()
            self._leases.undone()
            unknown = OutcomeUnknown(f"the commit failed and may or may not be on disk: {failed}")
            return self._fail_together(group, unknown, failed)
        except Exception as error:  # noqa: BLE001 - a faulty job must not end the loop
            return self._fail_alone(group, QueueyError("a write failed inside the store; nothing was stored"), error)
        finally:
            self._counters.end_group()
            self._ids.close_group()
        for write, (value, error_of_job) in zip(group, outcomes, strict=True):
            if type(value) is PutOff:
                value.begin(write)
            elif error_of_job is None:
                write.future.set_result(value)
            else:
                write.future.set_error(error_of_job)
        return None

    def _free_inside(self) -> int:
        """Bytes of free pages inside the file."""
        return self._pragma("freelist_count") * self.page_bytes

    def _pragma(self, name: str) -> int:
        rows: list[Row] = self._connection.execute(f"pragma {name}").fetchall()
        return int(rows[0][0])

    def _transact(self, group: Group, full: QueueyError | None) -> list[tuple[Any, BaseException | None]]:
        counted = self._counters.begin_group(self._leases.watched.keys())
        try:
            return self._transact_counted(group, full, counted)
        finally:
            self._leases.grew(counted.grown)
            self._leases.changed(counted.changed)

    def _transact_counted(
        self, group: Group, full: QueueyError | None, counted: GroupChanges
    ) -> list[tuple[Any, BaseException | None]]:
        transaction = Transaction(self._connection, self._ids, counted)
        outcomes: list[tuple[Any, BaseException | None]] = []
        for write in group:
            if write.grows and full is not None:
                outcomes.append((None, full))
                continue
            try:
                outcomes.append((write.job(transaction), None))
            except QueueyError as refused:
                outcomes.append((None, refused))
        began = time.perf_counter()
        transaction.commit()
        self._counters.keep(counted)
        self._leases.settled()
        self._observer.committed(transaction.inserted, time.perf_counter() - began)
        return outcomes

    def _write_failed(self, error: Exception) -> QueueyError:
        return self._health.write_failed(error, self._connection.system_errno)

    def _fail_together(self, group: Group, refusal: QueueyError, error: Exception) -> None:
        self._roll_back(group, error)
        self._fail(group, refusal)

    def _fail_alone(self, group: Group, refusal: QueueyError, error: Exception) -> None:
        """Try the jobs one by one.

        So a job that cannot be stored does not fail the others.
        """
        self._roll_back(group, error)
        if len(group) > 1:
            for job in group:
                self._commit([job])
        else:
            self._fail(group, refusal)

    def _roll_back(self, group: Group, error: Exception) -> None:
        self._leases.undone()
        log.error("a group of writes failed", extra={"error": str(error), "jobs": len(group)})
        try:
            if self._connection.in_transaction:
                self._connection.execute("rollback")
        except apsw.Error as failed:
            log.error("a group of writes could not be rolled back", extra={"error": str(failed)})  # noqa: TRY400 - the error is SQLite's
        self._ids.close_group()

    def _fail(self, group: Group, error: QueueyError) -> None:
        for write in group:
            self._observer.failed("write", error.code)
            write.future.set_error(error)
