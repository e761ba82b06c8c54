"""Which queues a group works on: names, and patterns that also mean queues still to come."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence

from qdo.assign import Partition
from qdo.client import Client

__all__ = ["is_pattern", "matching", "matching_queues"]

_SIGNS = "*?["


def is_pattern(text: str) -> bool:
    """Whether it may mean more than one queue."""
    return any(sign in text for sign in _SIGNS)


def matching(
    client: Client, patterns: Sequence[str], leave_out: Callable[[str], bool] = lambda name: False
) -> list[Partition]:
    """All partitions of the queues that there are now; see :func:`matching_queues`."""
    found = matching_queues(client, patterns, leave_out)
    return [Partition(name, number) for name, count in found.items() for number in range(1, count + 1)]


def matching_queues(
    client: Client, patterns: Sequence[str], leave_out: Callable[[str], bool] = lambda name: False
) -> dict[str, int]:
    """The queues that there are now, and how many partitions each has.

    :param leave_out: names that no pattern means; a name that is given itself is taken all the same.
    """
    found: dict[str, int] = {}
    for pattern in patterns:
        fixed = _fixed_part(pattern)
        for queue in client.queues(start=fixed, page_size=1000 if fixed != pattern else 1):
            if not queue.name.startswith(fixed):
                break
            fits = fnmatch.fnmatchcase(queue.name, pattern) and not leave_out(queue.name)
            if queue.name == pattern or (fixed != pattern and fits):
                found[queue.name] = queue.partitions
            if fixed == pattern:
                break
    return found


def _fixed_part(pattern: str) -> str:
    """What all names that fit a pattern begin with.

    >>> _fixed_part("mail-*"), _fixed_part("mail")
    ('mail-', 'mail')
    """
    return pattern[: min([pattern.find(sign) for sign in _SIGNS if sign in pattern], default=len(pattern))]
