"""The rule by which messages are handed out one by one (docs/decisions/024).

The states of one message in one lease group, and what moves it from one to the next::

                 receive                      acknowledge
    not seen ──────────────► leased ─────────────────────────────► settled
                              ▲ │ │ │                                 ▲
                      receive │ │ │ └─ reject ────────► given up ─────┤ moved to the dead letters
                              │ │ │                        ▲          │
                              │ │ └─ release ──► waiting   │ the last failure
                              │ │                  │       │
                              │ └─ runs out ───────┴─► due ┘
                              └────────────────────────┘

A message that is ``leased``, ``waiting``, ``due`` or ``given up`` is a hole behind the frontier
(:mod:`queuey.model.lease_state`). Nothing happens by itself: a lease that runs out is a time in the past, and the next
receive finds it. So no timer is lost with a process.

:func:`settle` and :func:`receive` are pure. Each looks at a state and gives a :class:`~queuey.model.lease_state.Change`
for the store to make durable, alone or with appends.

A group that picks at random among the first K messages gives an order that is nearly that of their ids, and receivers
on several servers rarely meet (BDQS, 2011). With K = 1 the order is exact:

>>> from queuey.model.lease_state import LeaseState
>>> from queuey.model.messages import Message
>>> state, now = LeaseState(), 1_000
>>> ahead = Columns.of([Message(ticks, 0, 10_000, None, None, b"body") for ticks in (1, 2, 3)])
>>> first = receive(state, ReceiveRequest(most=2), LeaseRules(), now, ahead)
>>> [ahead[at].ticks for at in first.fresh]
[1, 2]
>>> state.take(first.change)
>>> settled = settle(state, [Settle(MessageId(2, 0), 1, Action.ACKNOWLEDGE)], LeaseRules(), now)
>>> state.take(settled.change)
>>> (len(state.holes), state.frontier.ticks, state.done_up_to < MessageId(1, 0))
(1, 2, True)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from queuey.ids import MessageId
from queuey.model.columns import Columns
from queuey.model.holes import GIVEN_UP, LEASED, MOST_FAILURES, UNCOUNTED, Hole
from queuey.model.key_counts import count_keys
from queuey.model.lease_requests import (
    MOVE_AGAIN_SECONDS,
    Acknowledged,
    Action,
    Received,
    ReceiveRequest,
    Settle,
    Settled,
    later,
)
from queuey.model.lease_rules import Backoff, LeaseRules
from queuey.model.lease_state import Change, LeaseState, Renewal
from queuey.model.receiving import Receive, ReceiveByKey, ReceiveFairly, receive_new
from queuey.model.shared_receiving import ReceiveShared

__all__ = [
    "Acknowledged",
    "Action",
    "Backoff",
    "LeaseRules",
    "ReceiveRequest",
    "Received",
    "Settle",
    "Settled",
    "pass_over",
    "receive",
    "renew",
    "settle",
]

MOST_CLOSED = 10_000
"""Holes that are settled by one change without being named."""


def settle(
    state: LeaseState, settles: Sequence[Settle], rules: LeaseRules, now: int, chance: Callable[[], float] = lambda: 0.5
) -> Settled:
    """Settle leases.

    :param settles: no message twice.
    :param now: ticks, higher than in all steps before. A clock that was stepped back does not count.
    :param chance: random numbers from 0 to 1.
    """
    if all_acknowledged := _acknowledged(state, settles):
        return all_acknowledged
    holes: list[Hole] = []
    closed: list[MessageId] = []
    stale: list[int] = []
    reasons: dict[MessageId, str] = {}
    given_up: list[Hole] = []
    dead = 0
    for index, one in enumerate(settles):
        hole = state.holes.find(one.id)
        if one.action is Action.REMOVE:
            if hole is not None:
                closed.append(one.id)
            elif one.id > state.frontier:
                stale.append(index)  # it was never handed out
            continue
        state_wanted = GIVEN_UP if one.action is Action.MOVED else LEASED
        if hole is None or not hole.flags & state_wanted or hole.deliveries != one.delivery:
            stale.append(index)
        elif one.action is Action.MOVED:
            closed.append(one.id)
            dead += 1
        elif one.action is Action.ACKNOWLEDGE:
            closed.append(one.id)
        elif one.action is Action.EXTEND:
            holes.append(_extended(state, hole, later(now, one.seconds)))
        elif one.action is Action.RELEASE:
            holes.append(_released(hole, one, rules, now, chance))
        else:
            reasons[one.id] = one.reason
            given_up.append(hole._replace(visible_at=later(now, MOVE_AGAIN_SECONDS), flags=GIVEN_UP))
    return Settled(Change(holes=[*holes, *given_up], closed=closed, reasons=reasons, dead=dead), stale, given_up)


def _acknowledged(state: LeaseState, settles: Sequence[Settle]) -> Settled | None:
    """The same for live leases in order that are all acknowledged, as those of one receive mostly are."""
    if type(settles) is not Acknowledged or not settles.ids:
        return None
    leases = state.holes.leases_of(settles.ids)
    if leases is None or [count >> 24 for count in leases[0] if count & LEASED] != [*settles.deliveries]:
        return None
    return Settled(Change(closed=settles.ids), ())


def renew(state: LeaseState, receiver: str, seconds: float, now: int) -> Change:
    """Extend all leases of one receiver. It is one small change, whatever their number.

    No lease gets shorter, so leases that were made after a longer renewal run as long as that.
    """
    until = later(now, seconds)
    if receiver in state.renewals:
        until = max(until, state.renewals[receiver].until)
    return Change(renewals={receiver: Renewal(now, until)})


def pass_over(state: LeaseState, upto: MessageId, most: int = MOST_CLOSED) -> Change:
    """Settle all messages up to an id, whatever becomes of them: they are gone.

    :param upto: not past the watermark.
    :param most: holes that are settled at once. If there are more, repeat it: the frontier moves with the last of them.
    """
    closed = [hole.id for hole in islice(state.holes, most) if hole.id <= upto]
    if len(closed) == most:
        return Change(closed=closed)
    behind = upto.following()
    gone = upto >= state.frontier
    skipped = {key: None if gone else behind for key, first in state.skipped.items() if gone or first < behind}
    return Change(upto if upto > state.frontier else None, closed=closed, skipped=skipped)


def _extended(state: LeaseState, hole: Hole, until: int) -> Hole:
    """A lease that runs until a moment. It is none of those from before a renewal any more, which may run longer."""
    renewal = state.renewals.get(hole.receiver)
    leased_at = hole.leased_at if renewal is None else max(hole.leased_at, renewal.at)
    return hole._replace(visible_at=until, leased_at=leased_at)


def _released(hole: Hole, one: Settle, rules: LeaseRules, now: int, chance: Callable[[], float]) -> Hole:
    failures = min(hole.failures + one.counts, MOST_FAILURES)
    visible_at = later(now, one.seconds)
    if one.seconds is None and one.counts:
        visible_at = now + rules.backoff.ticks(failures, chance())
    return hole._replace(visible_at=visible_at, failures=failures, flags=0 if one.counts else UNCOUNTED)


def receive(
    state: LeaseState,
    wanted: ReceiveRequest,
    rules: LeaseRules,
    now: int,
    ahead: Columns,
    pick: Callable[[int], int] = lambda candidates: 0,
) -> Received:
    """Hand out messages that may be given: those that are due again, and new ones, in the order of these times.

    :param ahead: live messages behind the frontier, in order and without a gap, none past the watermark.
    :param pick: a random index below its argument.
    """
    if rules.fair or state.leased_of is not None:
        count_keys(state, wanted=rules.fair)
    elif rules.k == 1 and not (rules.orders_keys or rules.share or state.skipped or state.has_due(now)):
        return receive_new(state, wanted, rules, now, ahead)
    kind = Receive
    if rules.orders_keys or state.skipped:  # a group that ordered keys before has messages behind closed keys still
        kind = ReceiveByKey
    elif rules.fair:
        kind = ReceiveFairly
    elif rules.share is not None:
        kind = ReceiveShared
    step = kind(state, wanted, rules, now, ahead)
    try:
        step.run(pick)
    finally:
        state.put_back(step.taken)
    return step.received()
