"""A process's wall clock, stepped by a test while the process runs. Elapsed time is real: a clock that is set does not change it."""

from __future__ import annotations

import mmap
import struct
import time
from pathlib import Path

from queuey.ids import TICKS_PER_SECOND

_TICKS = struct.Struct("<q")


class Offset:
    """How far a process's wall clock is from the machine's: set by the test, read by the process, in one small file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            path.write_bytes(_TICKS.pack(0))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _TICKS.size)

    @property
    def ticks(self) -> int:
        found: int = _TICKS.unpack_from(self._shared)[0]
        return found

    def step(self, seconds: float) -> None:
        _TICKS.pack_into(self._shared, 0, self.ticks + round(seconds * TICKS_PER_SECOND))


def skew(offset: Offset) -> None:
    """From now on all code of this process sees this wall clock, libraries included."""
    wall, wall_ns = time.time, time.time_ns
    time.time = lambda: wall() + offset.ticks / TICKS_PER_SECOND
    time.time_ns = lambda: wall_ns() + offset.ticks * (10**9 // TICKS_PER_SECOND)
