"""A job on Spark as a process: Ctrl-C and SIGTERM end it in order, with a sentence, and nothing of two languages inside of each other.

PySpark's own handler would raise in the middle of a call to the virtual machine; here the main thread tells Spark to be quiet and to end.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable

from qdo.cli.running import AT_SIGNAL, Apart, hearing
from queuey.cli.output import say

_END_SECONDS = 10.0
"""Spark has so long to remove what it keeps for itself; a second signal waits for nothing."""


def run_until_told(job: Callable[[], None], left: Callable[[], str]) -> None:
    """Run a job to its end; a signal ends the process.

    :param left: the sentence about what a job that is ended leaves behind, and how to go on.
    :raises BaseException: whatever the job raised.
    """
    told: list[int] = []
    over = threading.Event()

    def tell(number: int) -> None:
        if told:
            os._exit(AT_SIGNAL + number)
        told.append(number)
        over.set()

    with hearing(tell):
        run = Apart(job, "job", over)
        run.wait()
        if told:
            _end(AT_SIGNAL + told[0], left)
    run.check()


def _end(code: int, left: Callable[[], str]) -> None:
    """End the process, and Spark with it."""
    from qdo.pipeline.jobs.session import end

    logging.disable()  # what py4j says of calls that have no answer any more
    end(_END_SECONDS)
    say(_below_the_bar() + left())
    sys.stdout.flush()
    os._exit(code)


def _below_the_bar() -> str:
    """A bar, or what the terminal shows of Ctrl-C, leaves the cursor in its line."""
    return "\n" if sys.stderr.isatty() else ""
