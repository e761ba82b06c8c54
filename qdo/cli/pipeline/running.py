"""A job on Spark as a process: Ctrl-C and SIGTERM end it in order, with a sentence, and nothing of two languages inside of each other.

The job runs in a thread of its own. PySpark's handler would raise in the middle of a call to the virtual machine, whose answer nobody
takes then; here the main thread alone hears signals, and tells Spark to be quiet and to end.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

from queuey.cli.output import say

SIGNALS = (signal.SIGTERM, signal.SIGINT)
AT_SIGNAL = 128
"""Exit code of a job that a signal ended: this and the signal's number, as shells have it."""
_END_SECONDS = 10.0
"""Spark has so long to remove what it keeps for itself; a second signal waits for nothing."""


def run_until_told(job: Callable[[], None], left: Callable[[], str]) -> None:
    """Run a job to its end; a signal ends the process.

    :param left: the sentence about what a job that is ended leaves behind, and how to go on.
    :raises BaseException: whatever the job raised.
    """
    raised: list[BaseException] = []
    over = threading.Event()
    told: list[int] = []

    def run() -> None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001 - the main thread raises it again
            raised.append(error)
        finally:
            over.set()

    def tell(number: int, frame: FrameType | None) -> None:
        if told:
            os._exit(AT_SIGNAL + number)
        told.append(number)
        over.set()

    before = {number: signal.signal(number, tell) for number in SIGNALS}
    threading.Thread(target=run, name="job", daemon=True).start()
    try:
        while not over.wait(0.5):
            pass
        if told:
            _end(AT_SIGNAL + told[0], left)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if raised:
        raise raised[0]


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
