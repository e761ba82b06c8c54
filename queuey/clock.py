"""Where time comes from: the system, or a test.

Two times are kept apart. ``now_ticks`` is the wall clock, which may be stepped. ``elapsed`` is
CLOCK_BOOTTIME, which neither a stepped clock nor a stopped or suspended process can fool: every
duration that a guarantee depends on is measured with it (G3).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from pathlib import Path

from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock(ABC):
    """Time, passed in."""

    @abstractmethod
    def now_ticks(self) -> int:
        """The wall clock, in 100 ns since 1582-10-15. May step, also backwards."""

    @abstractmethod
    def elapsed(self) -> float:
        """Seconds since boot, time asleep and stopped included. Never falls."""

    @abstractmethod
    def boot(self) -> str:
        """The name of the boot that ``elapsed`` counts from.

        Equal names make elapsed times comparable across processes.
        """


class SystemClock(Clock):
    """The machine's clocks."""

    def now_ticks(self) -> int:
        return time.time_ns() // 100 + EPOCH_TICKS

    def elapsed(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def boot(self) -> str:
        try:
            return _BOOT_ID.read_text().strip()
        except OSError:
            return ""


class ManualClock(Clock):
    """A clock that moves only when a test moves it.

    >>> clock = ManualClock()
    >>> before = clock.now_ticks()
    >>> clock.advance(1.5)
    >>> clock.now_ticks() - before
    15000000
    """

    def __init__(self, now_ticks: int = EPOCH_TICKS + 1_800_000_000 * TICKS_PER_SECOND) -> None:
        self._now = now_ticks
        self._elapsed = 1000.0

    def now_ticks(self) -> int:
        return self._now

    def elapsed(self) -> float:
        return self._elapsed

    def boot(self) -> str:
        return "manual"

    def advance(self, seconds: float) -> None:
        """Let time pass, on both clocks."""
        self._now += round(seconds * TICKS_PER_SECOND)
        self._elapsed += seconds

    def step(self, seconds: float) -> None:
        """Step the wall clock only, as an operator or NTP would; may be negative."""
        self._now += round(seconds * TICKS_PER_SECOND)
