"""Refusals in the words of a browser: what to look at, in place of what to send."""

from __future__ import annotations

from collections.abc import Mapping

from queuey.errors import ApplicationNotFound, InvalidApplicationKey, InvalidToken, QueueNotFound, QueueyError

__all__ = ["said"]

_WORDS: Mapping[type[QueueyError], str] = {
    ApplicationNotFound: "There is no application of this name: it begins with its first key.",
    InvalidApplicationKey: "The server knows no such key, or it was removed. Copy it anew: it has no blanks and no quotes.",
    InvalidToken: "The token proves nothing here: it is of another server, or has ended. Get a new one.",
    QueueNotFound: "There is no queue of this name in the application: it was deleted, or never made.",
}


def said(error: QueueyError) -> str:
    """What a page says of a refusal. A text of its own stays.

    >>> said(QueueNotFound("no queue is named 'x'"))
    "no queue is named 'x'"
    >>> said(QueueNotFound.named("x"))
    'no queue is named "x"'
    """
    if isinstance(error, QueueNotFound) and str(error) != str(QueueNotFound()):
        return str(error.saying(""))
    return _WORDS.get(type(error), str(error)) if str(error) == str(type(error)()) else str(error)
