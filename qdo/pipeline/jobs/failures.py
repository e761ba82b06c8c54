"""Errors of Spark in plain words: an error of Queuey's if there was one, otherwise one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from queuey.errors import error_classes

__all__ = ["SparkFailed", "plain_errors"]

_OURS = re.compile(r"queuey\.errors\.(\w+): (.*)")
_CALLED = re.compile(r"\AAn error occurred while calling [\w.]+\n: ")
"""What py4j writes before a Java exception that PySpark has no class for."""
_SPARK = ("pyspark", "py4j")


class SparkFailed(Exception):
    """Spark gave up. The text says why."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """Wrap work on Spark, whose errors are tracebacks of two languages inside each other.

    :raises QueueyError: a task or the plan raised one; the last that the traceback names.
    :raises SparkFailed: for any other reason.
    """
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in _SPARK:
            raise
        text = str(error)
        classes = error_classes()
        ours = [(classes[name], said) for name, said in _OURS.findall(text) if name in classes]
        if ours:
            found, said = ours[-1]
            raise found(said.strip()) from error
        raise SparkFailed(reason(text)) from error


def reason(text: str) -> str:
    r"""The line that matters: the last line of a Python traceback, or else the first line.

    >>> reason("[X] task failed: Traceback (most recent call last):\n  File \"a.py\", line 1\nValueError: no number\n SQLSTATE: 38000")
    'ValueError: no number'
    >>> reason("[PATH_NOT_FOUND] Path does not exist: x. SQLSTATE: 42K03;\n'Project")
    '[PATH_NOT_FOUND] Path does not exist: x.'
    >>> reason("An error occurred while calling o86.start.\n: java.io.IOException: mkdir of file:/x failed\n\tat java.base")
    'java.io.IOException: mkdir of file:/x failed'
    """
    told = text.rpartition("Traceback (most recent call last):\n")[2]
    told = _CALLED.sub("", told)
    lines = [line for line in told.splitlines() if line and not line.startswith(" ")]
    first = lines[0] if lines else "no reason was given"
    return re.sub(r"\s*SQLSTATE: \w+;?$", "", first)
