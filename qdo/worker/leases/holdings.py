"""What a worker holds of its queues, without locks and threads.

Messages that came back from a receiver that died may have killed it. They are *set apart*: nothing else is held while
the worker has them, so no other message gains a failure from them (G28).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from contextlib import suppress
from itertools import chain, groupby

from qdo.client.lease_values import Delivery
from qdo.worker.leases.queue_sets import QueueSets
from qdo.worker.leases.turns import QueueTurns
from qdo.worker.leases.values import Ended, HeldMessage, JobOutcome, LeaseQueue, LeaseRequest, Turn
from qdo.worker.options import WorkerOptions
from qdo.worker.work import Counts

__all__ = ["Holdings", "is_suspect"]

AHEAD_SECONDS = 0.25
"""A worker holds what it does in this time, beside what its threads can begin at once."""
TURN_SECONDS, MOST_CALLS = 0.01, 250
"""Of one turn, at most, if its jobs take as long as those before."""
LEAST_TURN_SECONDS = 0.001
"""A turn is no shorter to leave messages to other threads."""
MEMORY = 0.1
"""The weight of the last turn in the mean of how long a message takes."""


class Holdings:
    """Messages that are ready, set apart, worked on, or ended and not settled."""

    def __init__(self, options: WorkerOptions, counts: Counts) -> None:
        self.options = options
        self.turns_of_queues = QueueTurns(weights=options.weights)
        self.counts = counts
        self.queues = QueueSets()
        self.held = 0
        """Messages that are received and not settled."""
        self.received = 0
        """Messages so far."""
        self.turns: deque[LeaseQueue] = deque()
        """Queues with messages that are ready, in turns."""
        self.ready = 0
        self.bytes = 0
        self.busy: dict[int, Turn] = {}
        """What each thread works on."""
        self.apart: deque[list[HeldMessage]] = deque()
        self.is_apart = False
        """What was set apart is being worked on."""
        self.message_seconds: float | None = None
        """What one message takes a thread, from its beginning to its end."""
        self.has_ended = False
        """No job begins any more."""

    # Measures

    @property
    def ahead(self) -> int:
        """Messages that are worth holding beside those that threads can begin."""
        seconds = self.message_seconds
        if seconds is None:
            return 0
        return int(min(AHEAD_SECONDS * self.options.threads / max(seconds, 1e-6), self.options.prefetch_messages))

    @property
    def wants_messages(self) -> bool:
        """Jobs could begin, or half of what is read ahead is used up."""
        return self.ready <= self.ahead // 2

    @property
    def is_draining(self) -> bool:
        """Nothing is received before all that is held is settled."""
        return self.has_ended or self.is_apart or bool(self.apart)

    @property
    def is_empty(self) -> bool:
        """Nothing is held, and nothing is under way."""
        return not self.held and all(one.is_idle for one in self.queues.sets)

    @property
    def dead_since(self) -> int:
        """Messages that the groups have given up since this worker began, as far as it has looked."""
        return sum(queue.dead - (queue.dead_before or 0) for queue in self.queues.by_name.values())

    # Working

    def take(self, caller: int, now: float) -> Turn | None:
        """Calls to make one after the other, each with messages of one queue."""
        calls: list[Sequence[HeldMessage]] = []
        while self.turns and not calls:
            queue, keys = self.turns_of_queues.take_next(self.turns), set[str]()
            for _ in range(self._calls_of_a_turn(queue)):
                some = [one for _ in range(self.options.batch) if (one := queue.next_ready(keys)) is not None]
                if not some:
                    break
                self.ready -= len(some)
                calls.append(some)
            if calls and queue.ready:
                self.turns.append(queue)
        calls = calls or self._left_by_others(now)
        if not calls:
            return None
        turn = self.busy[caller] = Turn(calls, now)
        return turn

    def _calls_of_a_turn(self, queue: LeaseQueue) -> int:
        """Short jobs go in turns, so that threads need not meet for each; a long one is a turn by itself."""
        if self.message_seconds is None or queue.per_key != 1 or self.is_apart:
            return 1
        seconds = max(self.message_seconds * self.options.batch, 1e-6)
        fair = max(len(queue.ready) // (self.options.threads * self.options.batch), int(LEAST_TURN_SECONDS / seconds))
        return max(min(int(TURN_SECONDS / seconds), fair, MOST_CALLS), 1)

    def _left_by_others(self, now: float) -> list[Sequence[HeldMessage]]:
        """A call that waits behind one that takes longer than expected."""
        for turn in self.busy.values():
            if turn.calls and now - turn.began > 2 * TURN_SECONDS:
                with suppress(IndexError):  # its thread has just begun it
                    return [turn.calls.pop()]
        return []

    @property
    def waits_behind_others(self) -> bool:
        """Whether a thread without work may soon take some from another one."""
        return any(turn.calls for turn in self.busy.values())

    def end(self, caller: int, ended: Sequence[Ended], now: float) -> None:
        """A turn is over. Messages that waited for a key may begin now."""
        turn, count = self.busy.pop(caller), sum(len(one.messages) for one in ended)
        if count:
            seconds, before = (now - turn.began) / count, self.message_seconds
            self.message_seconds = seconds if before is None else before + MEMORY * (seconds - before)
        for one in ended:
            queue = one.queue
            queue.asked_with.end(one, now)
            self.counts.failed += one.how is JobOutcome.FAILED
            if queue.running_keys:
                queue.running_keys -= {message.delivery.key for message in one.messages}
                if queue.ready and queue not in self.turns:
                    self.turns.append(queue)
        for some in turn.calls:
            some[0].queue.give_back(some, now)

    def put(self, messages: Sequence[HeldMessage]) -> None:
        """These may be worked on."""
        for queue, some in groupby(messages, lambda message: message.queue):
            queue.ready.extend(some)
            if queue not in self.turns:
                self.turns.append(queue)
        self.ready += len(messages)

    def got(self, request: LeaseRequest, deliveries: Sequence[Delivery], now: float) -> None:
        """These were received."""
        messages: list[HeldMessage] = []
        for name, some in groupby(deliveries, lambda delivery: delivery.queue):
            messages += next(one for one in request.queues if one.name == name).took(request, [*some], now)
        self.held += len(messages)
        self.received += len(messages)
        self.bytes += sum(message.size for message in messages)
        if self.has_ended:
            for message in messages:
                message.queue.give_back([message], now)
        elif messages and is_suspect(deliveries, messages[0].queue.max_failures):
            self.apart.append(messages)
        else:
            self.put(messages)

    def advance(self) -> None:
        """Go on with what was set apart, once nothing else is held."""
        if self.held == sum(map(len, self.apart)):
            self.is_apart = bool(self.apart)
            if self.apart:
                self.put(self.apart.popleft())

    def give_all_back(self, now: float) -> None:
        """No job begins any more: what none has begun is given back."""
        self.has_ended = True
        for queue in self.queues.by_name.values():
            queue.give_back([*queue.ready], now)
            queue.ready.clear()
        for message in chain.from_iterable(self.apart):
            message.queue.give_back([message], now)
        self.apart.clear()
        self.turns.clear()
        self.ready = 0

    # Settling

    def over(self, request: LeaseRequest, *, is_settled: bool = True) -> None:
        """A request is answered. What it settled is not held any more."""
        request.asked.under_way.remove(request)
        self.queues.drop_unused()
        if is_settled:
            for one in request.ended:
                self.forget(one.queue, one.messages)

    def forget(self, queue: LeaseQueue, messages: Sequence[HeldMessage]) -> None:
        """These are settled, or somebody else's."""
        before = len(queue.held)
        self.bytes -= queue.forget(messages)
        self.held -= before - len(queue.held)

    def put_back(self, request: LeaseRequest, now: float) -> None:
        """Nothing of a request was done: what ended is settled later, as long as its leases last."""
        self.over(request, is_settled=False)
        for one in reversed(request.ended):
            if one.lease_until > now:
                one.queue.asked_with.ended.appendleft(one)
            else:
                self.forget(one.queue, one.messages)
                self.count_lost([one])

    def count(self, one: Ended, stale: Collection[str]) -> None:
        """The server has settled these, but for stale ones."""
        settled = [message for message in one.messages if message.receipt not in stale]
        self.counts.lost += len(one.messages) - len(settled)
        if one.how is JobOutcome.DONE:
            self.counts.done += len(settled)
        elif one.how is JobOutcome.REJECTED:
            self.counts.dead += len(settled)
        elif one.how is JobOutcome.FAILED:
            self.counts.dead += sum(message.is_given_up for message in settled)

    def count_lost(self, ended: Sequence[Ended]) -> None:
        self.counts.lost += sum(len(one.messages) for one in ended)

    def missing(self, queue: LeaseQueue) -> None:
        """The queue does not exist. Its messages, and their leases, are gone; those of running jobs end with these."""
        running = {one.receipt for turn in self.busy.values() for some in (turn.current, *turn.calls) for one in some}
        gone = [message for message in queue.held.values() if message.receipt not in running]
        self.counts.lost += len(gone)
        self.forget(queue, gone)
        self.ready -= len(queue.ready)
        self.apart = deque(left for some in self.apart if (left := [one for one in some if one.queue is not queue]))
        queue.ready.clear()
        asked = queue.asked_with
        asked.ended = deque(one for one in asked.ended if one.queue is not queue)
        if queue in self.turns:
            self.turns.remove(queue)


def is_suspect(deliveries: Sequence[Delivery], max_failures: int | None) -> bool:
    """Whether one of these may have ended a receiver.

    A receiver that dies with several messages costs none of them a failure, so their deliveries outnumber the failures.
    The server hands out a message alone that has its last try.

    :param max_failures: of the group; None if it is not known, and 0 for no end.
    """
    if any(one.failures + 1 < one.deliveries for one in deliveries):
        return True
    failures = deliveries[0].failures
    if len(deliveries) > 1 or not failures or max_failures == 0:
        return False
    return max_failures is None or failures + 1 >= max_failures
