"""Which queues a group works on: names, and patterns that also mean queues still to come."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Sequence

from qdo.client import Client, QueueSettings
from qdo.groups.assign import Partition

__all__ = ["each_queue", "is_meant", "is_pattern", "matching"]

_SIGNS = "*?["


def is_pattern(text: str) -> bool:
    """Whether it may mean more than one queue."""
    return any(sign in text for sign in _SIGNS)


def is_meant(name: str, patterns: Sequence[str], leave_out: Callable[[str], bool] = lambda name: False) -> bool:
    """Whether a queue is one of those; see :func:`each_queue`.

    >>> is_meant("mail-1", ["mail-*"]), is_meant("mail-1", ["mail"])
    (True, False)
    """
    return name in patterns or (any(fnmatch.fnmatchcase(name, each) for each in patterns) and not leave_out(name))


def matching(
    client: Client, patterns: Sequence[str], leave_out: Callable[[str], bool] = lambda name: False
) -> list[Partition]:
    """All partitions of the queues that there are now; see :func:`each_queue`."""
    found = {queue.name: queue.partitions for queue in each_queue(client, patterns, leave_out)}
    return [Partition(name, number) for name, count in found.items() for number in range(1, count + 1)]


def each_queue(
    client: Client, patterns: Sequence[str], leave_out: Callable[[str], bool] = lambda name: False
) -> Iterator[QueueSettings]:
    """The queues that there are now, asked for as they are taken; one that fits several patterns may come more than once.

    :param leave_out: names that no pattern means; a name that is given itself is taken all the same.
    """
    for pattern in patterns:
        if is_pattern(pattern):
            yield from _fitting(client, pattern, leave_out)
        elif (found := client.find_queue(pattern)) is not None:
            yield found


def _fitting(client: Client, pattern: str, leave_out: Callable[[str], bool]) -> Iterator[QueueSettings]:
    fixed = _fixed_part(pattern)
    for queue in client.queues(start=fixed):
        if not queue.name.startswith(fixed):
            break
        if fnmatch.fnmatchcase(queue.name, pattern) and not leave_out(queue.name):
            yield queue


def _fixed_part(pattern: str) -> str:
    """What all names that fit a pattern begin with.

    >>> _fixed_part("mail-*")
    'mail-'
    """
    return pattern[: min(pattern.find(sign) for sign in _SIGNS if sign in pattern)]
