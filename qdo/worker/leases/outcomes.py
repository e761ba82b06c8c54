"""What a worker makes of answers and refusals."""

from __future__ import annotations

from collections.abc import Callable

from qdo.client.lease_groups import LeaseGroup
from qdo.client.lease_values import Delivery, Settled
from qdo.worker.leases.due import ANSWER_BYTES, poll_seconds
from qdo.worker.leases.holdings import Holdings
from qdo.worker.leases.values import LeaseQueue, LeaseRequest

__all__ = ["Outcomes"]

PARTED_SECONDS = 5.0
"""For which queues that were asked together and refused are remembered as such."""


class Outcomes:
    """Takes in what became of requests; see :meth:`qdo.worker.leases.buffer.LeaseBuffer.outcomes`."""

    def __init__(self, holdings: Holdings, elapsed: Callable[[], float]) -> None:
        self._holdings, self._elapsed = holdings, elapsed

    def answered(self, request: LeaseRequest, settled: Settled[Delivery]) -> None:
        """A request was carried out."""
        now, asked, holdings = self._elapsed(), request.asked, self._holdings
        holdings.over(request)
        for one in request.ended:
            holdings.count(one, settled.stale)
        asked.trouble = None
        if request.extends is not None:
            for queue in request.queues:
                queue.extended(request, request.extends)
        if request.receives:
            asked.answered_at, asked.has_more = now, _is_full(request, settled)
            if not (settled.messages or request.wait or request.is_ahead):
                asked.resume_at = now + poll_seconds(holdings)
        holdings.got(request, settled.messages, now)
        if request.receives and len(request.queues) == 1:
            holdings.queues.has_passed(request.queues[0], now)

    def failed(self, request: LeaseRequest, pause: float, why: str) -> None:
        """Nobody knows what became of a request: it is repeated as it is."""
        request.again_at = self._elapsed() + pause
        request.tries += 1
        request.asked.trouble = pause, why

    def divided(self, request: LeaseRequest) -> None:
        """A request was refused, and nothing was done, because of something that it settles or appends."""
        half = len(request.ended) // 2
        parts = request.ended[:half], request.ended[half:]
        request.asked.divided.extend(part for part in parts if part)
        self._holdings.over(request, is_settled=False)

    def lost(self, request: LeaseRequest) -> None:
        """The leases that a request names had ended, or their queue or group is gone."""
        self._holdings.over(request)
        self._holdings.count_lost(request.ended)

    def refused(self, request: LeaseRequest, pause: float, why: str) -> None:
        """The server does nothing of this about its one queue, and will not before somebody changes something.

        What ended is settled later, as long as its leases last.
        """
        (queue,), now = request.queues, self._elapsed()
        self._holdings.put_back(request, now)
        self._holdings.queues.try_alone(queue, now)
        asked = queue.asked_with
        asked.trouble, asked.refused_until = (pause, why), now + pause

    def parted(self, request: LeaseRequest) -> None:
        """A request was refused, and nothing was done, because of one of its queues: ask each by itself.

        That may tell nothing. So where it was done a moment ago, the next request comes later.
        """
        now = self._elapsed()
        self._holdings.put_back(request, now)
        for queue in request.queues:
            self._holdings.queues.try_alone(queue, now)
            if now < queue.parted_at + PARTED_SECONDS:
                queue.asked_with.resume_at = now + poll_seconds(self._holdings)
            queue.parted_at = now

    def split(self, request: LeaseRequest) -> None:
        """A request was refused, and nothing was done, because of the number of its queues, or of their partitions."""
        now = self._elapsed()
        self._holdings.put_back(request, now)
        self._holdings.queues.split(request, now)

    def missing(self, request: LeaseRequest) -> None:
        """The one queue of a request does not exist."""
        (queue,), now = request.queues, self._elapsed()
        self._holdings.over(request)
        self._holdings.count_lost(request.ended)
        self._holdings.missing(queue)
        self._holdings.queues.try_alone(queue, now)
        queue.asked_with.resume_at = now + poll_seconds(self._holdings)

    def know(self, queue: LeaseQueue, group: LeaseGroup) -> None:
        """Somebody has read what the group of a queue is like."""
        queue.know(group)
        if not queue.asked_with.suits(queue):
            self._holdings.queues.try_alone(queue, self._elapsed())

    def looked(self, queue: LeaseQueue, received: int) -> None:
        """A look found nothing left to do in a queue.

        :param received: messages of all queues, before the look. All of them were settled.
        """
        queue.done_at = received


def _is_full(request: LeaseRequest, settled: Settled[Delivery]) -> bool:
    """Whether an answer has as much as was asked for, or as may be in one."""
    messages = settled.messages
    return len(messages) >= request.most or sum(len(one.body) for one in messages) > ANSWER_BYTES // 2
