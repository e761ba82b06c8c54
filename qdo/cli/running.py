"""Work as a process: the main thread hears signals, and what they end runs in a thread of its own.

A handler that runs in the middle of a worker's loop could wait for a lock that the loop holds, and one in the middle of a call
to another program could leave an answer that nobody takes.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import active_children
from typing import TYPE_CHECKING

from queuey.cli.output import say

if TYPE_CHECKING:
    from qdo.worker import Worker

SIGNALS = (signal.SIGTERM, signal.SIGINT)
AT_SIGNAL = 128
"""Exit code of what a signal ended: this and the signal's number, as shells have it."""


@contextmanager
def hearing(tell: Callable[[int], None]) -> Iterator[None]:
    """Have signals told by their number, in place of what they did before."""
    before = {number: signal.signal(number, lambda told, _: tell(told)) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Apart:
    """Work in a thread of its own, which has begun."""

    def __init__(self, work: Callable[[], object], name: str, over: threading.Event) -> None:
        """:param over: set at its end; who sets it before lets it run alone."""
        self._work = work
        self._over = over
        self._raised: BaseException | None = None
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - the main thread raises it again
            self._raised = error
        finally:
            self._over.set()

    def wait(self) -> None:
        """Until it is over; signals are heard meanwhile."""
        while not self._over.wait(0.5):
            pass

    def check(self) -> None:
        """:raises BaseException: whatever it raised."""
        if self._raised is not None:
            raise self._raised


def run_until_told(worker: Worker) -> None:
    """Run a worker to its end: in order at the first signal, and at once at the second, for nothing waits for a job that hangs.

    :raises BaseException: whatever the worker raised.
    """
    told: list[int] = []

    def tell(number: int) -> None:
        told.append(number)
        worker.stop(at_once=len(told) > 1)
        if len(told) == 1:
            say("qdo: ends when the jobs under way are done; once more to end at once")

    with hearing(tell):
        run = Apart(worker.run, "worker", threading.Event())
        run.wait()
    for child in active_children():
        child.terminate()  # a job in a process that was not waited for
    if len(told) > 1:
        sys.stderr.flush()
        os._exit(AT_SIGNAL + told[-1])
    run.check()
