"""A job on Spark as a process: signals end it in order.

Ctrl-C and SIGTERM end it with one sentence and no traceback.

The handler of PySpark would raise in the middle of a call to the virtual machine. Here the main thread tells Spark to be
quiet and to end.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import NoReturn

from qdo.worker.running import AT_SIGNAL, TWICE_SECONDS, Apart, Heard, hearing
from queuey.terminal.output import say

_END_SECONDS = 10.0
"""Spark has this long to remove its own files. A second signal does not wait for it."""


def run_until_told(job: Callable[[], None], left: Callable[[], str]) -> None:
    """Run a job to its end, or until a signal ends the process.

    :param left: says what an interrupted job leaves, and how to go on.
    :raises BaseException: whatever the job raised.
    """
    with hearing() as heard:
        run = Apart(job, "job", heard)
        for number in run.signals():
            _end(number, left, heard)
    run.check()


def _end(number: int, left: Callable[[], str], heard: Heard) -> NoReturn:
    """End the process, and Spark with it.

    Another signal ends it without waiting for Spark.
    """
    threading.Thread(target=_end_at_once, args=(left, heard, time.monotonic() + TWICE_SECONDS), daemon=True).start()
    from qdo.pipeline.jobs.session import end

    logging.disable()  # py4j would log calls that get no answer any more
    end(_END_SECONDS)
    say(_below_the_bar() + left())
    sys.stdout.flush()
    os._exit(AT_SIGNAL + number)


def _end_at_once(left: Callable[[], str], heard: Heard, one_until: float) -> None:
    """End at another signal."""
    number = _another(heard, one_until)
    say(_below_the_bar() + left())
    os._exit(AT_SIGNAL + number)


def _another(heard: Heard, one_until: float, clock: Callable[[], float] = time.monotonic) -> int:
    """Wait for another signal.

    ``timeout`` and others send two at once, and a terminal that goes, and its shell, a SIGHUP each: these are one signal.
    None only says that the job has ended, and nobody waits for that.

    :param one_until: signals up to this moment of the monotonic clock belong to the first one.
    """
    while True:
        number = heard.get()
        if number not in (None, signal.SIGHUP) and clock() >= one_until:
            return number


def _below_the_bar() -> str:
    """Begin a new line, for the cursor may be in the middle of one.

    A progress bar, or ^C on the terminal, leaves it there.
    """
    return "\n" if sys.stderr.isatty() else ""
