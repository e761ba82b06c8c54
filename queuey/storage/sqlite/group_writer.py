"""Commits groups of writes, in whichever thread has the connection. See :mod:`queuey.storage.sqlite.committer`."""

from __future__ import annotations

import logging
import time
from typing import Any, NamedTuple

import apsw

from queuey.errors import OutcomeUnknown, QueueyError, StorageUnavailable
from queuey.ids import IdGenerator
from queuey.sparing import SparingLog
from queuey.storage.checksums import NONSENSE, nonsense
from queuey.storage.leasing.book import LeaseBook
from queuey.storage.observing import Observer, Unobserved
from queuey.storage.sqlite import connections
from queuey.storage.sqlite.counters import Counters
from queuey.storage.sqlite.health import LOCKED, DiskHealth
from queuey.storage.sqlite.loop_turns import CommitTimes
from queuey.storage.sqlite.transaction import CommitFailed, Row, Transaction
from queuey.storage.sqlite.writes import Group, Later, PutOff

__all__ = ["CommittedMemory", "GroupWriter"]

log = logging.getLogger(__name__)

_OF_THE_FILE = (*LOCKED, apsw.ReadOnlyError, apsw.CantOpenError)
"""Errors that every job of a group would meet. Other errors may come from what one job stores, or from a page that only
it reads."""


class CommittedMemory(NamedTuple):
    """What is in memory of the file, and follows its commits."""

    counters: Counters
    leases: LeaseBook


class GroupWriter:
    """Commits one group after the other."""

    def __init__(
        self,
        connection: apsw.Connection,
        ids: IdGenerator,
        health: DiskHealth,
        observer: Observer | Unobserved,
        memory: CommittedMemory,
        times: CommitTimes,
    ) -> None:
        """:param times: hear how long commits take."""
        self._connection = connection
        self._ids = ids
        self._health = health
        self._observer = observer
        self._counters, self._leases = memory
        self.times = times
        self.page_bytes = self._pragma("page_size")
        """Bytes of a page of the file."""
        self._sparing = SparingLog(log)
        self._waits_for_others = True
        self._took = 0.0
        """Seconds of the last commit itself."""
        self._changes = connection.total_changes()
        """Rows that the connection had changed then."""

    def wait_for_others(self, *, wanted: bool) -> None:
        """Wait for other processes that write, or fail at once."""
        if wanted is not self._waits_for_others:
            self._waits_for_others = wanted
            self._connection.set_busy_timeout(connections.BUSY_MS if wanted else 0)

    def commit(self, group: Group, *, on_loop: bool = False) -> bool:
        """Commit a group and complete its futures. One thread at a time does so.

        :param on_loop: a group that fails before the commit itself is rolled back, and left to the thread.
        :returns: False if it is left to the thread.
        """
        began = time.perf_counter()
        self._health.look()
        if self._health.refusal is not None:
            self._fail([write for write in group if not write.only_reads], self._health.refusal)
            group = [write for write in group if write.only_reads]
            if not group:
                return True
        try:
            outcomes = self._transact(group, self._health.refusal_to_grow(self._free_inside), on_loop=on_loop)
        except CommitFailed as failed:
            if on_loop:
                self.times.leave(f"one failed: {failed}")
            self._write_failed(failed)
            self._counters.forget_all()
            self._leases.undone()
            unknown = OutcomeUnknown(f"the commit failed and may or may not be on disk: {failed}")
            self._fail_together(group, unknown, failed)
            return True
        except Exception as error:  # noqa: BLE001 - a faulty job must not end the loop
            if on_loop:
                self._roll_back()
                if not isinstance(error, NONSENSE):  # that says nothing about the disk
                    self.times.leave(f"one failed: {error}")
                return False
            self._refuse(group, error)
            return True
        finally:
            self._counters.end_group()
            self._ids.close_group()
        self._note_times(time.perf_counter() - began, on_loop=on_loop)
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

    def _note_times(self, whole: float, *, on_loop: bool) -> None:
        """Note how long a group took. One that changed nothing says nothing about the disk."""
        changes = self._connection.total_changes()
        took, self._changes = None if changes == self._changes else self._took, changes
        if on_loop:
            self.times.on_loop(took, whole)
        elif took is not None:
            self.times.in_thread(took)

    def _refuse(self, group: Group, error: Exception) -> None:
        """Fail a group of which nothing was stored, or those of its jobs that cannot be stored."""
        if isinstance(error, apsw.FullError):
            self._fail_alone(group, self._health.was_full(), error)
        elif isinstance(error, (apsw.CorruptError, apsw.NotADBError)):
            self._fail_together(group, self._health.found_damage(str(error)), error)
        elif isinstance(error, _OF_THE_FILE):
            self._fail_together(group, self._write_failed(error), error)
        elif isinstance(error, apsw.IOError):
            self._fail_alone(group, self._write_failed(error), error)
        elif isinstance(error, apsw.Error):
            self._fail_alone(group, StorageUnavailable(f"the store refused the write: {error}"), error)
        elif isinstance(error, NONSENSE):
            self._fail_alone(group, nonsense(error), error)
        else:
            self._fail_alone(group, QueueyError("a write failed inside the store; nothing was stored"), error)

    def _free_inside(self) -> int:
        """Bytes of free pages inside the file."""
        return self._pragma("freelist_count") * self.page_bytes

    def _pragma(self, name: str) -> int:
        rows: list[Row] = self._connection.execute(f"pragma {name}").fetchall()
        return int(rows[0][0])

    def _transact(
        self, group: Group, full: QueueyError | None, *, on_loop: bool
    ) -> list[tuple[Any, BaseException | None]]:
        counted = self._counters.begin_group(self._leases.watched.keys())
        only_reads = all(write.only_reads for write in group)
        transaction = Transaction(self._connection, self._ids, counted, only_reads=only_reads)
        if on_loop and self._leases.watched:
            transaction.begin()  # while another process writes, no step runs, and no state has to be forgotten
        try:
            return self._run(group, full, transaction)
        finally:
            self._leases.grew(counted.grown)
            self._leases.changed(counted.changed)

    def _run(
        self, group: Group, full: QueueyError | None, transaction: Transaction
    ) -> list[tuple[Any, BaseException | None]]:
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
        self._counters.keep(transaction.counted)
        self._leases.settled(with_messages=transaction.changes_messages)
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
                self.commit([job])
        else:
            self._fail(group, refusal)

    def _log_failure(self, group: Group, error: Exception) -> None:
        text = str(error)
        self._sparing.write(text, logging.ERROR, "a group of writes failed", error=text, jobs=len(group))

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
