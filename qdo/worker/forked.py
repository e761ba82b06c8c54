"""The ends of processes: of those for jobs, and of those that a job forks and does not end."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

__all__ = ["end_process", "in_one_process"]

log = logging.getLogger(__name__)


@contextmanager
def in_one_process() -> Iterator[None]:
    """Let only the process that calls a job come back from it.

    A job that forks copies the worker's thread. A copy that came back would work on as the worker, on the same connections
    and with the same leases. So it ends here, as it would at the end of a program.
    """
    process = os.getpid()
    try:
        yield
    except BaseException as error:
        if os.getpid() != process:
            _end(error)
        raise
    if os.getpid() != process:
        _end(None)


def _end(error: BaseException | None) -> NoReturn:
    """:param error: what the job raised in the copy."""
    code = 0 if error is None else 1
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    else:
        log.warning("a process that a job forked ends with the job: let it end by os._exit", exc_info=error)
    end_process(code & 0xFF)


def end_process(code: int) -> NoReturn:
    """End this process, with all its threads; what it has printed is not lost."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            continue  # it has none, or nobody reads it
    os._exit(code)
