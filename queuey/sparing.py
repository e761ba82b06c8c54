"""Logs what is repeated a thousand times once a second, so that a full disk does not fill up with lines about it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable

from queuey.locks import new_lock

__all__ = ["QUIET_SECONDS", "SparingLog"]

QUIET_SECONDS = 1.0
"""After a line, others of its kind are only counted for so long."""
_MOST_KINDS = 1000
"""Kinds that are remembered. Beyond them all are forgotten, and each has a line again."""


class SparingLog:
    """Writes the first line of a kind at once, and others of it once a second, with the number of those in between.

    Thread-safe.
    """

    def __init__(self, log: logging.Logger, elapsed: Callable[[], float] = time.monotonic) -> None:
        """:param elapsed: gives seconds that never fall."""
        self._log, self._elapsed = log, elapsed
        self._lock = new_lock()
        self._kinds: dict[Hashable, tuple[float, int]] = {}
        """When each kind had its last line, and how many it had none for since."""

    def write(self, kind: Hashable, level: int, text: str, *values: object, **extra: object) -> None:
        """Write a line, or count it.

        :param level: as in :mod:`logging`.
        :param text: with the marks of ``%`` for the values.
        :param extra: further fields of the line. A line for which others were left out has ``left_out`` as well.
        """
        left_out = self._left_out(kind)
        if left_out is None:
            return
        if left_out:
            text, values = f"{text} (and %d like it before)", (*values, left_out)
            extra["left_out"] = left_out
        self._log.log(level, text, *values, extra=extra)

    def _left_out(self, kind: Hashable) -> int | None:
        """How many lines of a kind were left out before this one; None if it is left out as well."""
        now = self._elapsed()
        with self._lock:
            written, left_out = self._kinds.get(kind, (now - QUIET_SECONDS, 0))
            if now - written < QUIET_SECONDS:
                self._kinds[kind] = written, left_out + 1
                return None
            if len(self._kinds) >= _MOST_KINDS:
                self._kinds.clear()
            self._kinds[kind] = now, 0
            return left_out
