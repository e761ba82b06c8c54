"""The one source of time: the monotonic clock of the machine, in nanoseconds, which all its processes share."""

from __future__ import annotations

import time
from typing import Protocol

SECOND = 1_000_000_000
MILLISECOND = 1_000_000


class LoadClock(Protocol):
    """Tells time and waits. Tests pass one that only counts."""

    def now(self) -> int:
        """Nanoseconds since some moment before the run."""

    def sleep_until(self, moment: int) -> None:
        """Return at this moment, or at once if it is over."""


class MonotonicClock:
    """``CLOCK_MONOTONIC``."""

    now = staticmethod(time.monotonic_ns)

    def sleep_until(self, moment: int) -> None:
        left = moment - time.monotonic_ns()
        if left > 0:
            time.sleep(left / SECOND)
