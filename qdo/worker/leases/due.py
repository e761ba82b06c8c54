"""Which request about a queue is due.

A request settles what has ended, extends leases and receives more. Which one is due follows from a few rules:

- Messages are asked for when jobs could begin, or when half of what is read ahead is used up. What ended until then goes
  with that request: a busy worker sends one request for each message or batch.
- After an answer that was short, the next request waits a moment for the jobs, so that it can settle their messages.
- What ended while a request waits at the server, or a quarter of a second ago, is settled by a request of its own.
- Leases of a queue are extended together, at a third of their length.
"""

from __future__ import annotations

from math import inf

from qdo.worker.leases.holdings import Holdings
from qdo.worker.leases.values import LeaseQueue, LeaseRequest

__all__ = ["due", "poll_seconds"]

WAIT_SECONDS = 2.0
"""The server may hold a request back for this long. A worker that ends has to wait for the answer."""
MOST_WAITING = 8
"""Queues with a request that waits at the server. With more queues, none waits, and they are asked in turns."""
POLL_SECONDS, POLL_SECONDS_A_QUEUE = 2.0, 0.02
"""Between two looks at a queue that was empty: the first one, or with very many queues this for each of them."""
SETTLE_SECONDS = 0.25
"""What has ended waits for a request that receives for this long at most."""
COMPANY_SECONDS = 0.02
"""For this long the next request waits for a job to end, and what ended waits for an answer that the server holds back."""
ANSWER_BYTES = 1 << 20
"""Of the bodies and headers in one answer; a single larger message comes alone."""
MOST_MESSAGES = 1000
"""In one answer."""


def due(holdings: Holdings, queue: LeaseQueue, now: float) -> LeaseRequest | float:
    """A request that is under way from now on, or when one may be due."""
    look_at = inf
    for request in (queue.receiving, queue.settling):
        if request is not None and request.again_at is not None:
            if request.again_at <= now:
                request.repeat(now)
                return request
            look_at = min(look_at, request.again_at)
    if queue.receiving is None:
        most, receive_at = _room(holdings, queue, now)
        if most:
            return _new_receive(holdings, queue, most, now)
        look_at = min(look_at, receive_at)
    if queue.settling is None:
        if queue.divided:
            queue.settling = LeaseRequest(queue, queue.divided.popleft(), now)
            return queue.settling
        settle_at = max(min(_settle_at(holdings, queue, now), queue.extend_at), queue.refused_until)
        if settle_at <= now and (queue.ended or queue.held):
            queue.settling = LeaseRequest(queue, queue.next_ended(), now, extends=_is_to_extend(queue, now))
            return queue.settling
        look_at = min(look_at, settle_at if queue.held else inf)
    return look_at


def poll_seconds(holdings: Holdings) -> float:
    """Until a queue that was empty is asked again, if no request waits at the server."""
    if holdings.options.exit_at_end:
        return SETTLE_SECONDS
    return max(POLL_SECONDS, POLL_SECONDS_A_QUEUE * holdings.open_count)


def _new_receive(holdings: Holdings, queue: LeaseQueue, most: int, now: float) -> LeaseRequest:
    waits = not holdings.options.exit_at_end and holdings.open_count <= MOST_WAITING
    queue.receiving = LeaseRequest(
        queue,
        queue.next_ended(),
        now,
        most,
        visibility=queue.visibility,
        wait=WAIT_SECONDS if waits else 0.0,
        extends=not waits and _is_to_extend(queue, now),
    )
    queue.asked = now
    return queue.receiving


def _is_to_extend(queue: LeaseQueue, now: float) -> bool:
    return bool(queue.held) and queue.extend_at - queue.lease_seconds / 6 <= now


def _room(holdings: Holdings, queue: LeaseQueue, now: float) -> tuple[int, float]:
    """How many messages to ask for, and if none, when to look again."""
    if holdings.is_draining or not queue.is_open or not holdings.wants_messages:
        return 0, inf
    if (resume_at := max(queue.resume_at, queue.refused_until)) > now:
        return 0, resume_at
    if queue.was_short and queue.held and not queue.ended and now < queue.answered + COMPANY_SECONDS:
        return 0, queue.answered + COMPANY_SECONDS
    options = holdings.options
    under_way = [one.receiving for one in holdings.queues.values() if one.receiving is not None]
    # The first answer may be of any size, or a message that is larger than the bound would stop the worker.
    is_first = not (holdings.held_count or under_way)
    if not is_first and holdings.bytes + (len(under_way) + 1) * ANSWER_BYTES > options.prefetch_bytes:
        return 0, inf
    settled_now = sum(len(one.messages) for one in queue.ended)
    most = options.prefetch_messages + options.threads * options.batch
    left = most - (holdings.held_count - settled_now) - sum(request.most for request in under_way)
    share = left if left < 1 else max(left // max(holdings.open_count - len(under_way), 1), 1)
    free = (options.threads - len(holdings.busy)) * options.batch
    at_once = sum(request.most for request in under_way if not request.wait)
    wanted = free + holdings.ahead - holdings.ready - at_once
    return max(min(wanted, share, MOST_MESSAGES), 0), inf


def _settle_at(holdings: Holdings, queue: LeaseQueue, now: float) -> float:
    """When what has ended is to be settled without receiving."""
    if not queue.ended:
        return inf
    if holdings.is_draining or not queue.is_open:
        return now
    if queue.receiving is not None and queue.receiving.wait:
        return min(queue.receiving.sent + COMPANY_SECONDS, queue.ended_since + SETTLE_SECONDS)
    return queue.ended_since + SETTLE_SECONDS
