"""Which names queues and groups can have: what workers check before they begin."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from queuey.errors import ConfigurationError

__all__ = ["check_group", "check_member", "check_queues", "is_new_queue_name"]

_NEW_QUEUE = re.compile(r"[A-Za-z0-9_.-]{1,50}")
_QUEUE = re.compile(r"[A-Za-z0-9_.-]{1,80}")
_PATTERN = re.compile(r"[A-Za-z0-9_.*?\[\]!-]{1,200}")
_GROUP = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_MEMBER = re.compile(r"[!-.0-~]([ -.0-~]{0,98}[!-.0-~])?")
_DOTS = (".", "..")


def is_new_queue_name(name: object) -> bool:
    """Whether a queue of this name can be made. Clients of SQS make longer ones."""
    return isinstance(name, str) and _NEW_QUEUE.fullmatch(name) is not None and name not in _DOTS


def check_queues(queues: Iterable[object]) -> None:
    """Check names and patterns of queues.

    >>> check_queues("mail")
    Traceback (most recent call last):
    queuey.errors.ConfigurationError: queues are 'mail': expected a list of names, such as ['mail']

    :raises ConfigurationError: a text stands in place of the list, the list is empty, or it has what no queue can be named.
    """
    if isinstance(queues, str):
        raise ConfigurationError(f"queues are {queues!r}: expected a list of names, such as [{queues!r}]")
    if isinstance(queues, bytes) or not isinstance(queues, Iterable):
        raise ConfigurationError(f"queues are {queues!r}: expected a list of names, such as ['mail']")
    if isinstance(queues, Collection) and not queues:
        raise ConfigurationError("no queue to work on: name one, or a pattern")
    for name in queues:
        if not (isinstance(name, str) and (_QUEUE.fullmatch(name) or _is_pattern(name))) or name in _DOTS:
            raise ConfigurationError(
                f"queue {name!r}: expected 1 to 80 letters, digits, _ . -, or a pattern such as 'mail-*'"
            )


def _is_pattern(text: str) -> bool:
    return any(sign in text for sign in "*?[") and _PATTERN.fullmatch(text) is not None


def check_group(name: object, what: str = "group") -> None:
    """Check the name of a group, or of an application that is a part of its path.

    :raises ConfigurationError: it can have no such name.
    """
    if not (isinstance(name, str) and _GROUP.fullmatch(name)) or name in _DOTS:
        raise ConfigurationError(f"{what} {name!r}: expected 1 to 100 letters, digits, _ . -")


def check_member(name: object) -> None:
    """Check what the name of a worker begins with. ZooKeeper has it in a path, and takes few characters beyond ASCII.

    :raises ConfigurationError: no worker can be called so.
    """
    if not (isinstance(name, str) and _MEMBER.fullmatch(name)):
        raise ConfigurationError(
            f"name {name!r}: expected 1 to 100 printable ASCII characters, no / and no space at an end"
        )
