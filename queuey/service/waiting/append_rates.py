"""How many messages each queue gets a second, of the applications that somebody looks at.

It lies in memory, bounded, and an application at which nobody looks costs nothing.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping

from queuey.clock import Clock
from queuey.locks import new_lock

__all__ = ["FORGET_SECONDS", "MOST_APPLICATIONS", "MOST_QUEUES", "WINDOW_SECONDS", "AppendRates"]

WINDOW_SECONDS = 30.0
"""A rate is that of the last window, and of the one that goes on."""
FORGET_SECONDS = 120.0
"""An application at which nobody looks for this long is counted no longer."""
MOST_APPLICATIONS = 16
MOST_QUEUES = 10_000
"""Of an application, in one window; of further ones nothing is known."""


class AppendRates:
    """Messages that this server has acknowledged. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counted: OrderedDict[str, _Counts] = OrderedDict()
        """By application; the one that was looked at last comes last."""
        self._lock = new_lock()

    def note(self, application: str, queue: str, messages: int) -> None:
        """A queue got messages."""
        if application not in self._counted:
            return
        now = self._clock.elapsed()
        with self._lock:
            counts = self._counted.get(application)
            if counts is None:
                return
            if now - counts.looked > FORGET_SECONDS:
                del self._counted[application]
                return
            counts.turn(now)
            if queue in counts.now or len(counts.now) < MOST_QUEUES:
                counts.now[queue] += messages

    def of(self, application: str) -> Mapping[str, float]:
        """Messages a second, of queues that got some in the last minute. From now on they are counted."""
        now = self._clock.elapsed()
        with self._lock:
            counts = self._counted.get(application)
            if counts is None or now - counts.looked > FORGET_SECONDS:
                counts = self._counted[application] = _Counts(now)
                while len(self._counted) > MOST_APPLICATIONS:
                    self._counted.popitem(last=False)
            self._counted.move_to_end(application)
            counts.looked = now
            counts.turn(now)
            seconds = max(now - counts.since, 1.0)
            return {name: number / seconds for name, number in (counts.before + counts.now).items()}


class _Counts:
    """The messages of one application's queues."""

    __slots__ = ("before", "began", "looked", "now", "since")

    def __init__(self, now: float) -> None:
        self.looked = now
        self.since = self.began = now
        """When the window before began, and the one that goes on."""
        self.before: Counter[str] = Counter()
        self.now: Counter[str] = Counter()

    def turn(self, now: float) -> None:
        """Begin another window if it is time to."""
        if now - self.began < WINDOW_SECONDS:
            return
        is_old = now - self.began >= 2 * WINDOW_SECONDS
        self.before, self.now = Counter() if is_old else self.now, Counter()
        self.since, self.began = now if is_old else self.began, now
