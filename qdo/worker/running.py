"""Work until a signal.

The main thread waits for signals, and the work runs in a thread of its own.

A signal handler only notes the number of the signal. It may interrupt its own thread while that holds a lock, and would
then wait for the lock for ever. The main thread does what the signal asks for, outside the handler.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import active_children
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qdo.worker import Worker

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
AT_SIGNAL = 128
"""Exit code after a signal: this and the number of the signal, as in shells."""
CHILD_SECONDS = 1.0
"""From SIGTERM to SIGKILL, for the process of a job that goes on after the time that jobs have at the end."""
TWICE_SECONDS = 0.1
"""Signals within this time are one: ``timeout``, and others that pass signals on, send one to the process and one to its group."""


Heard = SimpleQueue[int | None]
"""The numbers of signals, and None when the work is over. A handler can put into it without a lock."""


@contextmanager
def hearing() -> Iterator[Heard]:
    """Receive signals by their number, in place of what they did before.

    SIGHUP, which comes when the terminal goes, is left alone where it is ignored, as by ``nohup``.
    """
    heard: Heard = SimpleQueue()
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    wanted = [number for number in SIGNALS if number != signal.SIGHUP or not ignored]
    before = {number: signal.signal(number, lambda told, _: heard.put(told)) for number in wanted}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Apart:
    """Work in a thread of its own. Making it starts the thread."""

    def __init__(self, work: Callable[[], object], name: str, heard: Heard) -> None:
        """:param heard: gets None when the work is over."""
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
        """Signals as they come, until the work is over."""
        while (number := self._heard.get()) is not None:
            yield number

    def pass_over(self, seconds: float) -> None:
        """Ignore the signals of this time. It ends when the work is over."""
        until = time.monotonic() + seconds
        with suppress(Empty):
            while (left := until - time.monotonic()) > 0:
                if self._heard.get(timeout=left) is None:
                    self._heard.put(None)
                    return

    def check(self) -> None:
        """:raises BaseException: whatever the work raised."""
        if self._raised is not None:
            raise self._raised


def run_until_told(worker: Worker, say: Callable[[str], None]) -> None:
    """Run a worker until it ends or a signal comes.

    The first signal ends it in order. The second one ends the process at once, since nothing waits for a job that hangs. A
    SIGHUP is never the second one: a terminal that goes, and its shell, send one each.

    :raises BaseException: whatever the worker raised.
    """
    told: list[int] = []
    with hearing() as heard:
        run = Apart(worker.run, "worker", heard)
        for number in run.signals():
            if told and number == signal.SIGHUP:
                continue
            told.append(number)
            worker.stop(at_once=len(told) > 1)
            if len(told) == 1:
                run.pass_over(TWICE_SECONDS)
                say("qdo: ends when the jobs under way are done; a second signal ends it at once")
    _end_children(0.0 if len(told) > 1 else CHILD_SECONDS)
    if len(told) > 1:
        sys.stderr.flush()
        os._exit(AT_SIGNAL + told[-1])
    run.check()


def _end_children(seconds: float) -> None:
    """End the processes whose jobs were not waited for.

    :param seconds: for jobs that do something of their own at a SIGTERM.
    """
    children, until = active_children(), time.monotonic() + seconds
    for child in children:
        child.terminate()
    for child in children:
        child.join(max(0.0, until - time.monotonic()))
        with suppress(ProcessLookupError):
            child.kill()
