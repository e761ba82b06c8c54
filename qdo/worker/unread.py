"""What jobs print once nobody reads it, as in ``qdo work ... | head``.

No message is to blame for that, and no other attempt would end better.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import CalledProcessError

from qdo.worker.job import StopWorker
from queuey.unread import nobody_reads

__all__ = ["NobodyReads", "ending_if_unread"]


class NobodyReads(StopWorker):
    """A job failed since nobody reads what this process prints."""


@contextmanager
def ending_if_unread() -> Iterator[None]:
    """Let what a job raises end the worker in order, if it failed to print since nobody reads that.

    :raises NobodyReads: in place of what the job raised.
    """
    try:
        yield
    except StopWorker:
        raise
    except Exception as error:
        if _is_broken_pipe(error) and nobody_reads():
            raise NobodyReads from error
        raise


def _is_broken_pipe(error: BaseException) -> bool:
    """Whether an error, or one that led to it, is of a pipe without a reader."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, BrokenPipeError):
            return True
        if isinstance(one, CalledProcessError) and one.returncode == -signal.SIGPIPE:
            return True
        left += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            left += one.exceptions
    return False
