"""How a command ends that starts other programs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["ended_by_sigterm"]


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """While the block runs, SIGTERM ends it as an error would, so it ends what it has started; the exit code is 143.

    Only the main thread may enter it.
    """
    before = signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
