"""The threads that send requests about leases: to receive, to settle and to extend."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from time import time

from qdo.client import Client
from qdo.client.lease_values import LeaseGroup
from qdo.client.refusals import may_pass
from qdo.worker.leases.buffer import LeaseBuffer
from qdo.worker.leases.due import MOST_WAITING
from qdo.worker.leases.values import LEAST_SECONDS, Ended, JobOutcome, LeaseQueue, LeaseRequest
from queuey.clock import Clock
from queuey.errors import InvalidReceipt, LeaseGroupNotFound, QueueNotFound, QueueyError, StaleReceipt, TooManyWaiters

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
        """Have enough threads: one for each request that waits at the server, and one that never waits.

        :param receiver: the name under which leases are extended together.
        """
        self._receiver = receiver
        with self._lock:
            while self._threads < min(queues, MOST_WAITING) + 1:
                threading.Thread(target=self._run, name=f"leases-{self._threads}", daemon=True).start()
                self._threads += 1

    def _run(self) -> None:
        with self._make_client() as client:
            while (request := self._buffer.next_request()) is not None:
                try:
                    self._send(client, request)
                except Exception:
                    log.exception("a request about queue %s was not dealt with", request.queue.name)

    def _send(self, client: Client, request: LeaseRequest) -> None:
        """Send a request, and survive whatever goes wrong."""
        queue = request.queue
        self.requests += 1
        try:
            self._look_before(client, queue)
            settled = client.settle(queue.name, self._group, request.to_settle(self._receiver))
        except QueueyError as error:
            self._not_done(request, error)
        except Exception:
            log.exception("queue %s: the answer is none that Queuey gives", queue.name)
            self._buffer.failed(request, _pause(request.tries), "the answer is none that Queuey gives")
        else:
            self._buffer.answered(request, settled)
            if self._exit_at_end and request.receives and not settled.messages and not queue.held:
                self._look(client, queue)

    def _not_done(self, request: LeaseRequest, error: QueueyError) -> None:
        queue, why = request.queue, f"{error.code}: {error}"
        if isinstance(error, TooManyWaiters) and request.wait:  # what it settles must not wait for others to go
            request.stop_waiting()
            self._buffer.failed(request, 0.0, why)
        elif may_pass(error):
            pause = _pause(request.tries)
            log.warning("queue %s: a request failed, again in %.1f s: %s", queue.name, pause, error)
            self._buffer.failed(request, pause, why)
        elif isinstance(error, QueueNotFound) and not request.has_results:
            self._buffer.missing(request)
        elif request.ended and (isinstance(error, InvalidReceipt | StaleReceipt) or request.has_results):
            self._find_out(request, error)
        else:
            pause = min((queue.trouble[0] if queue.trouble else FIRST_PAUSE_SECONDS / 2) * 2, MOST_PAUSE_SECONDS)
            log.warning("queue %s: refused, again in %.1f s: %s", queue.name, pause, why)
            self._buffer.refused(request, pause, why)

    def _find_out(self, request: LeaseRequest, error: QueueyError) -> None:
        """Something that a request settles or appends was refused, and nothing was done."""
        (first, *others), queue = request.ended, request.queue
        if others:
            self._buffer.divided(request)
        elif isinstance(error, InvalidReceipt | StaleReceipt):
            if len(first.messages) > 1 and not first.results:
                request.ended = [Ended([one], first.how, first.reason) for one in first.messages]
                self._buffer.divided(request)
                return
            log.warning("queue %s: a lease had ended, and what its job did does not count: %s", queue.name, error)
            self._buffer.lost(request)
        else:
            log.error("queue %s: the results of a job are refused: %s", queue.name, error)
            request.ended = [Ended(first.messages, JobOutcome.FAILED)]
            self._buffer.counts.failed += 1
            self._buffer.divided(request)

    # Looking at the group

    def _look_before(self, client: Client, queue: LeaseQueue) -> None:
        """Read the settings now and then, and what the group had given up before."""
        if queue.settings_until <= self._clock.elapsed():
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
        queue.max_failures = int(found.settings["max_failures"])
        queue.per_key = int(found.settings["per_key"])
        queue.visibility = max(float(found.settings["visibility"]), LEAST_SECONDS)
        queue.dead = sum(part.dead for part in found.partitions)
        if queue.dead_before is None:
            queue.dead_before = queue.dead
        return found

    def _ask(self, client: Client, queue: LeaseQueue) -> LeaseGroup:
        return client.lease_group(queue.name, self._group)

    def _look(self, client: Client, queue: LeaseQueue) -> None:
        """Whether an empty queue is done. Others may have messages, or some wait for another try."""
        try:
            found = self._found(client, queue)
        except QueueyError as error:
            log.warning("queue %s: nobody knows whether it is done: %s", queue.name, error)
            return
        is_paused = found is not None and float(found.settings["paused_until"] or 0) > time()
        is_at_end = found is None or not (is_paused or any(part.held for part in found.partitions))
        self._buffer.looked(queue, is_at_end=is_at_end)


def _pause(tries: int) -> float:
    most: float = min(FIRST_PAUSE_SECONDS * 2.0 ** min(tries, 10), MOST_PAUSE_SECONDS)
    return most * random.uniform(0.5, 1)  # noqa: S311 - no secret
