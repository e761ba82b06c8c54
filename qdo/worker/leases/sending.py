"""The threads that send requests about leases: to receive, to settle and to extend."""

from __future__ import annotations

import json
import logging
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import time

from qdo.client import Client
from qdo.client.lease_groups import LeaseGroup
from qdo.client.refusals import may_pass
from qdo.worker.leases.buffer import LeaseBuffer
from qdo.worker.leases.due import MOST_WAITING
from qdo.worker.leases.values import Ended, JobOutcome, LeaseQueue, LeaseRequest
from queuey.clock import Clock
from queuey.errors import (
    ApplicationNotFound,
    InvalidParameter,
    InvalidReceipt,
    LeaseGroupNotFound,
    QueueNotFound,
    QueueyError,
    StaleReceipt,
    TooManyWaiters,
    Unauthenticated,
)

__all__ = ["LeaseSenders"]

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS, MOST_PAUSE_SECONDS = 0.4, 30.0
"""Before a request that failed is sent again. Pauses double."""
SETTINGS_SECONDS = 60.0
"""Between two looks at the settings of a group."""


class LeaseSenders:
    """A few threads, each with a client of its own. Any of them sends whatever is due."""

    def __init__(
        self, make_client: Callable[[], Client], buffer: LeaseBuffer, clock: Clock, group: str, *, exit_at_end: bool
    ) -> None:
        """:param exit_at_end: look whether an empty queue is done, and not only leased to others."""
        self._make_client = make_client
        self._buffer = buffer
        self._clock = clock
        self._group = group
        self._exit_at_end = exit_at_end
        self._receiver = ""
        self._lock = threading.Lock()
        self._threads = 0
        self.requests = 0
        """Sent so far. Threads count without a lock, so it may be a few too low: it is for people to see."""

    def start(self, receiver: str, queues: int) -> None:
        """Have enough threads: one for each request that waits at the server, and two for others.

        :param receiver: the name under which leases are extended together.
        """
        self._receiver = receiver
        with self._lock:
            while self._threads < min(queues, MOST_WAITING) + 2:
                threading.Thread(target=self._run, name=f"leases-{self._threads}", daemon=True).start()
                self._threads += 1

    def _run(self) -> None:
        with self._make_client() as client:
            while (request := self._buffer.next_request()) is not None:
                try:
                    self._send(client, request)
                except Exception:
                    log.exception("a request about %s was not dealt with", request.names)

    def _send(self, client: Client, request: LeaseRequest) -> None:
        """Send a request, and survive whatever goes wrong."""
        self.requests += 1
        try:
            for queue in request.queues:
                self._look_before(client, queue)
            settled = client.settle(request.where, self._group, request.to_settle(self._receiver))
        except QueueyError as error:
            self._not_done(request, error)
            if isinstance(error, QueueNotFound):
                self._look_for_end(client, request.queues)
        except Exception as error:
            if request.has_results and not self._can_be_written(request):  # it never could, and nothing was sent
                self._find_out(request, error)
                return
            log.exception("%s: the answer is none that Queuey gives", request.names)
            with self._buffer.outcomes() as outcomes:
                outcomes.failed(request, _pause(request.tries), "the answer is none that Queuey gives")
        else:
            with self._buffer.outcomes() as outcomes:
                outcomes.answered(request, settled)
            if request.receives and not settled.messages:
                self._look_for_end(client, request.queues)

    def _can_be_written(self, request: LeaseRequest) -> bool:
        """Whether JSON has a form for it. A result may have a field of a type that no message has."""
        try:
            json.dumps(request.to_settle(self._receiver).to_wire())
        except Exception:  # noqa: BLE001 - whatever it is
            return False
        return True

    def _not_done(self, request: LeaseRequest, error: QueueyError) -> None:
        why, is_of_several = f"{error.code}: {error}", len(request.queues) > 1
        if isinstance(error, TooManyWaiters) and request.wait:  # what it settles must not wait for others to go
            request.stop_waiting()
            with self._buffer.outcomes() as outcomes:
                outcomes.failed(request, 0.0, why)
        elif may_pass(error):
            pause = _pause(request.tries)
            log.warning("%s: a request failed, again in %.1f s: %s", request.names, pause, error)
            with self._buffer.outcomes() as outcomes:
                outcomes.failed(request, pause, why)
        elif is_of_several and isinstance(error, InvalidParameter) and "queues" in error.problems:
            with self._buffer.outcomes() as outcomes:
                outcomes.split(request)
        elif request.ended and (isinstance(error, InvalidReceipt | StaleReceipt) or _may_be_of_results(request, error)):
            self._find_out(request, error)
        elif is_of_several:
            log.info("%s: refused, each is asked by itself: %s", request.names, why)
            with self._buffer.outcomes() as outcomes:
                outcomes.parted(request)
        elif isinstance(error, QueueNotFound):
            with self._buffer.outcomes() as outcomes:
                outcomes.missing(request)
        else:
            before = request.asked.trouble
            pause = min((before[0] if before else FIRST_PAUSE_SECONDS / 2) * 2, MOST_PAUSE_SECONDS)
            log.warning("%s: refused, again in %.1f s: %s", request.names, pause, why)
            with self._buffer.outcomes() as outcomes:
                outcomes.refused(request, pause, why)

    def _find_out(self, request: LeaseRequest, error: Exception) -> None:
        """Something that a request settles or appends may be what it was refused for. Nothing was done."""
        first, *others = request.ended
        is_of_lease = isinstance(error, InvalidReceipt | StaleReceipt)
        if others or (request.receives and not is_of_lease):  # it may be a queue that it receives from
            with self._buffer.outcomes() as outcomes:
                outcomes.divided(request)
        elif is_of_lease:
            if len(first.messages) > 1 and not first.results:
                request.ended = [replace(first, messages=[one]) for one in first.messages]
                with self._buffer.outcomes() as outcomes:
                    outcomes.divided(request)
                return
            log.warning("%s: a lease had ended, and what its job did does not count: %s", request.names, error)
            with self._buffer.outcomes() as outcomes:
                if len(first.messages) > 1:  # those that are still leased would be extended with all others
                    request.ended = Ended(first.messages, JobOutcome.GIVEN_BACK).parts()
                    outcomes.divided(request)
                else:
                    outcomes.lost(request)
        else:
            log.error("%s: the results of a job are refused: %s", request.names, error)
            self._buffer.counts.failed += first.how is JobOutcome.DONE
            request.ended = _without_results(first, f"its results are refused: {error}")
            with self._buffer.outcomes() as outcomes:
                outcomes.divided(request)

    # Looking at the group

    def _look_before(self, client: Client, queue: LeaseQueue) -> None:
        """Read the settings at first, and what the group had given up before; later only while it gives messages."""
        is_known = queue.dead_before is not None and not queue.held
        if not is_known and queue.settings_until <= self._clock.elapsed():
            queue.settings_until = self._clock.elapsed() + SETTINGS_SECONDS
            self._found(client, queue)

    def _found(self, client: Client, queue: LeaseQueue) -> LeaseGroup | None:
        """The group as it is now; None if it is not there yet, or may not be looked at.

        :raises QueueyError: nobody knows at the moment.
        """
        try:
            found = self._ask(client, queue)
        except LeaseGroupNotFound:
            queue.dead_before, queue.per_key = queue.dead_before or 0, 1
            return None
        except QueueyError as error:
            if may_pass(error):
                raise
            return None
        with self._buffer.outcomes() as outcomes:
            outcomes.know(queue, found)
        return found

    def _ask(self, client: Client, queue: LeaseQueue) -> LeaseGroup:
        return client.lease_group(queue.name, self._group)

    def _look_for_end(self, client: Client, queues: Sequence[LeaseQueue]) -> None:
        """Whether empty queues are done, once no job is under way: look at each, up to the first that is not."""
        if not self._exit_at_end or (received := self._buffer.received_if_settled) is None:
            return
        for queue in queues:
            if queue.done_at == received:
                continue
            if not self._is_done(client, queue):
                return
            with self._buffer.outcomes() as outcomes:
                outcomes.looked(queue, received)

    def _is_done(self, client: Client, queue: LeaseQueue) -> bool:
        """Whether nothing is left to do in an empty queue.

        Others may have messages, or some wait for another try. And on Cassandra the queue is empty as long as its messages are
        younger than the read delay.
        """
        try:
            found = self._found(client, queue)
        except QueueyError as error:
            log.warning("queue %s: nobody knows whether it is done: %s", queue.name, error)
            return False
        if found is None:
            return True
        is_paused = float(found.settings["paused_until"] or 0) > time()
        return not (is_paused or any(one.held or one.more is not False for one in found.partitions))


def _may_be_of_results(request: LeaseRequest, error: QueueyError) -> bool:
    """Whether a request may be refused for what it appends. Some are, whatever they ask for."""
    return request.has_results and not isinstance(error, Unauthenticated | ApplicationNotFound)


def _without_results(ended: Ended, why: str) -> list[Ended]:
    """What becomes of messages whose results cannot be stored: they fail, and the last failure says why.

    A rejection stays one.
    """
    if ended.how is JobOutcome.REJECTED:
        return replace(ended, results={}).parts()
    if ended.instead is not None:
        return Ended(ended.messages, JobOutcome.REJECTED, why, results=ended.instead).parts()
    last = [one for one in ended.messages if one.is_given_up]
    others = [one for one in ended.messages if not one.is_given_up]
    outcomes = Ended(last, JobOutcome.REJECTED, why), Ended(others, JobOutcome.FAILED)
    return [part for one in outcomes if one.messages for part in one.parts()]


def _pause(tries: int) -> float:
    most: float = min(FIRST_PAUSE_SECONDS * 2.0 ** min(tries, 10), MOST_PAUSE_SECONDS)
    return most * random.uniform(0.5, 1)  # noqa: S311 - no secret
