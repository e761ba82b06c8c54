"""What goes wrong with a system that a run started: it is killed or paused, and brought back."""

from __future__ import annotations

import random
from contextlib import suppress

from qdo.bench.clock import SECOND, LoadClock
from qdo.bench.systems import StartedSystem
from qdo.bench.workload import Killing


class FaultMaker:
    """Kills or pauses a system at drawn moments, and brings it back. The parent of the load calls it again and again."""

    def __init__(self, system: StartedSystem, killing: Killing, seed: int, clock: LoadClock) -> None:
        self._system = system
        self._killing = killing
        self._chance = random.Random(f"{seed}/faults")  # noqa: S311 -- repeatable, not secret
        self._clock = clock
        self._is_down = False
        self._next = 0
        """The moment of the next fault, or of its end; 0 before the load has begun."""
        self.done: list[tuple[int, str]] = []
        """Moments, and what was done then."""

    def __call__(self, is_sending: bool) -> None:
        """Do what is due. When all is sent the system stays up, or what it has could not be told from what it lost."""
        if not is_sending:
            self.heal()
            return
        now = self._clock.now()
        # Counted from the first look: until then processes start, and a system that fails meanwhile fails no load.
        self._next = self._next or now + self._drawn()
        if now < self._next:
            return
        is_kill = self._killing.signal == "kill"
        if self._is_down:
            self.heal()
            self._next = self._clock.now() + self._drawn()
            return
        with suppress(ProcessLookupError):
            (self._system.kill if is_kill else self._system.pause)()
        self._is_down = True
        self.done.append((now, "the server is killed" if is_kill else "the server is paused"))
        self._next = now + int(self._killing.mttr * SECOND)

    def heal(self) -> None:
        """Bring the system back if it is down."""
        if not self._is_down:
            return
        is_kill = self._killing.signal == "kill"
        (self._system.start if is_kill else self._system.resume)()
        self._is_down = False
        self.done.append((self._clock.now(), "the server is back"))

    def _drawn(self) -> int:
        return int(self._chance.expovariate(1 / self._killing.mttf) * SECOND)
