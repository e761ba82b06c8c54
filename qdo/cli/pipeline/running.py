"""A job on Spark as a process: Ctrl-C and SIGTERM end it in order, with a sentence, and nothing of two languages inside of each other.

PySpark's own handler would raise in the middle of a call to the virtual machine; here the main thread tells Spark to be quiet and to end.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from qdo.worker.running import AT_SIGNAL, Apart, Heard, hearing
from queuey.terminal.output import say

_END_SECONDS = 10.0
"""Spark has so long to remove what it keeps for itself; a second signal waits for nothing."""


def run_until_told(job: Callable[[], None], left: Callable[[], str]) -> None:
    """Run a job to its end; a signal ends the process.

    :param left: the sentence about what a job that is ended leaves behind, and how to go on.
    :raises BaseException: whatever the job raised.
    """
    with hearing() as heard:
        run = Apart(job, "job", heard)
        for number in run.signals():
            _end(AT_SIGNAL + number, left, heard)
    run.check()


def _end(code: int, left: Callable[[], str], heard: Heard) -> NoReturn:
    """End the process, and Spark with it; at another signal, without waiting for Spark."""
    threading.Thread(target=_end_at_once, args=(heard,), daemon=True).start()
    from qdo.pipeline.jobs.session import end

    logging.disable()  # what py4j says of calls that have no answer any more
    end(_END_SECONDS)
    say(_below_the_bar() + left())
    sys.stdout.flush()
    os._exit(code)


def _end_at_once(heard: Heard) -> None:
    """The job's own end says None, and is waited for no more."""
    while (number := heard.get()) is None:
        continue
    os._exit(AT_SIGNAL + number)


def _below_the_bar() -> str:
    """A bar, or what the terminal shows of Ctrl-C, leaves the cursor in its line."""
    return "\n" if sys.stderr.isatty() else ""
