"""How a command ends that has something to put away: other programs, or files that are half written."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

__all__ = ["ended_by_signals"]


@contextmanager
def ended_by_signals(*numbers: int) -> Iterator[None]:
    """While the block runs, SIGTERM and Ctrl-C end it as an error would, so it ends what it has started.

    The exit code is 143 or 130, never one that says something about what was done. Only the main thread may enter it.

    :param numbers: of other signals, in place of these two.
    """
    before = {number: signal.signal(number, _end) for number in numbers or (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
