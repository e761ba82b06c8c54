"""How long a call waits for the store: a figure of the request log."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from time import perf_counter
from typing import Any, Generic, TypeVar, cast

from queuey.monitor.metrics import Monitor

__all__ = ["StoreTime"]

T = TypeVar("T")


class StoreTime:
    """Adds up the time of one call in the store.

    It is the time for which the call waited for a future, and the time of the store's calls that it made itself. The
    former includes waits for messages and for room, which the call's ticket knows.
    """

    __slots__ = ("_monitor", "seconds")

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self.seconds = 0.0

    def over(self, work: Coroutine[Any, None, T]) -> _Timed[T]:
        """The same work, with its time in the store added."""
        return _Timed(work, self)

    def send(self, work: Coroutine[Any, None, T]) -> Any:
        """Let work take its next step, and add what the store took of it."""
        before = self._monitor.seconds_here
        try:
            return work.send(None)
        finally:
            self.seconds += self._monitor.seconds_here - before


class _Timed(Generic[T]):
    __slots__ = ("_time", "_work")

    def __init__(self, work: Coroutine[Any, None, T], time: StoreTime) -> None:
        self._work, self._time = work, time

    def __await__(self) -> Generator[Any, None, T]:
        work, time = self._work, self._time
        try:
            while True:
                awaited = time.send(work)
                began = perf_counter()
                yield awaited
                time.seconds += perf_counter() - began
        except StopIteration as stop:
            return cast(T, stop.value)
        finally:
            work.close()  # if the caller has gone meanwhile; otherwise it has ended already
