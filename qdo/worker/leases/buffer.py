"""What a worker on leases has under way, for all its threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from math import inf

from qdo.client.lease_values import Delivery, Settled
from qdo.worker.leases.due import due, poll_seconds
from qdo.worker.leases.holdings import TURN_SECONDS, Holdings
from qdo.worker.leases.values import Ended, HeldMessage, LeaseQueue, LeaseRequest, Turn
from qdo.worker.options import WorkerOptions
from qdo.worker.work import Counts
from queuey.ids import MessageId

__all__ = ["LeaseBuffer"]


class LeaseBuffer:
    """The holdings of one worker. It is thread-safe; jobs and requests run outside its lock."""

    def __init__(self, options: WorkerOptions, elapsed: Callable[[], float], counts: Counts) -> None:
        self._elapsed = elapsed
        self.counts = counts
        self.holdings = Holdings(options, counts)
        self._lock = threading.Lock()
        self._work_is_ready = threading.Condition(self._lock)
        self._request_is_due = threading.Condition(self._lock)
        self._closed = False

    def follow(self, names: Collection[str]) -> None:
        """Receive from these queues, and from no others any more."""
        now = self._elapsed()
        with self._lock:
            queues = self.holdings.queues
            for name in names:
                queues.setdefault(name, LeaseQueue(name, now))
            for name, queue in [*queues.items()]:
                queue.is_open = name in names
                if not queue.is_open and queue.is_idle:
                    del queues[name]
            self._request_is_due.notify_all()

    # Jobs

    def take(self, caller: int) -> Turn | None:
        """Wait for messages to work on. None at the end.

        :param caller: names the thread.
        """
        with self._lock:
            while not self.holdings.has_ended:
                if (turn := self.holdings.take(caller, self._elapsed())) is not None:
                    self._tell_senders()
                    return turn
                self._work_is_ready.wait(2 * TURN_SECONDS if self.holdings.waits_behind_others else None)
            return None

    def end(self, caller: int, ended: Sequence[Ended]) -> None:
        """A turn is over. Of its calls that have not begun, the messages are given back."""
        with self._lock:
            if any(not one.messages[0].queue.ended for one in ended):
                self._request_is_due.notify()
            self._work_is_ready.notify(self.holdings.end(caller, ended, self._elapsed()))
            self._tell_senders()

    def _tell_senders(self) -> None:
        holdings = self.holdings
        if holdings.wants_messages and any(one.is_open and one.receiving is None for one in holdings.queues.values()):
            self._request_is_due.notify()

    def stop(self) -> None:
        """Begin no more jobs, and give back what no job has begun."""
        with self._lock:
            self.holdings.give_all_back(self._elapsed())
            self._work_is_ready.notify_all()
            self._request_is_due.notify_all()

    def close(self) -> None:
        """Send no more requests."""
        with self._lock:
            self.holdings.has_ended = self._closed = True
            self._work_is_ready.notify_all()
            self._request_is_due.notify_all()

    # Requests

    def next_request(self) -> LeaseRequest | None:
        """Wait for the request that is due next. None once closed.

        Of several queues, the one that was asked for messages the longest time ago comes first.
        """
        with self._lock:
            while not self._closed:
                now, look_at = self._elapsed(), inf
                for queue in sorted(self.holdings.queues.values(), key=_asked):
                    found = due(self.holdings, queue, now)
                    if isinstance(found, LeaseRequest):
                        return found
                    look_at = min(look_at, found)
                self._request_is_due.wait(min(max(look_at - now, 0.001), 1.0))
            return None

    def answered(self, request: LeaseRequest, settled: Settled[Delivery]) -> None:
        with self._lock:
            now, queue, holdings = self._elapsed(), request.queue, self.holdings
            holdings.over(request)
            for one in request.ended:
                holdings.count(one, settled.stale)
            queue.trouble = None
            got = queue.took(request, settled, now)
            if request.receives:
                queue.answered, queue.was_short, queue.is_at_end = now, len(got) < request.most, False
                if not got and not request.wait:
                    queue.resume_at = now + poll_seconds(holdings)
            self._work_is_ready.notify(holdings.got(queue, got, now))
            self._go_on()

    def _go_on(self) -> None:
        self._work_is_ready.notify(self.holdings.advance())
        self._request_is_due.notify()

    def failed(self, request: LeaseRequest, pause: float, why: str) -> None:
        """Nobody knows what became of a request: it is repeated as it is."""
        with self._lock:
            request.again_at = self._elapsed() + pause
            request.tries += 1
            request.queue.trouble = pause, why
            self._request_is_due.notify()

    def divided(self, request: LeaseRequest) -> None:
        """A request was refused, and nothing was done, because of something that it settles or appends."""
        with self._lock:
            half = len(request.ended) // 2
            parts = request.ended[:half], request.ended[half:]
            request.queue.divided.extend(part for part in parts if part)
            self.holdings.over(request, is_settled=False)
            self._go_on()

    def lost(self, request: LeaseRequest) -> None:
        """The leases that a request names had ended, or their queue or group is gone."""
        with self._lock:
            self.holdings.over(request)
            self.holdings.count_lost(request.ended)
            self._go_on()

    def refused(self, request: LeaseRequest, pause: float, why: str) -> None:
        """The server does nothing of this, and will not before somebody changes something.

        What ended is settled later, as long as its leases last.
        """
        with self._lock:
            queue, now = request.queue, self._elapsed()
            self.holdings.over(request, is_settled=False)
            gone = [one for one in request.ended if one.lease_until <= now]
            self.holdings.forget(queue, gone)
            self.holdings.count_lost(gone)
            queue.ended.extendleft(one for one in reversed(request.ended) if one.lease_until > now)
            queue.trouble, queue.refused_until = (pause, why), now + pause
            self._go_on()

    def missing(self, request: LeaseRequest) -> None:
        """The queue of a request does not exist."""
        with self._lock:
            queue = request.queue
            self.holdings.over(request)
            self.holdings.count_lost(request.ended)
            self.holdings.missing(queue)
            queue.is_at_end, queue.resume_at = True, self._elapsed() + poll_seconds(self.holdings)
            self._go_on()

    def looked(self, queue: LeaseQueue, *, is_at_end: bool) -> None:
        """Somebody looked whether anything is left to do in a queue that gave nothing."""
        with self._lock:
            queue.is_at_end = is_at_end and not queue.held

    # Looking

    def running(self) -> list[tuple[Sequence[HeldMessage], float]]:
        """The messages of the calls under way, and since when they are."""
        with self._lock:
            return [(turn.current, turn.call_began) for turn in self.holdings.busy.values() if turn.current]

    def waiting(self) -> list[tuple[int, MessageId | None]]:
        """Of each queue that has some: messages that are received and not settled, and the first of them."""
        with self._lock:
            return [
                (len(queue.held), min(message.delivery.id for message in queue.held.values()))
                for queue in self.holdings.queues.values()
                if queue.held
            ]

    @property
    def is_empty(self) -> bool:
        """Nothing is held, and nothing is under way."""
        with self._lock:
            return all(queue.is_idle for queue in self.holdings.queues.values())

    @property
    def is_at_end(self) -> bool:
        """Nothing is left to do in any queue, as far as the last answers knew."""
        with self._lock:
            return all(queue.is_at_end and queue.is_idle for queue in self.holdings.queues.values())

    def troubles(self) -> Iterator[tuple[str, str]]:
        """Queues from which nothing can be received at the moment, and why."""
        with self._lock:
            found = [(queue.name, queue.trouble) for queue in self.holdings.queues.values()]
        return ((name, trouble[1]) for name, trouble in found if trouble is not None)


def _asked(queue: LeaseQueue) -> float:
    return queue.asked
