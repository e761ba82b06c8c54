"""Which request about the queues of a set is due.

A request settles what has ended, extends leases and receives more. Which one is due follows from a few rules:

- Messages are asked for when jobs could begin, or when half of what is read ahead is used up. What ended until then goes
  with that request: a busy worker sends one request for each message or batch.
- After an answer that was short, the next request waits a moment for the jobs, so that it can settle their messages.
- What ended while a request waits at the server, or a quarter of a second ago, is settled by a request of its own.
- All leases of one length are extended together, at a third of that length.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from qdo.worker.leases.holdings import Holdings
from qdo.worker.leases.values import Ended, LeaseRequest, QueueSet

__all__ = ["due", "poll_seconds"]

WAIT_SECONDS = 2.0
"""The server may hold a request back for this long. A worker that ends has to wait for the answer."""
MOST_WAITING = 8
"""Sets of queues with a request that waits at the server. With more of them, none waits, and they are asked in turns."""
POLL_SECONDS, POLL_SECONDS_A_SET = 2.0, 0.02
"""Between two looks at queues that were empty: the first one, or with very many sets this for each of them."""
SETTLE_SECONDS = 0.25
"""What has ended waits for a request that receives for this long at most."""
COMPANY_SECONDS = 0.02
"""For this long the next request waits for a job to end, and what ended waits for an answer that the server holds back."""
ANSWER_BYTES = 1 << 20
"""Of the bodies and headers in one answer; a single larger message comes alone."""
MOST_MESSAGES = 1000
"""In one answer."""


def due(holdings: Holdings, asked: QueueSet, now: float) -> LeaseRequest | float:
    """A request that is under way from now on, or when one may be due."""
    look_at = inf
    for request in (asked.receiving, asked.settling):
        if request is not None and request.again_at is not None:
            if request.again_at <= now:
                request.repeat(now)
                return request
            look_at = min(look_at, request.again_at)
    if asked.receiving is None:
        most, receive_at = _room(holdings, asked, now)
        if most:
            asked.receiving = _new_receive(holdings, asked, most, now)
            return asked.receiving
        look_at = min(look_at, receive_at)
    if asked.settling is None:
        settle_at = max(min(_settle_at(holdings, asked, now), asked.extend_at), asked.refused_until)
        if asked.divided or settle_at <= now:
            asked.settling = _new_settle(asked, now)
        if asked.settling is not None:
            return asked.settling
        look_at = min(look_at, settle_at)
    return look_at


def poll_seconds(holdings: Holdings) -> float:
    """Until queues that were empty are asked again, if no request waits at the server."""
    if holdings.options.exit_at_end:
        return SETTLE_SECONDS
    return max(POLL_SECONDS, POLL_SECONDS_A_SET * len(holdings.queues.sets))


def _new_receive(holdings: Holdings, asked: QueueSet, most: int, now: float) -> LeaseRequest:
    waits = not (holdings.options.exit_at_end or asked.is_on_trial) and holdings.queues.lasting_sets <= MOST_WAITING
    asked.asked_at = now
    return LeaseRequest(
        asked,
        [*asked.queues.values()],
        asked.next_ended(),
        now,
        most,
        visibility=asked.visibility,
        wait=WAIT_SECONDS if waits else 0.0,
    )


def _new_settle(asked: QueueSet, now: float) -> LeaseRequest | None:
    seconds, queues = asked.to_extend(now)
    ended: Sequence[Ended] = ()
    if asked.divided:
        seconds, queues, ended = None, (), asked.divided.popleft()
    elif not queues or all(
        one.queue in queues for one in asked.ended
    ):  # it extends leases in every queue that it names
        ended = asked.next_ended()
    named = [*dict.fromkeys([*queues, *(one.queue for one in ended)])]
    return LeaseRequest(asked, named, [*ended], now, extends=seconds) if named else None


def _room(holdings: Holdings, asked: QueueSet, now: float) -> tuple[int, float]:
    """How many messages to ask for, and if none, when to look again."""
    if holdings.is_draining or not asked.is_open or not holdings.wants_messages:
        return 0, inf
    if (resume_at := max(asked.resume_at, asked.refused_until)) > now:
        return 0, resume_at
    if asked.was_short and not asked.ended and now < asked.answered_at + COMPANY_SECONDS and asked.holds:
        return 0, asked.answered_at + COMPANY_SECONDS
    options = holdings.options
    under_way = [one.receiving for one in holdings.queues.sets if one.receiving is not None]
    # The first answer may be of any size, or a message that is larger than the bound would stop the worker.
    is_first = not (holdings.held or under_way)
    if not is_first and holdings.bytes + (len(under_way) + 1) * ANSWER_BYTES > options.prefetch_bytes:
        return 0, inf
    settled_now = sum(len(one.messages) for one in asked.ended)
    most = options.prefetch_messages + options.threads * options.batch
    left = most - (holdings.held - settled_now) - sum(request.most for request in under_way)
    share = left if left < 1 else max(left // max(holdings.queues.open_sets - len(under_way), 1), 1)
    free = (options.threads - len(holdings.busy)) * options.batch
    at_once = sum(request.most for request in under_way if not request.wait)
    wanted = free + holdings.ahead - holdings.ready - at_once
    return max(min(wanted, share, MOST_MESSAGES), 0), inf


def _settle_at(holdings: Holdings, asked: QueueSet, now: float) -> float:
    """When what has ended is to be settled without receiving."""
    if not asked.ended:
        return inf
    if holdings.is_draining or not asked.is_open:
        return now
    if asked.receiving is not None and asked.receiving.wait:
        return min(asked.receiving.sent + COMPANY_SECONDS, asked.ended_since + SETTLE_SECONDS)
    return asked.ended_since + SETTLE_SECONDS
