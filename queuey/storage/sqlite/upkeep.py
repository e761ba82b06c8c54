"""Background work of an embedded store, in a thread of its own.

It makes checkpoints, purges expired messages, and notes how far time has got. The thread never writes messages itself:
it submits small jobs to the committer, and copies the write-ahead log into the file over a connection of its own, so
that commits go on meanwhile. Each part of a store registers its work.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

import apsw

from queuey.errors import QueueyError
from queuey.storage.sqlite.scrub import DAMAGE

__all__ = ["TURN_SECONDS", "Upkeep"]

log = logging.getLogger(__name__)

TURN_SECONDS = 1.0
"""Length of a turn. It is also the greatest age of the noted moment, unless one pass over the log takes longer."""

Duty = Callable[[], None]
Chore = Callable[[], bool]
"""Does some work; returns True as long as there is more."""


class Upkeep:
    """One thread for each served store."""

    def __init__(self, duties: Sequence[Duty], found_damage: Callable[[str], None]) -> None:
        """:param duties: run first in each turn, in this order.
        :param found_damage: called with SQLite's words for damage that a turn meets.
        """
        self._duties = duties
        self._found_damage = found_damage
        self._chores: list[Chore] = []
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="upkeep", daemon=True)

    def add(self, chore: Chore) -> None:
        """Run this chore in each turn, and go on without a pause while it has more to do."""
        self._chores.append(chore)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop after the step under way."""
        self._stopping = True
        self._wake.set()
        self._thread.join()

    def wake(self) -> None:
        """Begin the next turn now."""
        if not self._wake.is_set():
            self._wake.set()

    def _work(self) -> None:
        more, said = False, ""
        while self._rested(0.0 if more else TURN_SECONDS):
            try:
                for duty in self._duties:
                    duty()
                more, said = self._tidy(), ""
            except DAMAGE as error:
                more = False
                self._found_damage(str(error))
            except (apsw.Error, QueueyError, OSError) as error:
                more = False
                if str(error) != said:  # log a repeated failure only once
                    said = str(error)
                    log.warning("a turn of the upkeep failed: %s", error)
            except Exception:
                more = False
                log.exception("a turn of the upkeep failed")  # go on: the log must be copied, and space given back

    def _rested(self, seconds: float) -> bool:
        """Wait for the next turn; False when it is time to end."""
        self._wake.wait(seconds)
        self._wake.clear()
        return not self._stopping

    def _tidy(self) -> bool:
        """Run each chore; True if one of them has more to do."""
        outcomes = [chore() for chore in list(self._chores)]  # a list, so that each has its turn
        return True in outcomes
