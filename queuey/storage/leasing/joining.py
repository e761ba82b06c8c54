"""Steps of one commit that acknowledge and receive in one partition of one group, carried out together.

Nearly all steps do nothing else, and a commit has many of them: what one receive handed out is acknowledged by the next
requests side by side. So their leases are looked up, ended and made as one row, and each step adds only its answer.

First all of them settle, then all receive. So they seem to have come in that order: none was answered before the commit.
A step that meets anything unusual is carried out alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from queuey.errors import QueueyError
from queuey.model import Alike, Columns
from queuey.model.lease_requests import Acknowledged, ReceiveRequest
from queuey.model.lease_steps import NOTHING_HANDED, Handed, HandedPart, LeaseOutcome, LeaseStep
from queuey.model.together import NOTHING_ENDED, acknowledge_together, may_receive_together, receive_together
from queuey.storage.leasing.access import LeaseAccess
from queuey.storage.leasing.book import GroupBook, LeaseBook, PartitionBook
from queuey.storage.leasing.stepping import carry_out, is_full

__all__ = ["PlainStep", "Stepped", "carry_out_together", "plain_step"]

NO_MESSAGES = Columns.of([])
_MOST_BYTES = 1 << 20
"""Of messages that are looked at together."""
Stepped = LeaseOutcome | QueueyError
"""What a step did, or why it did nothing."""


class PlainStep(NamedTuple):
    """A step that acknowledges and receives in one partition of one group, and does nothing else."""

    step: LeaseStep
    partition: int
    acknowledged: Acknowledged | None
    receive: ReceiveRequest | None


def plain_step(step: LeaseStep) -> PlainStep | None:
    """A step as a plain one; None if it is none."""
    groups, appends, receive, attempt, *_ = step
    if len(groups) > 1 or appends or attempt is not None:
        return None
    _, _, _, _, settles, renewals, receive_from, passes = groups[0]
    if renewals or passes or len(settles) > 1 or len(receive_from) > 1:
        return None
    acknowledged = None
    partition = receive_from[0] if receive_from else 0
    for number, some in settles.items():
        if type(some) is not Acknowledged or not some.ids or partition not in (0, number):
            return None
        acknowledged, partition = some, number
    if not partition or (receive is not None) != bool(receive_from) or (receive is not None and receive.others):
        return None
    return PlainStep(step, partition, acknowledged, receive)


def carry_out_together(
    steps: Sequence[PlainStep], access: LeaseAccess, book: LeaseBook, now: Callable[[], int]
) -> list[Stepped]:
    """Carry out steps of one partition of one group, as :func:`~queuey.storage.leasing.stepping.carry_out` does one.

    :param now: gives rising moments on the clock of leases.
    """
    joined = _joined(steps, access, book, now)
    return joined + [_alone(one.step, access, book, now) for one in steps[len(joined) :]]


def _alone(step: LeaseStep, access: LeaseAccess, book: LeaseBook, now: Callable[[], int]) -> Stepped:
    try:
        return carry_out(step, access, book, now())
    except QueueyError as refused:
        return refused


def _joined(steps: Sequence[PlainStep], access: LeaseAccess, book: LeaseBook, now: Callable[[], int]) -> list[Stepped]:
    """What the first of the steps do together; nothing is done of the others."""
    first = steps[0].step.groups[0]
    group = book.group(access, first.queue.uuid, first.name, None)
    place = None if group is None else group.partitions.get(steps[0].partition)
    if group is None or place is None or group.group.settings.is_paused(access.now_ticks):
        return []
    moment, rules = now(), group.rules
    if is_full(place.state, rules) or not may_receive_together(place.state, rules, moment):
        return []
    if any(one.step.groups[0].token not in (None, group.group.token) for one in steps):
        return []
    try:
        return _carried_out(steps, group, place, access, moment)
    except QueueyError:  # a message could not be read; each step answers that by itself
        return []


def _carried_out(
    steps: Sequence[PlainStep], group: GroupBook, place: PartitionBook, access: LeaseAccess, now: int
) -> list[Stepped]:
    most = sum([one.receive.most for one in steps if one.receive is not None])
    ahead = place.look_ahead(access, most, _MOST_BYTES) if most else NO_MESSAGES
    steps = steps[: _number_that_fits(steps, ahead)]
    if not steps:
        return []
    receiving = [one.receive for one in steps if one.receive is not None]
    settling = [one.acknowledged for one in steps if one.acknowledged is not None]
    ended = acknowledge_together(place.state, settling) if settling else NOTHING_ENDED
    ahead = ahead[: sum([wanted.most for wanted in receiving])]
    made = receive_together(place.state, receiving, group.rules, now, ahead)
    if ended is None or made is None:
        return []
    place.change(made.change._replace(closed=ended.closed))
    if receiving:
        place.waits_alone = False
    tokens, due = [group.group.token], place.state.next_due()
    holes, since, at = iter(made.holes), iter(ended.since), 0
    found: list[Stepped] = []
    for step in steps:
        handed, worked = NOTHING_HANDED, 0 if step.acknowledged is None else now - next(since)
        if step.receive is not None:
            number = step.receive.most
            some = ahead[at : at + number]
            handed = Handed([HandedPart(0, step.partition, some, Alike(next(holes), number))])
            at += number
        found.append(LeaseOutcome(now, access.now_ticks, tokens, handed=handed, next_due=due, worked=worked))
    return found


def _number_that_fits(steps: Sequence[PlainStep], ahead: Columns) -> int:
    """How many of the first steps find as many messages as they ask for, with room for them in each answer."""
    sizes = ahead.sizes()
    at = 0
    for number, step in enumerate(steps):
        if step.receive is not None:
            some = sizes[at : at + step.receive.most]
            at += step.receive.most
            if len(some) < step.receive.most or sum(some) > step.receive.max_bytes:
                return number
    return len(steps)
