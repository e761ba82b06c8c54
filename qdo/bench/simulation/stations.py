"""What requests wait for: processors, and the interpreter of a server.

A line without priorities needs no events of its own. When a request comes, it is known when its turn begins, and so when
its work is done. That is exact as long as requests come in the order of time.
"""

from __future__ import annotations

from heapq import heapreplace

import simpy

__all__ = ["Station"]


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

    def stop(self, until: float) -> None:
        """Do nothing from now until this moment. What is in the line then goes on."""
        self._free = [max(free, until) for free in self._free]

    @property
    def backlog(self) -> float:
        """Seconds until a request that comes now would have its turn."""
        return max(0.0, self._free[0] - self._env.now)

    def busy_share(self, until: float) -> float:
        """The share of its processors' time that work took; over 1 if more work came than it can do."""
        return self._busy / (self.processors * max(until - self._since, 1e-9))
