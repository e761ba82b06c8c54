"""What requests wait for: processors, and threads that share them.

A line without priorities needs no events of its own. When a request comes, it is known when its turn begins, and so when
its work is done. That is exact as long as requests come in the order of time. Processors that threads share fairly, as those
of an operating system, need events.
"""

from __future__ import annotations

from collections.abc import Generator
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import Any

import simpy

__all__ = ["EventLoop", "SharedProcessors", "SharedThread", "Station", "Steps"]

Steps = Generator[simpy.Event, Any, None]
SLICE_SECONDS = 0.001
"""For which a thread has a processor, if others wait."""
HEAD_START_SECONDS = 0.003
"""By which a thread that slept is ahead of the others at most, however long it slept."""


class Station:
    """Some processors with one line. Whoever comes first is served first."""

    def __init__(self, env: simpy.Environment, processors: int, *, since: float = 0.0) -> None:
        """:param since: work before this moment is not counted as busy."""
        self.processors = processors
        self._env = env
        self._since = since
        self._free = [0.0] * processors
        self._busy = 0.0
        self.served = 0
        self.waited = 0.0
        """Seconds that requests waited for their turn, in all."""

    def reserve(self, seconds: float) -> float:
        """Take a place in the line now.

        :param seconds: of work on one processor.
        :returns: the moment at which the work is done.
        """
        now = self._env.now
        begin = max(now, self._free[0])
        end = begin + seconds
        heapreplace(self._free, end)
        self._busy += max(0.0, end - max(begin, self._since))
        self.served += 1
        self.waited += begin - now
        return end

    def serve(self, seconds: float) -> simpy.Timeout:
        """As :meth:`reserve`; an event at that moment."""
        return self._env.timeout(self.reserve(seconds) - self._env.now)

    def busy_share(self, until: float) -> float:
        """The share of its processors' time that work took; over 1 if more work came than it can do."""
        return self._busy / (self.processors * max(until - self._since, 1e-9))


class SharedThread:
    """One thread on processors that others use, too."""

    __slots__ = ("had",)

    def __init__(self) -> None:
        self.had = 0.0
        """Seconds of a processor that it counts as having had."""


class SharedProcessors:
    """Processors of one machine. Of the threads that wait, the one that has had least is next."""

    def __init__(self, env: simpy.Environment, processors: int, *, since: float = 0.0) -> None:
        """:param since: work before this moment is not counted as busy."""
        self.processors = processors
        self._env = env
        self._since = since
        self._free = processors
        self._waiting: list[tuple[float, int, simpy.Event]] = []
        self._turn = count()
        self._least = 0.0
        """What the thread that went last had had: those that sleep do not save up for later."""
        self._busy = 0.0

    def work(self, thread: SharedThread, seconds: float) -> Steps:
        """Work as this thread, in slices if others wait."""
        thread.had = max(thread.had, self._least - HEAD_START_SECONDS)
        while seconds > 0:
            if self._free:
                self._free -= 1
            else:
                turn = self._env.event()
                heappush(self._waiting, (thread.had, next(self._turn), turn))
                yield turn
            self._least = max(self._least, thread.had)
            part = min(SLICE_SECONDS, seconds)
            began = self._env.now
            yield self._env.timeout(part)
            self._busy += max(0.0, self._env.now - max(began, self._since))
            thread.had += part
            seconds = seconds - part if seconds > part else 0.0
            if self._waiting and (not seconds or self._waiting[0][0] < thread.had):
                heappop(self._waiting)[2].succeed()
            else:
                self._free += 1

    def busy_share(self, until: float) -> float:
        """The share of the processors' time that work took."""
        return self._busy / (self.processors * max(until - self._since, 1e-9))


class EventLoop:
    """A server on such processors: one thread, which takes in each turn all that has come, and hands it on at its end."""

    def __init__(self, env: simpy.Environment, processors: SharedProcessors, turn: float) -> None:
        """:param turn: seconds of the processor for each turn, beside those of what it takes."""
        self._env = env
        self._processors = processors
        self._seconds = turn
        self._thread = SharedThread()
        self._waiting: list[tuple[float, bool, simpy.Event]] = []
        self._wake = env.event()
        env.process(self._turns())

    def take(self, seconds: float, *, asks: bool) -> simpy.Event:
        """Work on something in the next turn.

        :param asks: it is a request, and no answer.
        :returns: an event at the end of that turn, with the number of requests that the turn took.
        """
        done = self._env.event()
        self._waiting.append((seconds, asks, done))
        if not self._wake.triggered:
            self._wake.succeed()
        return done

    def _turns(self) -> Steps:
        while True:
            if not self._waiting:
                self._wake = self._env.event()
                yield self._wake
            yield from self._processors.work(self._thread, self._seconds)
            taken, self._waiting = self._waiting, []
            for seconds, _, _ in taken:
                yield from self._processors.work(self._thread, seconds)
            together = sum(asks for _, asks, _ in taken)
            for _, _, done in taken:
                done.succeed(together)
