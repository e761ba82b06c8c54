"""A worker as a process: it ends in order at the first signal, and at once at the second."""

from __future__ import annotations

import os
import signal
import sys
import threading
from multiprocessing import active_children
from types import FrameType

from qdo.worker import Worker
from queuey.cli.output import say

SIGNALS = (signal.SIGTERM, signal.SIGINT)
AT_ONCE = 128
"""Exit code of a worker that a second signal ended: this and the signal's number, as shells have it."""


def run_until_told(worker: Worker) -> None:
    """Run a worker to its end.

    It runs in a thread of its own: a handler that runs in the middle of its loop could wait for a lock that the
    loop holds. A second signal ends the process itself, for nothing waits for a job that hangs.

    :raises Exception: whatever the worker raised.
    """
    raised: list[BaseException] = []
    over = threading.Event()

    def run() -> None:
        try:
            worker.run()
        except BaseException as error:  # noqa: BLE001 - the main thread raises it again
            raised.append(error)
        finally:
            over.set()

    told = 0

    def tell(number: int, frame: FrameType | None) -> None:
        nonlocal told
        told = number if told else -1
        worker.stop(at_once=told > 0)
        if told < 0:
            say("qdo: ends when the jobs under way are done; once more to end at once")

    before = {number: signal.signal(number, tell) for number in SIGNALS}
    threading.Thread(target=run, name="worker", daemon=True).start()
    try:
        while not over.wait(0.5):
            pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for child in active_children():
        child.terminate()  # a job in a process that was not waited for
    if told > 0:
        sys.stderr.flush()
        os._exit(AT_ONCE + told)
    if raised:
        raise raised[0]
