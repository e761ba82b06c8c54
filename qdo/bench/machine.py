"""The machine a run was made on: what it is, and whether it had anything else to do."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from queuey._version import __version__
from queuey.errors import ConfigurationError
from queuey.file_limit import most_files

LOOK_SECONDS = 0.5
NICE = -10
"""Of a process of the generator. A server that shares its processors has 0, and waits while the generator sends or writes
down: on a machine of its own the generator would not have to wait for it."""


class ProcessorTimes(NamedTuple):
    """Ticks of all processors together since the machine began."""

    busy: int
    stolen: int
    """That the machine's host gave to others."""
    total: int

    def share(self, later: ProcessorTimes) -> tuple[float, float]:
        """What share of the time between the two was busy, and what share was stolen.

        >>> ProcessorTimes(10, 0, 100).share(ProcessorTimes(30, 5, 200))
        (0.2, 0.05)
        """
        total = max(1, later.total - self.total)
        return (later.busy - self.busy) / total, (later.stolen - self.stolen) / total


def processor_times() -> ProcessorTimes:
    """As of now; all zero where the system does not say."""
    try:
        first = Path("/proc/stat").read_text().splitlines()[0].split()
    except OSError:
        return ProcessorTimes(0, 0, 0)
    user, nice, system, idle, wait, irq, soft, stolen = map(int, first[1:9])
    busy = user + nice + system + irq + soft + stolen
    return ProcessorTimes(busy, stolen, busy + idle + wait)


def busy_share() -> float:
    """How busy the processors are without us: looked at for half a second."""
    before = processor_times()
    time.sleep(LOOK_SECONDS)
    return before.share(processor_times())[0]


class BusiestPart:
    """The share of a processor that a process uses, in the busier part of its time: while the load lasts, or after it.

    A process that waits for a last message after it was the limit of the load was the limit all the same.
    """

    LEAST_SECONDS = 0.5
    """Of a part that counts. The whole time always does."""

    def __init__(self, moment: float, used: float) -> None:
        """:param moment: seconds of the monotonic clock.
        :param used: seconds of processor time so far.
        """
        self._begin = moment, used
        self._ends = [self._begin]

    def loaded(self, moment: float, used: float) -> None:
        """The load is over. It counts the first time."""
        if len(self._ends) == 1:
            self._ends.append((moment, used))

    def share(self, moment: float, used: float) -> float:
        """Of one processor, until now.

        >>> use = BusiestPart(100, 7)
        >>> use.loaded(110, 16.5)
        >>> use.share(150, 17), BusiestPart(100, 7).share(150, 17)
        (0.95, 0.2)
        >>> BusiestPart(100, 7).share(100.25, 7.125)  # also where no part is long enough
        0.5
        """
        now = moment, used
        parts = zip(self._ends, [*self._ends[1:], now], strict=True)
        whole, *took = [(end[0] - begin[0], end[1] - begin[1]) for begin, end in ((self._begin, now), *parts)]
        counted = [whole, *(one for one in took if one[0] >= self.LEAST_SECONDS)]
        return max(busy / seconds for seconds, busy in counted if seconds > 0)


def run_before_others() -> int:
    """Let the system prefer this process and the threads that it makes from now on, if the user may ask for that.

    :returns: its niceness, -20 to 19; a lower one goes first.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    return os.getpriority(os.PRIO_PROCESS, 0)


def environment() -> Mapping[str, str]:
    """What the figures depend on beside the workload."""
    return {
        "harness": __version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()}",
        "processor": f"{os.cpu_count()} x {_processor()}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
        "load": " ".join(f"{one:.2f}" for one in os.getloadavg()),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


FILES_OF_PROCESS = 100
"""Open files of a process beside its connections."""
FILES_OF_SERVER = 1_200
"""Of a server that the run starts: its own, and what it keeps for connections above its bound."""


def demand_files(connections: int, *, with_server: bool) -> None:
    """Look whether these connections can be open at once.

    :param connections: of a process of the generator, or of all to the server that the run starts.
    :raises ConfigurationError: a process may not open the files that they need.
    """
    needed, most = connections + (FILES_OF_SERVER if with_server else FILES_OF_PROCESS), most_files()
    if needed > most:
        raise ConfigurationError(
            f"{connections:,} connections at once need {needed:,} open files, and a process may open {most:,} here: raise the "
            f"limit with 'ulimit -Hn {needed}' as root, or LimitNOFILE={needed} in a unit, or lower 'receivers' and "
            "'connections' in the workload"
        )
