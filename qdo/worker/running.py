"""Work as a process: the main thread waits for signals, and what they end runs in a thread of its own.

A handler only notes the signal's number: it may interrupt its own thread while that holds any lock, and would wait for it
for ever. The main thread does what the signal asks for, outside of the handler.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import active_children
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qdo.worker import Worker

SIGNALS = (signal.SIGTERM, signal.SIGINT)
AT_SIGNAL = 128
"""Exit code of what a signal ended: this and the signal's number, as shells have it."""


Heard = SimpleQueue[int | None]
"""Numbers of signals as they come, and None when the work is over: what a handler may put somewhere without a lock."""


@contextmanager
def hearing() -> Iterator[Heard]:
    """Have signals told by their number, in place of what they did before."""
    heard: Heard = SimpleQueue()
    before = {number: signal.signal(number, lambda told, _: heard.put(told)) for number in SIGNALS}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Apart:
    """Work in a thread of its own, which has begun."""

    def __init__(self, work: Callable[[], object], name: str, heard: Heard) -> None:
        """:param heard: gets None at the end of the work."""
        self._work = work
        self._heard = heard
        self._raised: BaseException | None = None
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - the main thread raises it again
            self._raised = error
        finally:
            self._heard.put(None)

    def signals(self) -> Iterator[int]:
        """Signals as they are heard, until the work is over."""
        while (number := self._heard.get()) is not None:
            yield number

    def check(self) -> None:
        """:raises BaseException: whatever it raised."""
        if self._raised is not None:
            raise self._raised


def run_until_told(worker: Worker, say: Callable[[str], None]) -> None:
    """Run a worker to its end: in order at the first signal, and at once at the second, for nothing waits for a job that hangs.

    :raises BaseException: whatever the worker raised.
    """
    told: list[int] = []
    with hearing() as heard:
        run = Apart(worker.run, "worker", heard)
        for number in run.signals():
            told.append(number)
            worker.stop(at_once=len(told) > 1)
            if len(told) == 1:
                say("qdo: ends when the jobs under way are done; once more to end at once")
    for child in active_children():
        child.terminate()  # a job in a process that was not waited for
    if len(told) > 1:
        sys.stderr.flush()
        os._exit(AT_SIGNAL + told[-1])
    run.check()
