"""Tracebacks as text for logs and stores.

They are bounded, and UTF-8 whatever an exception says.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType

__all__ = ["MOST_CHARACTERS", "bounded", "leaves", "text_of", "without"]

MOST_CHARACTERS = 8000
"""Of one traceback."""


def bounded(text: str, most: int = MOST_CHARACTERS) -> str:
    r"""The text, or its beginning and its end.

    >>> bounded("a" * 10 + "b" * 10, 6)
    'aaa\n[14 characters left out]\nbbb'
    >>> bounded("\udcff")
    '\\udcff'
    """
    if len(text) > most:
        half = most // 2
        text = f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"
    return text.encode("utf-8", "backslashreplace").decode()


def without(package: Path, error: BaseException) -> TracebackType | None:
    """The error's traceback from the first frame outside of this package on.

    All of it if every frame is of this package.
    """
    return _outside(package, error) or error.__traceback__


def leaves(package: Path, error: BaseException) -> bool:
    """Whether a frame of the error's traceback is outside of this package."""
    return _outside(package, error) is not None


def _outside(package: Path, error: BaseException) -> TracebackType | None:
    found = error.__traceback__
    while found is not None and package in Path(found.tb_frame.f_code.co_filename).parents:
        found = found.tb_next
    return found


def text_of(error: BaseException, start: TracebackType | None) -> str:
    """What Python prints of an error and its causes, bounded.

    :param start: where to begin, from :func:`without`.
    """
    return bounded("".join(traceback.format_exception(type(error), error, start)).rstrip())
