"""The life of a worker on leased messages."""

from __future__ import annotations

import logging
import socket
import threading
import uuid
from collections.abc import Callable, Collection, Sequence
from typing import Any

from qdo.client import Client
from qdo.groups.dead_letter_names import DEFAULT_DEAD_LETTERS, DeadLetterNames
from qdo.groups.subscription import each_queue, is_pattern
from qdo.groups.waking import Waker
from qdo.worker.job import Job
from qdo.worker.leases.buffer import LeaseBuffer
from qdo.worker.leases.sending import LeaseSenders
from qdo.worker.leases.threads import LeaseThreads
from qdo.worker.leases.turns import QueueTurns
from qdo.worker.options import WorkerOptions
from qdo.worker.work import AnyWork, Counts, JobCaller, WorkerFigures
from queuey.clock import SystemClock
from queuey.errors import QueueyError
from queuey.ids import MessageId

__all__ = ["LeaseWork"]

log = logging.getLogger(__name__)

LIST_SECONDS = 5.0
"""Between two times that a worker with patterns lists the queues."""
LOOK_SECONDS = 0.25
"""Between two looks at jobs that take long, and for the end."""


class LeaseWork(AnyWork):
    """Runs a job for each message that a lease group hands to this worker."""

    def __init__(
        self, job: Job, queues: Sequence[str], make_client: Callable[[], Client], options: WorkerOptions
    ) -> None:
        self.options = options
        self.name = f"{(options.name or socket.gethostname().partition('.')[0])[:100]}-{uuid.uuid4().hex[:8]}"
        """The receiver, to the server: the leases of one process are extended together."""
        self._patterns = list(queues)
        self._make_client = make_client = self.ending_without(make_client)
        self._clock = options.clock or SystemClock()
        self._buffer = LeaseBuffer(options, self._clock.elapsed, Counts())
        if options.in_order:
            self._buffer.holdings.turns_of_queues = QueueTurns(in_order=tuple(queues))
        self._senders = LeaseSenders(
            make_client, self._buffer, self._clock, options.group, exit_at_end=options.exit_at_end
        )
        self.caller = JobCaller(job, options)
        self._jobs = LeaseThreads(self.caller, options, self._buffer, self._clock, self.stop)
        self._waker = Waker()
        self._stopped = self._stopped_at_once = False
        self._over = threading.Event()
        self._hung: Collection[str] = ()
        """Receipts of jobs that were reported."""
        self._is_listed = False

    # Life

    def run(self) -> None:
        threading.Thread(target=self._find_queues, name="find-work", daemon=True).start()
        self._jobs.start(self.name)
        try:
            while not self._stopped:
                self._waker.wait(LOOK_SECONDS)
                self._report_hung()
                if self.options.exit_at_end and self._is_listed and self._buffer.is_at_end:
                    self.all_done = not (self.counts.dead or self._buffer.holdings.dead_since or self.troubles())
                    break
            self._buffer.stop()
            until = self._clock.elapsed() + self.options.drain_seconds
            while not (self._stopped_at_once or self._buffer.is_empty) and self._clock.elapsed() < until:
                self._waker.wait(0.02)
        finally:
            self._over.set()
            self._buffer.close()
            self._jobs.caller.close()
        if self.error is not None:
            raise self.error

    def stop(self, *, at_once: bool = False) -> None:
        self._stopped_at_once = self._stopped_at_once or at_once
        self._stopped = True
        self._waker.wake()

    def _find_queues(self) -> None:
        """Names are received from whether or not they exist. Queues of patterns are listed again and again."""
        names = {pattern for pattern in self._patterns if not is_pattern(pattern)}
        self._follow(names)
        if len(names) == len(set(self._patterns)):
            self._is_listed = True
            return
        is_dead_letters = DeadLetterNames(DEFAULT_DEAD_LETTERS).is_one
        patterns = [pattern for pattern in self._patterns if is_pattern(pattern)]
        with self._make_client() as client:
            while not self._over.is_set():
                try:
                    self._follow(names | {found.name for found in each_queue(client, patterns, is_dead_letters)})
                    self._is_listed = True
                except QueueyError as error:
                    log.warning("the queues cannot be listed: %s", error)
                except Exception:
                    log.exception("the queues cannot be listed: the answer is none that Queuey gives")
                self._over.wait(LIST_SECONDS)

    def _follow(self, names: set[str]) -> None:
        self._buffer.follow(names)
        self._senders.start(self.name, len(names))

    def _report_hung(self) -> None:
        now, hung = self._clock.elapsed(), self.options.hung_seconds
        firsts = [messages[0] for messages, began in self._buffer.running() if now - began > hung]
        for first in firsts:
            if first.receipt not in self._hung:
                log.error("a job in %s takes longer than %g s", first.queue.name, hung)
        self._hung = {first.receipt for first in firsts}

    # Figures

    @property
    def counts(self) -> Counts:
        return self._buffer.counts

    @property
    def requests(self) -> int:
        return self._senders.requests

    @property
    def worker_name(self) -> str:
        return self.name

    def waiting(self) -> list[tuple[int, MessageId | None]]:
        return self._buffer.waiting()

    def figures(self) -> WorkerFigures:
        return WorkerFigures.of(self, connected=not self.troubles())

    def troubles(self) -> list[dict[str, Any]]:
        return [{"queue": queue, "why": why[:500]} for queue, why in sorted(self._buffer.troubles())]
