"""Copies an embedded store's write-ahead log into its file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import apsw

from queuey.future import Future
from queuey.storage.sqlite import upkeep
from queuey.storage.sqlite.committer import Committer
from queuey.storage.sqlite.health import DiskHealth
from queuey.storage.sqlite.mark import FileMark
from queuey.storage.sqlite.moments import short_waits

__all__ = ["Checkpoints"]

CHECKPOINT_BYTES = 16 << 20
"""Size from which on the write-ahead log is copied into the file."""
_LITTLE_BYTES = 1 << 20
"""Bytes of the log that may be left for the committer to copy."""
_KEPT_BYTES = 1 << 20
"""Bytes that the log keeps on a disk that is short. What makes room goes into it, even if others leave no byte free."""
_PASSES = 8
"""Passes in one turn at most, since the thread has other work, such as noting the moment."""


class Checkpoints:
    """Copies the log, and lets it start over.

    The upkeep copies most of it. The committer copies the rest, and puts a new mark into the file.
    """

    def __init__(
        self,
        writer: apsw.Connection,
        connection: apsw.Connection,
        committer: Committer,
        health: DiskHealth,
        mark: FileMark,
    ) -> None:
        """:param connection: only the thread of the upkeep uses it."""
        self._writer = writer
        self._connection = connection
        self._committer = committer
        self._health = health
        self._mark = mark
        self._stopping = False
        self._log_bytes = 0
        self._cap = self._step = self._due = CHECKPOINT_BYTES
        self._again = 0.0
        """From this moment on the log may be copied even if it has not grown by a step."""
        self._wake: Callable[[], None] = lambda: None

    def begin(self, log_bytes_cap: int, wake: Callable[[], None]) -> None:
        """Start to follow the writer's log.

        :param log_bytes_cap: above it the committer waits for readers, so that the log can start over.
        :param wake: called when the log has grown by a step.
        """
        self._cap, self._wake = log_bytes_cap, wake
        self._step = self._due = min(CHECKPOINT_BYTES, log_bytes_cap)
        self._writer.set_wal_hook(self._log_grew)

    def stop(self) -> None:
        """Stop after the pass under way."""
        self._stopping = True

    def close(self) -> None:
        self._connection.close()

    def _log_grew(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        self._health.write_succeeded()
        self._note_log(pages * self._committer.writer.page_bytes)
        return apsw.SQLITE_OK

    def _note_log(self, log_bytes: int) -> None:
        self._health.log_bytes = log_bytes
        if log_bytes < self._log_bytes:
            self._due = self._step  # the log has started over
        self._log_bytes = log_bytes
        if log_bytes >= self._due:
            self._wake()

    def run(self) -> None:
        """Copy the log, if it has grown by a step.

        Above the cap the committer waits for readers too, so that the log cannot grow without end. Between copies, a
        due mark is tried again. On a disk that is short the log gives back most of its own space, once a turn only, since
        the committer may wait in vain.
        """
        is_short, now = self._health.is_short_of_room(), time.monotonic()
        has_grown = self._log_bytes >= self._due
        if not has_grown and (now < self._again or not (is_short or self._mark.is_due)):
            return
        self._again = now + upkeep.TURN_SECONDS
        with self._committer.turns.held_off():  # syncs take long meanwhile
            self._copy_all(is_short=is_short, has_grown=has_grown)
        if has_grown:
            self._due = self._log_bytes + self._step

    def _copy_all(self, *, is_short: bool, has_grown: bool) -> None:
        self._mark.announce()
        self._copy(self._connection)
        waits = is_short or (has_grown and self._log_bytes > self._cap)
        mode = apsw.SQLITE_CHECKPOINT_RESTART if waits else apsw.SQLITE_CHECKPOINT_PASSIVE
        self.finish(mode, shrinks=is_short).wait()
        self._mark.confirm()

    def _copy(self, connection: apsw.Connection) -> None:
        """Copy the log, and what was added meanwhile, until little is left.

        While the committer copies that rest, all appends wait.
        """
        ends = time.monotonic() + upkeep.TURN_SECONDS
        for _ in range(_PASSES):
            before = self._log_bytes
            try:
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            except (apsw.IOError, apsw.FullError) as error:
                self._health.copy_failed(error)
                raise
            is_little = self._log_bytes - before < _LITTLE_BYTES
            if is_little or self._log_bytes > self._cap or self._stopping or time.monotonic() >= ends:
                return

    def finish(self, mode: int, *, shrinks: bool = False) -> Future[None]:
        """Let the committer copy what :meth:`_copy` left, and the mark.

        Then the log can start over with the next commit.

        :param shrinks: if the mark is the first commit of the log that starts over, that gives back space.
        """

        def copy() -> None:
            try:
                with short_waits(self._writer), self._shrinking() if shrinks else nullcontext():
                    # A partial copy proves nothing: SQLite syncs the file only when the last page of the log is in it.
                    if self._mark.write_last(self._writer, mode, may_write=self._health.refusal is None):
                        self._health.copy_succeeded()
            except apsw.BusyError:
                return  # a reader has an old snapshot, or a process writes: try again later
            except (apsw.IOError, apsw.FullError) as error:
                self._health.copy_failed(error)

        return self._committer.run_between(copy)

    @contextmanager
    def _shrinking(self) -> Iterator[None]:
        """Let a log that starts over while the block runs keep little space."""
        ((usual,),) = self._writer.execute("pragma journal_size_limit").fetchall()
        self._writer.execute(f"pragma journal_size_limit = {_KEPT_BYTES}").fetchall()
        try:
            yield
        finally:
            self._writer.execute(f"pragma journal_size_limit = {usual}").fetchall()
