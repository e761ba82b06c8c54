"""Where dead letters of dead letters go: a chain of queues that must not end where it began."""

from __future__ import annotations

from collections.abc import Sequence

from queuey.model import Queue
from queuey.model.lease_groups import LeaseGroup
from queuey.service.dead_letters import dead_letter_queue
from queuey.service.leases import Leases
from queuey.service.queues import Queues

__all__ = ["chain_back"]

MOST_QUEUES = 20
"""That are looked at."""
MOST_GROUPS = 100
"""Of a queue, the first by name."""


async def chain_back(leases: Leases, queues: Queues, application: str, queue: str, first: str) -> Sequence[str]:
    """The queues through which dead letters of ``queue`` come back to it, if they go to ``first``; none if they do not.

    Each group of a queue counts, and what a new group of it would have.

    :returns: begins with ``first``, and ends with ``queue``.
    """
    came_from, left = {first: ""}, [first]
    while left:
        name = left.pop(0)
        if name == queue:
            return _way(came_from, name)
        for following in await _following(leases, queues, application, name):
            if following not in came_from and len(came_from) < MOST_QUEUES:
                came_from[following] = name
                left.append(following)
    return []


def _way(came_from: dict[str, str], name: str) -> Sequence[str]:
    way: list[str] = []
    while name:
        way.insert(0, name)
        name = came_from[name]
    return way


async def _following(leases: Leases, queues: Queues, application: str, name: str) -> set[str]:
    """The dead-letter queues of a queue, which need not exist."""
    queue = await queues.find(application, name)
    if queue is None:
        return {dead_letter_queue(name)}
    settings = [queue.leases.settings(leases.default_settings)]
    settings += [group.settings for group in await _groups(leases, queue)]
    return {one.dead_letter_queue or dead_letter_queue(name) for one in settings}


async def _groups(leases: Leases, queue: Queue) -> Sequence[LeaseGroup]:
    names = await leases.groups(queue, start="", limit=MOST_GROUPS)
    found = [await leases.find(queue, name) for name in names]
    return [group for group in found if group is not None]
