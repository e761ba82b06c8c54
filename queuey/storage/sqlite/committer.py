"""Group commit: one thread at a time writes, and waiting requests share its commits (G1).

A request submits a job and gets a future. Whoever commits takes all waiting jobs, runs them one after the other in one
``BEGIN IMMEDIATE`` transaction, commits, and only then completes their futures. While a commit is on its way to disk,
the next group gathers. A job that refuses its request raises before it writes anything, or writes inside
:meth:`Transaction.whole`; so it does not affect the other jobs of its group.

The committer's thread commits, and at the end of its turns the event loop commits light jobs while that is quick
(:mod:`queuey.storage.sqlite.loop_turns`). Both do it by :meth:`Committer._commit`. The loop carries only what goes
well: what fails before the commit itself, and what would have to wait, it leaves to the thread.

Large jobs have a queue and groups of their own, each of a few megabytes. A group of small jobs goes between two of
them, so one message does not wait until all earlier batches are stored.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple

import apsw

from queuey.errors import OutcomeUnknown, QueueyError, StorageFull, StorageUnavailable
from queuey.future import Future
from queuey.ids import IdGenerator
from queuey.locks import new_lock
from queuey.storage import Observer, Unobserved
from queuey.storage.leasing.book import LeaseBook
from queuey.storage.sqlite import connections
from queuey.storage.sqlite.counters import Counters, GroupChanges
from queuey.storage.sqlite.health import LOCKED, DiskHealth
from queuey.storage.sqlite.loop_turns import CommitTimes, TurnCommits
from queuey.storage.sqlite.transaction import CommitFailed, Row, Transaction
from queuey.storage.sqlite.writes import Aside, Group, Job, Later, PutOff, Write

log = logging.getLogger(__name__)

_GROUP = 4096
"""The most jobs of one transaction. It bounds the memory, and the wait of the first job."""
_LARGE = 64 << 10
"""A job with this many bytes is large."""
_OF_THE_FILE = (*LOCKED, apsw.ReadOnlyError, apsw.CantOpenError)
"""Errors that every job of a group would meet. Other errors may come from what one job stores, or from a page that only
it reads."""
_LARGE_AT_ONCE = 4 << 20
"""Bytes of large jobs in one transaction, unless a single job has more. Small jobs wait for one such transaction."""


class CommittedMemory(NamedTuple):
    """What is in memory of the file, and follows its commits."""

    counters: Counters
    leases: LeaseBook


class Committer:
    """The one writer of a store file."""

    def __init__(
        self,
        connection: apsw.Connection,
        ids: IdGenerator,
        health: DiskHealth,
        observer: Observer | Unobserved,
        memory: CommittedMemory,
        times: CommitTimes,
    ) -> None:
        """:param times: decide whether the event loop carries commits."""
        self._connection = connection
        self._counters, self._leases = memory
        self._times = times
        self.turns = TurnCommits(self._commit_on_loop, self.resubmit, times)
        """Where an event loop says that it carries commits."""
        self._committing = new_lock()
        """Held by the thread that uses the connection."""
        self._waits_for_others = True
        """The connection waits for another process that writes."""
        self._took = 0.0
        """Seconds of the last commit itself."""
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

    def submit(self, job: Job, *, grows: bool, size: int = 0, is_light: bool = False) -> Future[Any]:
        """Run ``job`` in the next group's transaction.

        A large job may wait behind small jobs that come later.

        :param grows: the job needs more space, so it is refused when the disk is full up to the reserve.
        :param size: bytes to store, approximately.
        :param is_light: the event loop may run it: it takes no longer than its size says, and nothing that the loop does
            waits for it.
        :returns: completes with the job's value once the group is on disk.
        :raises StorageFull, StorageReadOnly, StorageUnavailable: by the future; nothing was written.
        :raises OutcomeUnknown: by the future; the commit itself failed.
        """
        future: Future[Any] = Future()
        if self._closed:
            future.set_error(StorageUnavailable(self._why_closed))
        else:
            write = Write(job, grows, future, size)
            if not (is_light and size < _LARGE and self.turns.takes(write)):
                self._waiting.put(write)
        return future

    def resubmit(self, write: Write) -> None:
        """Let the committer's thread run a job that was put off."""
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
        self.turns.forsake()

    def close(self, last: Job | None = None) -> None:
        """Commit what was accepted, then end. Later jobs are refused.

        :param last: runs after all others are committed; in the queue it would overtake the large ones.
        """
        self.turns.end()
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
                self._commit_in_thread(small)
            if len(small) < len(items):
                ending = ending or None in items
                self._large += [item for item in items if type(item) is Write and item.size >= _LARGE]
                self._step_aside([item for item in items if type(item) is Aside])
            del items, small  # an idle committer must hold no bodies
            if self._large:
                self._commit_in_thread(self._next_large())
        if self._last is not None:
            self._commit_in_thread([Write(self._last, False, Future(), 0)])

    def _commit_in_thread(self, group: Group) -> None:
        with self._committing:
            self._wait_for_others(wanted=True)
            self._commit(group)

    def _commit_on_loop(self, group: Group) -> bool:
        """Commit a group in the thread of an event loop.

        :returns: False if the committer's thread is at work, or has to try the group. Then nothing was stored.
        """
        if not self._committing.acquire(blocking=False):
            return False
        try:
            self._wait_for_others(wanted=False)
            return self._commit(group, on_loop=True)
        finally:
            self._committing.release()

    def _wait_for_others(self, *, wanted: bool) -> None:
        if wanted is not self._waits_for_others:
            self._waits_for_others = wanted
            self._connection.set_busy_timeout(connections.BUSY_MS if wanted else 0)

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
                with self._committing:
                    self._wait_for_others(wanted=True)
                    work()
            except Exception as error:  # faulty work must not end the loop
                log.warning("work between commits failed: %s", error, exc_info=not isinstance(error, apsw.Error))
            future.set_result(None)

    def _commit(self, group: Group, *, on_loop: bool = False) -> bool:
        """Commit a group and complete its futures. The caller has the lock.

        :param on_loop: a group that fails before the commit itself is rolled back, and left to the thread.
        :returns: False if it is left to the thread.
        """
        self._health.look()
        if self._health.refusal is not None:
            self._fail(group, self._health.refusal)
            return True
        began = time.perf_counter()
        try:
            outcomes = self._transact(group, self._health.refusal_to_grow(self._free_inside))
        except CommitFailed as failed:
            self._write_failed(failed)
            self._counters.forget_all()
            self._leases.undone()
            unknown = OutcomeUnknown(f"the commit failed and may or may not be on disk: {failed}")
            self._fail_together(group, unknown, failed)
            return True
        except Exception as error:  # noqa: BLE001 - a faulty job must not end the loop
            if on_loop:
                self._roll_back()
                self._times.leave(f"one failed: {error}")
                return False
            self._refuse(group, error)
            return True
        finally:
            self._counters.end_group()
            self._ids.close_group()
        if on_loop:
            self._times.on_loop(self._took, time.perf_counter() - began)
        else:
            self._times.in_thread(self._took)
        for write, (value, error_of_job) in zip(group, outcomes, strict=True):
            if type(value) is Later:
                value, error_of_job = value.value, value.error  # noqa: PLW2901
            if type(value) is PutOff:
                value.begin(write)
            elif error_of_job is None:
                write.future.set_result(value)
            else:
                write.future.set_error(error_of_job)
        return True

    def _refuse(self, group: Group, error: Exception) -> None:
        """Fail a group of which nothing was stored, or those of its jobs that cannot be stored."""
        if isinstance(error, apsw.FullError):
            self._health.was_full()
            self._fail_alone(group, StorageFull(), error)
        elif isinstance(error, (apsw.CorruptError, apsw.NotADBError)):
            self._fail_together(group, self._health.found_damage(str(error)), error)
        elif isinstance(error, _OF_THE_FILE):
            self._fail_together(group, self._write_failed(error), error)
        elif isinstance(error, apsw.IOError):
            self._fail_alone(group, self._write_failed(error), error)
        elif isinstance(error, apsw.Error):
            self._fail_alone(group, StorageUnavailable(f"the store refused the write: {error}"), error)
        else:
            self._fail_alone(group, QueueyError("a write failed inside the store; nothing was stored"), error)

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
        self._took = time.perf_counter() - began
        self._counters.keep(counted)
        self._leases.settled()
        self._observer.committed(transaction.inserted, self._took)
        return outcomes

    def _write_failed(self, error: Exception) -> QueueyError:
        return self._health.write_failed(error, self._connection.system_errno)

    def _fail_together(self, group: Group, refusal: QueueyError, error: Exception) -> None:
        self._log_failure(group, error)
        self._roll_back()
        self._fail(group, refusal)

    def _fail_alone(self, group: Group, refusal: QueueyError, error: Exception) -> None:
        """Try the jobs one by one.

        So a job that cannot be stored does not fail the others.
        """
        self._log_failure(group, error)
        self._roll_back()
        if len(group) > 1:
            for job in group:
                self._commit([job])
        else:
            self._fail(group, refusal)

    def _log_failure(self, group: Group, error: Exception) -> None:
        log.error("a group of writes failed", extra={"error": str(error), "jobs": len(group)})

    def _roll_back(self) -> None:
        self._leases.undone()
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
