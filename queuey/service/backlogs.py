"""How many messages a lease group could hand out now, and how many it could not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from queuey.ids import ZERO_ID
from queuey.model import Queue, Span
from queuey.model.holes import LEASED, Hole
from queuey.model.lease_steps import LeaseCounts
from queuey.service.leases import Leases
from queuey.service.log import Log
from queuey.service.queues import Queues

__all__ = ["GroupBacklog", "count_backlog"]

_MOST_LOOKED_AT = 1000
_MOST_COUNTED = 10_000


class GroupBacklog(NamedTuple):
    """The messages of one partition that a group has not settled."""

    visible: int = 0
    """That a receive may hand out now; those that wait behind others of their key count."""
    hidden: int = 0
    """That are leased, or wait for another try."""
    delayed: int = 0
    """That are not due yet, and were never handed out."""


async def count_backlog(
    leases: Leases, queues: Queues, log: Log, queue: Queue, group: str, counts: Mapping[int, LeaseCounts]
) -> Mapping[int, GroupBacklog]:
    """By partition, of a group or of one that is not there yet.

    What was settled and is not removed yet does not count. Of what a group holds in a partition, the first
    :data:`_MOST_LOOKED_AT` messages are looked at; the others are taken to be as these are. New messages are counted one
    by one, up to :data:`_MOST_COUNTED`; beyond that the depth of the partition says how many there are.

    :param counts: what the group holds by partition; none if it is not there yet.
    :raises ClockUnsafe: nobody may read now.
    """
    states = dict(enumerate(await queues.inspect(queue), 1))
    spans = [(number, Span(counts[number].frontier if number in counts else ZERO_ID)) for number in states]
    _, new = await log.count_spans(queue, spans, limit=_MOST_COUNTED, step=0)
    found = {}
    for number, span in new:
        held = hidden = passed = 0
        if number in counts:
            held, hidden = await _held(leases, queue, group, number, counts[number])
            passed = counts[number].passed
        depth = states[number].depth - states[number].scheduled
        waits = max(depth - held, 0) if span.more else span.messages + passed
        found[number] = GroupBacklog(waits + held - hidden, hidden, states[number].scheduled)
    return found


async def _held(leases: Leases, queue: Queue, group: str, number: int, counts: LeaseCounts) -> tuple[int, int]:
    """What a group holds, and how many of these nobody may receive now."""
    if not counts.holes:
        return 0, 0
    now, holes, _ = await leases.held(queue, group, number, after=ZERO_ID, limit=_MOST_LOOKED_AT)
    if len(holes) >= _MOST_LOOKED_AT:
        return counts.holes, _hidden(counts, holes, now)
    # These are all: some may be settled since they were counted, or be new.
    holes = [hole for hole in holes if hole.id <= counts.frontier]
    return len(holes), sum(hole.visible_at > now for hole in holes)


def _hidden(counts: LeaseCounts, holes: Sequence[Hole], now: int) -> int:
    """About how many messages of a partition nobody may receive now, by the first of those that its group holds.

    Messages that wait behind others in a fair queue were never handed out, and are mostly not among the first.
    """
    found = 0
    for number, is_leased in ((counts.leased, True), (counts.holes - counts.leased, False)):
        some = [hole.visible_at > now for hole in holes if bool(hole.flags & LEASED) is is_leased]
        found += round(number * sum(some) / max(len(some), 1))
    return found
