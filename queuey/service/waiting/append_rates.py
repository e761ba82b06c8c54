"""How many messages queues and partitions get a second, of those that somebody looks at.

It lies in memory, bounded, and what nobody looks at costs nothing.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from queuey.clock import Clock
from queuey.locks import new_lock
from queuey.model import Location, Queue

__all__ = ["FORGET_SECONDS", "MOST_APPLICATIONS", "MOST_LOOKED_AT", "MOST_QUEUES", "WINDOW_SECONDS", "AppendRates"]

WINDOW_SECONDS = 30.0
"""A rate is that of the last window, and of the one that goes on."""
FORGET_SECONDS = 120.0
"""What nobody looks at for this long is counted no longer."""
MOST_APPLICATIONS = 16
MOST_QUEUES = 10_000
"""Of an application, in one window; of further ones nothing is known."""
MOST_LOOKED_AT = 100
"""Queues whose partitions are counted: those that were looked at last."""

Whole = TypeVar("Whole", bound=Hashable)
Part = TypeVar("Part", int, str)


class AppendRates:
    """Messages that this server has acknowledged. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._applications = _LookedAt[str, str](MOST_APPLICATIONS)
        """Queues by their names."""
        self._queues = _LookedAt[tuple[str, str], int](MOST_LOOKED_AT)
        """Partitions, by application and queue."""
        self._lock = new_lock()

    def note(self, to: Queue, placed: Sequence[Location]) -> None:
        """A queue got messages."""
        if not (self._applications.counted or self._queues.counted):
            return
        application, queue = to.application, (to.application, to.name)
        if application in self._applications.counted:
            with self._lock:
                self._applications.note(application, {to.name: len(placed)}, self._clock.elapsed())
        if queue in self._queues.counted:
            parts = Counter([number for number, _ in placed])
            with self._lock:
                self._queues.note(queue, parts, self._clock.elapsed())

    def of(self, application: str) -> Mapping[str, float]:
        """Messages a second, of queues that got some in the last minute. From now on they are counted."""
        with self._lock:
            return self._applications.rates(application, self._clock.elapsed()) or {}

    def of_partitions(self, queue: Queue) -> Mapping[int, float] | None:
        """Messages a second, of partitions that got some in the last minute.

        :returns: None if nobody has looked at the queue lately: from now on it is counted.
        """
        with self._lock:
            return self._queues.rates((queue.application, queue.name), self._clock.elapsed())


class _LookedAt(Generic[Whole, Part]):
    """The messages of parts, for each whole that somebody looks at."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.counted: OrderedDict[Whole, _Counts[Part]] = OrderedDict()
        """The one that was looked at last comes last."""

    def note(self, whole: Whole, parts: Mapping[Part, int], now: float) -> None:
        """Some parts got messages. They are counted if somebody looks."""
        counts = self.counted.get(whole)
        if counts is None:
            return
        if now - counts.looked > FORGET_SECONDS:
            del self.counted[whole]
            return
        counts.turn(now)
        for part, messages in parts.items():
            if part in counts.now or len(counts.now) < MOST_QUEUES:
                counts.now[part] += messages

    def rates(self, whole: Whole, now: float) -> Mapping[Part, float] | None:
        """Messages a second; None if they are counted from now on."""
        counts = self.counted.get(whole)
        if counts is None or now - counts.looked > FORGET_SECONDS:
            self.counted[whole] = _Counts(now)
            self.counted.move_to_end(whole)
            while len(self.counted) > self._most:
                self.counted.popitem(last=False)
            return None
        self.counted.move_to_end(whole)
        counts.looked = now
        counts.turn(now)
        seconds = max(now - counts.since, 1.0)
        return {part: messages / seconds for part, messages in (counts.before + counts.now).items()}


class _Counts(Generic[Part]):
    """The messages of one whole."""

    __slots__ = ("before", "began", "looked", "now", "since")

    def __init__(self, now: float) -> None:
        self.looked = now
        self.since = self.began = now
        """When the window before began, and the one that goes on."""
        self.before: Counter[Part] = Counter()
        self.now: Counter[Part] = Counter()

    def turn(self, now: float) -> None:
        """Begin another window if it is time to."""
        if now - self.began < WINDOW_SECONDS:
            return
        is_old = now - self.began >= 2 * WINDOW_SECONDS
        self.before, self.now = Counter() if is_old else self.now, Counter()
        self.since, self.began = now if is_old else self.began, now
