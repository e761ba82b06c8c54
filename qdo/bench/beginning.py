"""Begins processes of the generator whole: no signal comes between."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker

__all__ = ["signals_wait"]


@contextmanager
def signals_wait() -> Iterator[None]:
    """SIGTERM and Ctrl-C count at the end of the block, in which a process may begin.

    A process that was half begun when its parent was ended would say so with a traceback. Nor does it ever get Ctrl-C, which a
    terminal sends to all processes: its parent ends it, and a handler of its own would come after its imports. Only the main
    thread may enter it.
    """
    resource_tracker.ensure_running()  # it begins with the first process otherwise, and lets SIGINT in again
    got: list[int] = []
    ending = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda number, _: got.append(number)) for number in ending}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # a process that begins has it, too
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
        if got:
            signal.raise_signal(got[0])
