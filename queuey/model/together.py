"""What many requests acknowledge and receive in one partition of one group, at once. See :mod:`queuey.model.leases`.

What was handed out together is mostly acknowledged together. So the leases of many requests are a few rows, which are
ended at once, and another row is leased.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from queuey.ids import MessageId
from queuey.model.columns import Columns
from queuey.model.holes import LEASED, Hole
from queuey.model.lease_requests import Acknowledged, ReceiveRequest
from queuey.model.lease_rules import LeaseRules
from queuey.model.lease_state import Change, FreshLeases, LeaseState
from queuey.model.receiving import new_hole, room_for_new

__all__ = [
    "AcknowledgedTogether",
    "ReceivedTogether",
    "Taking",
    "acknowledge_together",
    "may_receive_together",
    "receive_together",
]


class AcknowledgedTogether(NamedTuple):
    """What the acknowledgements of many requests change."""

    closed: Sequence[MessageId]
    """In order."""
    since: Sequence[int]
    """When the first lease of each request was made, in ticks."""


def acknowledge_together(state: LeaseState, requests: Sequence[Acknowledged]) -> AcknowledgedTogether | None:
    """End the leases of many requests.

    :param requests: none of them empty.
    :returns: None if one of the leases had ended, or stands twice. Then each request settles by itself.
    """
    if len(requests) == 1:
        ids, deliveries = requests[0].ids, requests[0].deliveries
    else:
        named = sorted([one for request in requests for one in zip(request.ids, request.deliveries, strict=True)])
        ids, deliveries = zip(*named, strict=True)
    leases = state.holes.leases_of(ids)
    if leases is None:
        return None
    counts, leased = leases
    if [count >> 24 for count in counts if count & LEASED] != [*deliveries]:
        return None
    if len(requests) == 1:
        return AcknowledgedTogether(ids, leased[:1])
    since = dict(zip(ids, leased, strict=True))
    return AcknowledgedTogether(ids, [since[request.ids[0]] for request in requests])


class ReceivedTogether(NamedTuple):
    """What is handed out to many receives, in their order, and what that changes."""

    change: Change
    holes: Sequence[Hole]
    """What the messages of each of them have in common, with any id."""


def may_receive_together(state: LeaseState, rules: LeaseRules, now: int) -> bool:
    """Whether nothing but new messages may be given, in their order, and none is held back."""
    is_plain = rules.k == 1 and not rules.orders_keys and not rules.fair
    return is_plain and state.leased_of is None and not state.skipped and not state.has_due(now)


class Taking(NamedTuple):
    """New messages of one partition that one receive gets."""

    wanted: ReceiveRequest
    number: int
    """How many of them. The receive gets all that it asks for, here and in other partitions."""


def receive_together(
    state: LeaseState, takings: Sequence[Taking], rules: LeaseRules, now: int, ahead: Columns
) -> ReceivedTogether | None:
    """Hand out the next messages to many receives, to each a number of them.

    :param takings: at least one.
    :param ahead: the first ones are taken; at least as many as all of them take.
    :returns: None if the group may not hold as many. Then each request receives by itself.
    """
    number = sum([one.number for one in takings])
    if room_for_new(state, rules) < number:
        return None
    fresh: list[FreshLeases] = []
    holes: list[Hole] = []
    ticks, tails, begin = array("q", ahead.ticks[:number]), array("q", ahead.tails[:number]), 0
    for wanted, alike in groupby(takings, _wanted):  # most receivers ask for the same, and then their leases are alike
        numbers, hole = [number for _, number in alike], new_hole(wanted, rules, now, wanted.most)
        holes += [hole] * len(numbers)
        end = begin + sum(numbers)
        if not wanted.pop:
            fresh.append(FreshLeases(ticks[begin:end], tails[begin:end], hole))
        begin = end
    return ReceivedTogether(Change(MessageId(ticks[-1], tails[-1]), fresh), holes)


_wanted = itemgetter(0)
