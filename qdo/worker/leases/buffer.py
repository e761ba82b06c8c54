"""What a worker on leases has under way, for all its threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from math import inf

from qdo.worker.leases.due import due
from qdo.worker.leases.holdings import TURN_SECONDS, Holdings
from qdo.worker.leases.outcomes import Outcomes
from qdo.worker.leases.values import Ended, HeldMessage, LeaseRequest, QueueSet, Turn
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
        self._outcomes = Outcomes(self.holdings, elapsed)
        self._lock = threading.Lock()
        self._work_is_ready = threading.Condition(self._lock)
        self._request_is_due = threading.Condition(self._lock)
        self._closed = False
        self._looking = 0
        """Threads that wait for a short time, since a job may take longer than expected."""

    def follow(self, names: Collection[str]) -> None:
        """Receive from these queues, and from no others any more."""
        with self._lock:
            self.holdings.queues.follow(names, self._elapsed(), at_once=self.holdings.turns_of_queues.is_given)
            self._request_is_due.notify_all()

    # Jobs

    def take(self, caller: int) -> Turn | None:
        """Wait for messages to work on. None at the end.

        :param caller: names the thread.
        """
        with self._lock:
            while not self.holdings.has_ended:
                if (turn := self.holdings.take(caller, self._elapsed())) is not None:
                    self._wake_next()
                    self._tell_senders()
                    return turn
                looks_again = self.holdings.waits_behind_others
                self._looking += looks_again
                self._work_is_ready.wait(2 * TURN_SECONDS if looks_again else None)
                self._looking -= looks_again
            return None

    def _wake_next(self) -> None:
        """Each thread that takes work wakes the next, if there is more: so few threads do what takes little time."""
        holdings = self.holdings
        if holdings.ready or (holdings.waits_behind_others and not self._looking):
            self._work_is_ready.notify()

    def end(self, caller: int, ended: Sequence[Ended]) -> None:
        """A turn is over. Of its calls that have not begun, the messages are given back."""
        with self._lock:
            if any(not one.queue.asked_with.ended for one in ended):
                self._request_is_due.notify()
            self.holdings.end(caller, ended, self._elapsed())
            self._wake_next()
            self._tell_senders()

    def _tell_senders(self) -> None:
        holdings = self.holdings
        if holdings.wants_messages:
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

        Of several sets of queues, the one that was asked for messages the longest time ago comes first.
        """
        with self._lock:
            while not self._closed:
                now, look_at = self._elapsed(), inf
                for asked in sorted(self.holdings.queues.sets, key=_asked_at):
                    found = due(self.holdings, asked, now)
                    if isinstance(found, LeaseRequest):
                        return found
                    look_at = min(look_at, found)
                self._request_is_due.wait(min(max(look_at - now, 0.001), 1.0))
            return None

    @contextmanager
    def outcomes(self) -> Iterator[Outcomes]:
        """Take in what became of requests, while the block runs."""
        with self._lock:
            yield self._outcomes
            self.holdings.advance()
            self._wake_next()
            self._request_is_due.notify()

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
                for queue in self.holdings.queues.by_name.values()
                if queue.held
            ]

    @property
    def is_empty(self) -> bool:
        """Nothing is held, and nothing is under way."""
        with self._lock:
            return self.holdings.is_empty

    @property
    def received_if_settled(self) -> int | None:
        """How many messages were received so far, if all of them are settled."""
        with self._lock:
            return None if self.holdings.held else self.holdings.received

    @property
    def is_at_end(self) -> bool:
        """Nothing is left to do in any queue, as far as the last looks knew.

        What a job sends may go to any queue. So a look counts only while nothing is received after it.
        """
        with self._lock:
            found, received = self.holdings.queues.by_name.values(), self.holdings.received
            return self.holdings.is_empty and all(queue.done_at == received for queue in found)

    def troubles(self) -> Iterator[tuple[str, str]]:
        """Queues from which nothing can be received at the moment, and why."""
        with self._lock:
            found = [(name, asked.trouble) for asked in self.holdings.queues.sets for name in asked.queues]
        return ((name, trouble[1]) for name, trouble in found if trouble is not None)


def _asked_at(asked: QueueSet) -> float:
    return asked.asked_at
