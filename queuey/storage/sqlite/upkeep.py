"""What an embedded store does on the side: checkpoints, expiry, and noting how far time has got.

The keeper's thread never writes itself: it hands small jobs to the committer, and copies the
write-ahead log into the file over a connection of its own, so that commits go on meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import apsw

from queuey.errors import QueueyError
from queuey.storage.sqlite.scrub import DAMAGE, Scrub, own_check

if TYPE_CHECKING:
    from queuey.storage.sqlite.file import SqliteFile
    from queuey.storage.sqlite.mark import Mark

log = logging.getLogger(__name__)

TURN_SECONDS = 1.0
"""How often the keeper looks around; also how stale the noted moment can be, unless one pass over the log takes longer."""
PURGE_ROWS = 2000
"""Rows deleted in one transaction: a few milliseconds of the committer's time."""
CHECKPOINT_BYTES = 16 << 20
"""Of the write-ahead log, from which on it is copied into the file."""
_LITTLE_BYTES = 1 << 20
"""Of the log, that may be left for the committer to copy."""
SCRUB_PAUSE_SECONDS = 60.0
"""Between two searches for damage: of a small store each takes a moment."""
_PASSES = 8
"""Most that the keeper makes to leave no more, in one turn's time: it has the moment to note as well."""


class Upkeep:
    """One thread per served store."""

    def __init__(
        self,
        store: SqliteFile,
        mark: Mark,
        connect: Callable[[], apsw.Connection],
        log_bytes_cap: int,
        scrub_percent: int,
    ) -> None:
        """:param scrub_percent: share of one core's time for the search for damage; 0 is none."""
        self._store = store
        self._mark = mark
        self._connect = connect
        self._cap = log_bytes_cap
        self._log_bytes = 0
        self._step = min(CHECKPOINT_BYTES, log_bytes_cap)
        self._due = self._step
        self._again = 0.0
        """From this moment on the log may be copied without having grown by a step."""
        self._noted, self._looked = 0, 0.0
        self._wake = threading.Event()
        self._stopping = False
        self._ending = threading.Event()
        self._scrub_percent = scrub_percent
        self._checker: apsw.Connection | None = None
        self._looked_at_pages = False
        self._threads = [
            threading.Thread(target=work, name=name, daemon=True)
            for name, work in (("keeper", self._work), ("store-check", self._check))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End after the step under way."""
        self._stopping = True
        self._ending.set()
        self._wake.set()
        self._interrupt_check()
        for thread in self._threads:
            thread.join()

    def _interrupt_check(self) -> None:
        with contextlib.suppress(apsw.ConnectionClosedError):
            if self._checker is not None:
                self._checker.interrupt()

    def committed(self, log_bytes: int) -> None:
        """The committer tells how long the write-ahead log is now."""
        if log_bytes < self._log_bytes:
            self._due = self._step  # it has started over
        self._log_bytes = log_bytes
        if log_bytes >= self._due and not self._wake.is_set():
            self._wake.set()

    def _check(self) -> None:
        """Look for damage beside the requests. What fails is tried again a minute later: of errors only those of damage are damage."""
        while not self._stopping:
            try:
                return self._search()
            except apsw.InterruptError:
                return None
            except DAMAGE as error:
                self._store.found_damage(str(error))
            except Exception as error:  # also one that nobody foresaw: the search goes on
                log.warning("the search for damage failed: %s", error, exc_info=True)
                self._store.searched(error)
            self._ending.wait(SCRUB_PAUSE_SECONDS)
        return None

    def _search(self) -> None:
        """IdempotencyKey at the pages, as fast as it goes, then again and again at what they say, slowly."""
        self._checker = self._connect()
        try:
            if not self._looked_at_pages:
                (verdict,) = own_check(self._checker, "quick_check(1)")
                self._looked_at_pages = True
                self._store.searched()
                if verdict != "ok":
                    self._store.found_damage(verdict)
            while self._scrub_percent and not self._stopping:
                self._scrub(Scrub(self._checker))
        finally:
            self._checker.close()

    def _scrub(self, scrub: Scrub) -> None:
        """One pass, and a rest of at least a minute."""
        began, known = time.monotonic(), 0
        for _ in scrub.steps():
            if len(scrub.found) > known:
                known = len(scrub.found)
                self._store.found_hidden(scrub)
            if not self._rests(time.monotonic() - began):
                return
            began = time.monotonic()
        if scrub.found:
            self._store.found_hidden(scrub)
        self._store.searched()
        log.info("searched the store for damage", extra={"findings": scrub.found.total()})
        self._ending.wait(SCRUB_PAUSE_SECONDS)

    def _rests(self, worked_seconds: float) -> bool:
        """Keep to the share of time after a step; False when it is time to end."""
        return not self._ending.wait(worked_seconds * (100 / self._scrub_percent - 1))

    def _work(self) -> None:
        connection, more, said = self._connect(), False, ""
        while self._rested(0.0 if more else TURN_SECONDS):
            try:
                self._store.probe()
                self._checkpoint(connection)
                self._note_moment()
                more, said = self._tidy(), ""
            except DAMAGE as error:
                more = False
                self._store.found_damage(str(error))
            except (apsw.Error, QueueyError, OSError) as error:
                more = False
                if str(error) != said:
                    said = str(error)
                    log.warning("the keeper's turn failed: %s", error)
            except Exception:
                more = False
                log.exception("the keeper's turn failed")  # and go on: the log is to be copied and room given back
        connection.close()

    def _rested(self, seconds: float) -> bool:
        """Wait for the next turn; False when it is time to end."""
        self._wake.wait(seconds)
        self._wake.clear()
        return not self._stopping

    def _checkpoint(self, connection: apsw.Connection) -> None:
        """CachedRun the log into the file; the committer copies the rest and starts the log over, with a new mark in the file.

        That is done after each step that the log has grown by. Past the cap the committer waits for readers too, so that
        the log cannot grow for ever. In between, a mark that is due is tried again, and on a disk that is short the log's own
        room is given back: once in a turn's time, since the committer may wait in vain.
        """
        short, now = self._store.is_short_of_room(), time.monotonic()
        has_grown = self._log_bytes >= self._due
        if not has_grown and (now < self._again or not (short or self._mark.is_due)):
            return
        self._again = now + TURN_SECONDS
        self._mark.announce()
        self._copy(connection)
        finish = apsw.SQLITE_CHECKPOINT_PASSIVE
        if short:
            finish = apsw.SQLITE_CHECKPOINT_TRUNCATE
        elif has_grown and self._log_bytes > self._cap:
            finish = apsw.SQLITE_CHECKPOINT_RESTART
        self._store.finish_checkpoint(finish, self._mark).wait()
        self._mark.confirm()
        if has_grown:
            self._due = self._log_bytes + self._step

    def _copy(self, connection: apsw.Connection) -> None:
        """CachedRun the log, and what came meanwhile, until that is little: for what is left the committer keeps all who append waiting."""
        ends = time.monotonic() + TURN_SECONDS
        for _ in range(_PASSES):
            before = self._log_bytes
            try:
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            except (apsw.IOError, apsw.FullError) as error:
                self._store.copied(error)
                raise
            is_little = self._log_bytes - before < _LITTLE_BYTES
            if is_little or self._log_bytes > self._cap or self._stopping or time.monotonic() >= ends:
                return

    def _note_moment(self) -> None:
        """IdempotencyKey a second, if it moved, or should."""
        now = time.monotonic()
        moment = self._store.newest_moment()
        if now - self._looked >= TURN_SECONDS / 2 and (moment != self._noted or self._store.time_is_held_back):
            self._store.note_moment()
            self._noted, self._looked = moment, now

    def _tidy(self) -> bool:
        """Give back some room of what expired or was dropped, and put together some of what was read; True if there is more to do."""
        purged = self._store.has_refuse() and self._store.purge(PURGE_ROWS).wait() > 0
        return self._store.tidy_some() or purged
