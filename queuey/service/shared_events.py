"""Events that many streams send: each is made once a second, however many there are."""

from __future__ import annotations

from collections.abc import Callable

from queuey.clock import Clock

__all__ = ["SharedEvents"]


class SharedEvents:
    """The events of this second, by name. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now: tuple[int, dict[str, bytes]] = (0, {})

    def next_second(self) -> float:
        """The elapsed time at which the next second begins: for all streams at once."""
        return float(int(self._clock.elapsed()) + 1)

    def event(self, name: str, make: Callable[[], bytes]) -> bytes:
        """The event of this second. Two threads at once may make it twice."""
        second, made = self._now
        current = int(self._clock.elapsed())
        if second != current:
            made = {}
            self._now = current, made  # those of former seconds go
        event = made.get(name)
        if event is None:
            event = made[name] = make()
        return event
