"""Workers of this process, each in a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from qdo import Worker
from qdo.tasks import TaskWorker


@contextmanager
def at_work(*workers: Worker | TaskWorker) -> Iterator[None]:
    """Let them run while the block does."""
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.stop()
        for thread in threads:
            thread.join()
