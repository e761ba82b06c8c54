"""A worker: it runs a job for each message of its queues.

:class:`Worker` is what programs use. How it gets messages is its :class:`~qdo.worker.work.AnyWork`:
:class:`~qdo.worker.member_work.MemberWork` on partitions that it owns as a member of a group, or
:class:`~qdo.worker.leases.work.LeaseWork` on messages that a lease group hands out.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import Any

from qdo.client import Client
from qdo.client.values import Message
from qdo.groups.coordination import Coordinator
from qdo.groups.meeting import MeetingPlace
from qdo.groups.names import check_queues
from qdo.worker.hooks_of_2012 import dict_context, log_failure, save_failed_message
from qdo.worker.job import Context, Job, RejectMessage, RetryLater, RetryPolicy, StopWorker, check_job
from qdo.worker.leases.work import LeaseWork
from qdo.worker.member_work import MemberWork
from qdo.worker.options import WorkerOptions
from qdo.worker.runners import is_async
from qdo.worker.work import AnyWork, Counts, WorkerFigures
from queuey.errors import ConfigurationError
from queuey.ids import MessageId

# Settings of 2012 name their hooks qdo.worker:log_failure and so on.
__all__ = [
    "Context",
    "Counts",
    "RejectMessage",
    "RetryLater",
    "RetryPolicy",
    "StopWorker",
    "Worker",
    "WorkerOptions",
    "dict_context",
    "log_failure",
    "save_failed_message",
]


class Worker:
    """Runs a job for each message of the subscribed queues."""

    def __init__(
        self,
        job: Job,
        queues: Sequence[str],
        coordinator: Coordinator | None = None,
        make_client: Callable[[], Client] = Client,
        options: WorkerOptions | None = None,
        **given: Any,
    ) -> None:
        """:param queues: names, or patterns with ``*``, ``?`` and ``[...]``. Queues that come later are found within ten seconds.
        :param coordinator: where the members of the group meet. By default the place that ``qdo work`` takes from the
            environment: then ``qdo status`` shows this worker. With the option ``lease`` members meet nowhere.
        :param make_client: called once for each thread that talks to Queuey. All clients are of one application. By default
            from the environment, as ``Client()``.
        :param given: fields of :class:`~qdo.worker.options.WorkerOptions` by their names, in place of ``options``.
        :raises ConfigurationError: an option is unknown, out of range or contradicts another one; the job takes other
            arguments; ``queues`` has what no queue can be named, or is no list;
            or the dead letters of a queue that is named would need a name that no queue can have.
        """
        if options is not None and given:
            raise ConfigurationError(f"{min(given)} is given beside options: put it into them")
        self.options = options = options or WorkerOptions.of(given)
        check_job(job, "message" if options.batch == 1 else "messages", "context")
        if options.processes and is_async(job):
            raise ConfigurationError("an async job runs on an event loop of this process: no processes")
        check_queues(queues)
        self._made: Coordinator | None = None
        """The coordinator, if the worker made it."""
        self.work = self._work(job, queues, coordinator, make_client)

    def _work(
        self, job: Job, queues: Sequence[str], coordinator: Coordinator | None, make_client: Callable[[], Client]
    ) -> AnyWork:
        if self.options.lease:
            if coordinator is not None:
                raise ConfigurationError("workers on leases meet nowhere: no coordinator")
            return LeaseWork(job, queues, make_client, self.options)
        if coordinator is None:
            place = MeetingPlace.from_environment(self.options.group, make_client)
            self._made = coordinator = place.coordinator(slots=self.options.slots)
        return MemberWork(job, queues, coordinator, make_client, self.options)

    def run(self) -> Counts:
        """Work until something ends the worker.

        :meth:`stop` does, a job's :class:`~qdo.worker.job.StopWorker`, or ``exit_at_end``.

        :raises BrokenPipeError: nobody reads what the jobs print, and one failed to print. It ended the worker in order.
        :raises QueueyError: the server refuses offsets for good, for instance with Forbidden. What is done could not be
            recorded.
        :raises Exception: whatever ``make_client`` raised in one of the threads, without which the worker cannot go on.
        """
        try:
            self.work.run()
        finally:
            if self._made is not None:
                self._made.close()
        if self.work.caller.is_unread:
            raise BrokenPipeError(errno.EPIPE, "nobody reads what the jobs print any more")
        return self.counts

    def stop(self, *, at_once: bool = False) -> None:
        """Let :meth:`run` end in order.

        Jobs under way end, what they did is recorded, and what the worker has is given back.

        It takes no lock, so a signal handler may call it.

        :param at_once: wait for nothing. What is not recorded will be done again.
        """
        self.work.stop(at_once=at_once)

    @property
    def all_done(self) -> bool:
        """The end that ``exit_at_end`` asks for was reached. No message was given up, no partition stands still, and no
        queue was left out.
        """
        return self.work.all_done

    @property
    def counts(self) -> Counts:
        """What happened so far."""
        return self.work.counts

    @property
    def requests(self) -> int:
        """Requests sent so far for messages."""
        return self.work.requests

    def on_call(self, took: Callable[[float], None]) -> None:
        """Have ``took`` called with the seconds of each call of the job.

        The thread that made the call calls it.

        Set it before :meth:`run`.
        """
        self.work.caller.took = took

    def on_failure(self, failed: Callable[[Sequence[Message], Context, Exception], None]) -> None:
        """Have ``failed`` called with what a call of the job raised, its messages and its context.

        The thread that made the call calls it.

        Set it before :meth:`run`.
        """
        self.work.caller.failed = failed

    @property
    def name(self) -> str:
        """The name by which the group or the server knows this worker; empty as long as it has none."""
        return self.work.worker_name

    def waiting(self) -> list[tuple[int, MessageId | None]]:
        """How many messages are fetched and not finished, and the first of them: an entry for each partition or queue."""
        return self.work.waiting()

    def figures(self) -> WorkerFigures:
        """How it is doing, for metrics. Sends no request."""
        return self.work.figures()

    def troubles(self) -> list[dict[str, Any]]:
        """What stands still and why.

        An entry has ``queue``, ``why``, and for a single partition ``partition`` and ``message_id``.
        """
        return self.work.troubles()
