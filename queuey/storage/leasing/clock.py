"""The clock that leases run by."""

from __future__ import annotations

from typing import NamedTuple

from queuey.clock import Clock
from queuey.ids import TICKS_PER_SECOND

__all__ = ["BootMoment", "LeaseClock"]


class BootMoment(NamedTuple):
    """A moment of a boot on the clock of leases."""

    boot: str
    elapsed: float
    ticks: int


class LeaseClock:
    """Rising moments of one process, in ticks, that no step of the wall clock moves (G21).

    They begin at the wall clock. A later process of the same boot goes on with the moments of the first, so a lease
    lasts as long as it was given for, whatever the wall clock does meanwhile. Another boot begins no earlier than the
    moment that was noted last: otherwise leases of the boot before would end when its wall clock has come so far again.
    """

    def __init__(self, clock: Clock, noted: BootMoment | None = None) -> None:
        """:param noted: a moment of an earlier process."""
        self._clock = clock
        boot, elapsed, now = clock.boot(), clock.elapsed(), clock.now_ticks()
        self.is_new = noted is None or not boot or noted.boot != boot
        """The store notes :attr:`began`: nothing is known of this boot."""
        self.began = BootMoment(boot, elapsed, now)
        if noted is not None:
            self.began = noted if not self.is_new else self.began._replace(ticks=max(now, noted.ticks))
        self._last = 0

    def now(self) -> int:
        """This moment; higher than all before. One thread at a time may ask."""
        self._last = max(self._last + 1, self.look())
        return self._last

    def look(self) -> int:
        """About this moment. Any thread may ask."""
        return self._at(self._clock.elapsed())

    def moment(self) -> BootMoment:
        """About this moment, for the store to note. Any thread may ask."""
        elapsed = self._clock.elapsed()
        return BootMoment(self.began.boot, elapsed, self._at(elapsed))

    def _at(self, elapsed: float) -> int:
        return self.began.ticks + round((elapsed - self.began.elapsed) * TICKS_PER_SECOND)
