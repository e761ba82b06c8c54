"""A job on Spark as a process: signals end it in order.

Ctrl-C and SIGTERM end it with one sentence and no traceback.

The handler of PySpark would raise in the middle of a call to the virtual machine. Here the main thread tells Spark to be
quiet and to end.
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
"""Spark has this long to remove its own files. A second signal does not wait for it."""


def run_until_told(job: Callable[[], None], left: Callable[[], str]) -> None:
    """Run a job to its end, or until a signal ends the process.

    :param left: says what an interrupted job leaves, and how to go on.
    :raises BaseException: whatever the job raised.
    """
    with hearing() as heard:
        run = Apart(job, "job", heard)
        for number in run.signals():
            _end(AT_SIGNAL + number, left, heard)
    run.check()


def _end(code: int, left: Callable[[], str], heard: Heard) -> NoReturn:
    """End the process, and Spark with it.

    Another signal ends it without waiting for Spark.
    """
    threading.Thread(target=_end_at_once, args=(left, heard), daemon=True).start()
    from qdo.pipeline.jobs.session import end

    logging.disable()  # py4j would log calls that get no answer any more
    end(_END_SECONDS)
    say(_below_the_bar() + left())
    sys.stdout.flush()
    os._exit(code)


def _end_at_once(left: Callable[[], str], heard: Heard) -> None:
    """Wait for another signal, and end.

    ``timeout`` and others send two at once. None only says that the job has ended, and nobody waits for that.
    """
    while (number := heard.get()) is None:
        continue
    say(_below_the_bar() + left())
    os._exit(AT_SIGNAL + number)


def _below_the_bar() -> str:
    """Begin a new line, for the cursor may be in the middle of one.

    A progress bar, or ^C on the terminal, leaves it there.
    """
    return "\n" if sys.stderr.isatty() else ""
