"""Which request about the queues of a set is due.

A request settles what has ended, extends leases and receives more. Which one is due follows from a few rules:

- Messages are asked for when jobs could begin, or when half of what is read ahead is used up. What ended until then goes
  with that request: a busy worker sends one request for each message or batch.
- After an answer that was full, the next request does not wait for the one before to be answered. So the server is busy
  while this process reads an answer.
- After an answer that was short, the next request waits a moment for the jobs, so that it can settle their messages.
- What ended while a request waits at the server, or a quarter of a second ago, is settled by a request of its own.
- All leases of one length are extended together, at a third of that length, whatever else is under way.
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
MOST_RECEIVES = 2
"""Requests under way that receive from one set of queues. Half of what may be read ahead is received by them, and the other
half is settled by them."""
ANSWER_BYTES = 1 << 20
"""Of the bodies and headers in one answer; a single larger message comes alone."""
MOST_MESSAGES = 1000
"""In one answer."""


def due(holdings: Holdings, asked: QueueSet, now: float) -> LeaseRequest | float:
    """A request that is under way from now on, or when one may be due."""
    look_at = inf
    for request in asked.under_way:
        if request.again_at is not None:
            if request.again_at <= now:
                request.repeat(now)
                return request
            look_at = min(look_at, request.again_at)
    receives = asked.receives
    if len(receives) < (MOST_RECEIVES if asked.has_more else 1):
        most, receive_at = _room(holdings, asked, now)
        if most:
            return _begun(_new_receive(holdings, asked, most, now))
        look_at = min(look_at, receive_at)
    if len(receives) == len(asked.under_way):
        settle_at = max(min(_settle_at(holdings, asked, now), asked.extend_at), asked.refused_until)
        if (asked.divided or settle_at <= now) and (settling := _new_settle(asked, now)) is not None:
            return _begun(settling)
        look_at = min(look_at, settle_at)
    elif not any(one.extends for one in asked.under_way):  # leases go on while the server refuses what is settled
        if asked.extend_at <= now and (extension := _new_extension(asked, now)) is not None:
            return _begun(extension)
        look_at = min(look_at, asked.extend_at)
    return look_at


def _begun(request: LeaseRequest) -> LeaseRequest:
    request.asked.under_way.append(request)
    return request


def poll_seconds(holdings: Holdings) -> float:
    """Until queues that were empty are asked again, if no request waits at the server."""
    if holdings.options.exit_at_end:
        return SETTLE_SECONDS
    return max(POLL_SECONDS, POLL_SECONDS_A_SET * len(holdings.queues.sets))


def _new_receive(holdings: Holdings, asked: QueueSet, most: int, now: float) -> LeaseRequest:
    is_ahead = bool(asked.receives)
    may_wait = not (is_ahead or asked.is_on_trial or holdings.options.exit_at_end)
    waits = may_wait and holdings.queues.lasting_sets <= MOST_WAITING
    asked.asked_at = now
    return LeaseRequest(
        asked,
        [*asked.queues.values()],
        asked.next_ended(),
        now,
        most,
        visibility=asked.visibility,
        wait=WAIT_SECONDS if waits else 0.0,
        turns=holdings.turns_of_queues,
        is_ahead=is_ahead,
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


def _new_extension(asked: QueueSet, now: float) -> LeaseRequest | None:
    seconds, queues = asked.to_extend(now)
    return LeaseRequest(asked, [*queues], [], now, extends=seconds) if queues else None


def _room(holdings: Holdings, asked: QueueSet, now: float) -> tuple[int, float]:
    """How many messages to ask for, and if none, when to look again."""
    if holdings.is_draining or not asked.is_open or not holdings.wants_messages:
        return 0, inf
    if (resume_at := max(asked.resume_at, asked.refused_until)) > now:
        return 0, resume_at
    if not (asked.has_more or asked.ended) and now < asked.answered_at + COMPANY_SECONDS and asked.holds:
        return 0, asked.answered_at + COMPANY_SECONDS
    options = holdings.options
    under_way = [request for one in holdings.queues.sets for request in one.receives]
    # The first answer may be of any size, or a message that is larger than the bound would stop the worker.
    is_first = not (holdings.held or under_way)
    if not is_first and holdings.bytes + (len(under_way) + 1) * ANSWER_BYTES > options.prefetch_bytes:
        return 0, inf
    settled_now = sum(len(one.messages) for one in asked.ended)
    most = options.prefetch_messages + options.threads * options.batch
    left = most - (holdings.held - settled_now) - sum(request.most for request in under_way)
    share = left if left < 1 else max(left // max(holdings.queues.open_sets - len(under_way), 1), 1)
    free = (options.threads - len(holdings.busy)) * options.batch
    at_once = sum(request.most for request in under_way if request.asked is asked or not request.wait)
    wanted = free + holdings.ahead - holdings.ready - at_once
    portion = max(options.prefetch_messages // (2 * MOST_RECEIVES), options.threads * options.batch)
    return max(min(wanted, share, portion, MOST_MESSAGES), 0), inf


def _settle_at(holdings: Holdings, asked: QueueSet, now: float) -> float:
    """When what has ended is to be settled without receiving."""
    if not asked.ended:
        return inf
    if holdings.is_draining or not asked.is_open:
        return now
    waiting = None if asked.has_more else next((one for one in asked.receives if one.wait), None)
    if waiting is not None:
        return min(waiting.sent + COMPANY_SECONDS, asked.ended_since + SETTLE_SECONDS)
    return asked.ended_since + SETTLE_SECONDS
