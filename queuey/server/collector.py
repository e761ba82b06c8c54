"""When Python's garbage collector looks for reference cycles."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable

__all__ = ["CollectorTurns", "look_seldom"]

YOUNG_SECONDS, ALL_SECONDS = 0.1, 60.0
"""The least time between two looks: at what was made since the one before, and at everything."""
YOUNG_SHARE, ALL_SHARE = 0.05, 0.001
"""The most of the time that either may take."""
THRESHOLDS = (50_000, 1_000_000, 1_000_000)
"""A burst of objects is looked at between two turns; never all objects."""


def look_seldom() -> None:
    """Let the collector pass over what is loaded now, and look for cycles by itself in bursts of objects only.

    With Python's own thresholds it takes some 4 % of an append.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


class CollectorTurns:
    """Looks for cycles in turns that are short.

    Requests make no cycles, so there is next to nothing to find. But a look takes some 0.4 us for each object, a request
    that waits is some sixty of them, and meanwhile nothing else is done. By itself the collector looks at new objects once
    50,000 more were made than freed. Where each request that ends makes place for another one, that is hardly ever: then
    it looked at those of 5,000 waiting requests in one piece of 130 ms (``python -m tests.bench --only sqs-waiting``). So
    there is a look every :data:`YOUNG_SECONDS` at the few objects that were made since the one before and live still, and
    one every :data:`ALL_SECONDS` at everything. Looks that take long come less often, so their share of the time is
    bounded.
    """

    def __init__(
        self, elapsed: Callable[[], float] = time.perf_counter, collect: Callable[[int], object] = gc.collect
    ) -> None:
        """:param collect: looks at a generation of objects and those younger, as :func:`gc.collect`."""
        self._elapsed, self._collect = elapsed, collect
        self._all_due = elapsed() + ALL_SECONDS

    def turn(self) -> float:
        """Look at what is due.

        :returns: the seconds until the next turn.
        """
        began = self._elapsed()
        is_whole = began >= self._all_due
        self._collect(2 if is_whole else 0)
        ended = self._elapsed()
        if is_whole:
            self._all_due = ended + max(ALL_SECONDS, (ended - began) / ALL_SHARE)
            return YOUNG_SECONDS
        return max(YOUNG_SECONDS, (ended - began) / YOUNG_SHARE)

    def keep_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take turns for as long as the loop runs."""
        loop.call_later(self.turn(), self.keep_on, loop)
