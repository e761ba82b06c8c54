"""Searches a served store for damage, in a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import apsw

from queuey.locks import new_lock
from queuey.storage.sqlite.health import DiskHealth
from queuey.storage.sqlite.scrub import DAMAGE, Scrub, described, own_check

__all__ = ["DamageSearch"]

log = logging.getLogger(__name__)

SCRUB_PAUSE_SECONDS = 60.0
"""The least time between two searches: for a small store each takes a moment."""
_STOP_SECONDS = 0.05
"""How long a stop waits for the step under way, before it interrupts it once more."""
_LISTED = 5
"""Kinds of damage that readiness lists."""


class DamageSearch:
    """Looks for damage while the store is served.

    It checks the pages when the store opens, as fast as possible; then the content again and again, slowly.
    """

    def __init__(
        self, connect: Callable[[], apsw.Connection], health: DiskHealth, unsound: set[bytes], scrub_percent: int
    ) -> None:
        """:param unsound: receives the keys of partitions in which an index hides messages.
        :param scrub_percent: share of one core's time; 0 checks only the pages.
        """
        self._connect = connect
        self._health = health
        self._unsound = unsound
        self._percent = scrub_percent
        self._ending = threading.Event()
        self._connection: apsw.Connection | None = None
        """None while there is nothing to interrupt."""
        self._lock = new_lock()
        """Guards it: no connection is interrupted that is being closed."""
        self._looked_at_pages = False
        self._thread = threading.Thread(target=self._work, name="store-check", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop after the step under way; a check of the pages is interrupted."""
        self._ending.set()
        while self._thread.is_alive():  # a check that has only just begun misses an interrupt
            with self._lock:
                if self._connection is not None:
                    self._connection.interrupt()
            self._thread.join(_STOP_SECONDS)

    def _work(self) -> None:
        """Search; after an error, search again a minute later.

        Only errors that SQLite raises for damage count as damage.
        """
        while not self._ending.is_set():
            try:
                return self._search()
            except apsw.InterruptError:
                return None
            except DAMAGE as error:
                self._health.report_damage(str(error))
            except Exception as error:  # even an unforeseen one: the search goes on
                log.warning("the search for damage failed: %s", error, exc_info=True)
                self._health.search_error = str(error) or type(error).__name__
            self._ending.wait(SCRUB_PAUSE_SECONDS)
        return None

    def _search(self) -> None:
        connection = self._connection = self._connect()
        try:
            if not self._looked_at_pages:
                (verdict,) = own_check(connection, "quick_check(1)")
                self._looked_at_pages = True
                self._health.search_error = ""
                if verdict != "ok":
                    self._health.report_damage(verdict)
            while self._percent and not self._ending.is_set():
                self._scrub(Scrub(connection))
        finally:
            with self._lock:
                self._connection = None
            connection.close()

    def _scrub(self, scrub: Scrub) -> None:
        """Make one pass, and pause for at least a minute."""
        began, known = time.monotonic(), 0
        for _ in scrub.steps():
            if len(scrub.found) > known:
                known = len(scrub.found)
                self._report(scrub)
            if not self._rests(time.monotonic() - began):
                return
            began = time.monotonic()
        if scrub.found:
            self._report(scrub)
        self._health.search_error = ""
        if scrub.found:  # without: a line a minute that says nothing would bury the others
            log.warning("searched the store for damage", extra={"findings": scrub.found.total()})
        self._ending.wait(SCRUB_PAUSE_SECONDS)

    def _rests(self, worked_seconds: float) -> bool:
        """Pause after a step, to stay within the share of time.

        False when it is time to end.
        """
        return not self._ending.wait(worked_seconds * (100 / self._percent - 1))

    def _report(self, scrub: Scrub) -> None:
        """Stop writing, and refuse reads that may miss messages (G18).

        Indexes and tables do not agree.
        """
        self._unsound.update(finding.partition_key for finding in scrub.found)
        told = [described(scrub.connection, finding, count) for finding, count in scrub.found.most_common(_LISTED)]
        more = f", and {len(scrub.found) - _LISTED} more kinds" if len(scrub.found) > _LISTED else ""
        self._health.report_damage(f"{'; '.join(told)}{more}: run 'queuey verify' for all of it")
