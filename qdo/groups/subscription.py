"""Which queues a group works on: names, and patterns that also match queues still to come."""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Callable, Iterator, Sequence

from qdo.client import Client, QueueSettings
from qdo.groups.assign import Partition
from qdo.groups.dead_letter_names import DeadLetterNames
from queuey.errors import ConfigurationError

__all__ = ["Subscription", "each_queue", "is_meant", "is_pattern", "matching"]

log = logging.getLogger(__name__)

_SIGNS = "*?["
MOST_LEFT_OUT = 20
"""Queues of which a member tells that it leaves them out: every other member keeps what one tells."""


def is_pattern(text: str) -> bool:
    """Whether a text may match more than one queue."""
    return any(sign in text for sign in _SIGNS)


def is_meant(name: str, patterns: Sequence[str], leave_out: Callable[[str], bool] = lambda name: False) -> bool:
    """Whether :func:`each_queue` would find a queue of this name.

    >>> is_meant("mail-1", ["mail-*"]), is_meant("mail-1", ["mail"])
    (True, False)
    """
    return name in patterns or (any(fnmatch.fnmatchcase(name, each) for each in patterns) and not leave_out(name))


def matching(
    client: Client, patterns: Sequence[str], leave_out: Callable[[str], bool] = lambda name: False
) -> list[Partition]:
    """All partitions of the queues that exist now; see :func:`each_queue`."""
    found = {queue.name: queue.partitions for queue in each_queue(client, patterns, leave_out)}
    return [Partition(name, number) for name, count in found.items() for number in range(1, count + 1)]


def each_queue(
    client: Client, patterns: Sequence[str], leave_out: Callable[[str], bool] = lambda name: False
) -> Iterator[QueueSettings]:
    """The queues that exist now. Requests are sent while the caller iterates.

    A queue that matches several patterns may come more than once.

    :param leave_out: says of a name that no pattern matches it. A name that is given as such is found all the same.
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
    """The text that all names matching a pattern begin with.

    >>> _fixed_part("mail-*")
    'mail-'
    """
    return pattern[: min(pattern.find(sign) for sign in _SIGNS if sign in pattern)]


class Subscription:
    """The queues of one worker. A pattern never matches a queue of dead letters: only its own name subscribes to it."""

    def __init__(
        self,
        patterns: Sequence[str],
        dead_letters: DeadLetterNames | None,
        wants: Callable[[Partition], bool] | None = None,
    ) -> None:
        """:param dead_letters: None if the group writes no dead letters.
        :param wants: says of a partition whether the group works on it; None for all partitions.
        :raises ConfigurationError: a queue that is named would need a name for its dead letters that no queue can have.
        """
        self.patterns = list(patterns)
        self._dead_letters = dead_letters
        self._wants = wants
        self.left_out: dict[str, str] = {}
        """Queues that match a pattern and that nobody can work on, and why."""
        if dead_letters is not None:
            for name in patterns:
                if not is_pattern(name):
                    dead_letters.queue_for(name)

    def queues(self, client: Client) -> Iterator[QueueSettings]:
        """The queues that exist now; see :func:`each_queue`."""
        return each_queue(client, self.patterns, self._leaves_out)

    def partitions(self, client: Client) -> list[Partition]:
        """All partitions that exist now."""
        found = matching(client, self.patterns, self._leaves_out)
        return found if self._wants is None else [each for each in found if self._wants(each)]

    def means(self, name: str) -> bool:
        """Whether a queue of this name belongs to the subscription."""
        return is_meant(name, self.patterns, self._leaves_out)

    def _leaves_out(self, name: str) -> bool:
        """Whether patterns pass over this queue: it holds dead letters, or it could not store its own."""
        if self._dead_letters is None:
            return False
        if self._dead_letters.is_one(name):
            return True
        try:
            self._dead_letters.queue_for(name)
        except ConfigurationError as error:
            if name not in self.left_out and len(self.left_out) < MOST_LEFT_OUT:
                self.left_out[name] = f"it is left out: {error}"
                log.error("queue %s is left out: %s", name, error)  # noqa: TRY400 - the text says all
            return True
        return False
