"""Processors that do not fall asleep.

A thread that wakes a sleeping processor pays for that, and so does the thread that begins there: on a virtual machine, both leave
it for its host. So a lone request costs more on a machine that is idle else than on one that is busy, where nothing sleeps.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

_SPIN = """
import os
os.nice(19)
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""


@contextmanager
def awake_processors() -> Iterator[None]:
    """Each processor has a program that runs while no other wants it, and gives way at once to one that does.

    The programs end with the block, or when this process is gone.
    """
    with ExitStack() as running:
        for _ in range(os.cpu_count() or 1):
            program = running.enter_context(subprocess.Popen([sys.executable, "-c", _SPIN]))
            running.callback(program.kill)
        yield
