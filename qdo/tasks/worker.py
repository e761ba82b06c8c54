"""A worker on the tasks of some modules, and on the schedules of their application."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from qdo.client import Client
from qdo.client.refusals import may_pass
from qdo.groups.coordination import Coordinator
from qdo.groups.names import check_queues
from qdo.groups.waking import Waker
from qdo.tasks.alarms import send_occurrence
from qdo.tasks.running import TaskJob
from qdo.tasks.schedules import ALARMS, ALARMS_GROUP, Schedule, ScheduleBook
from qdo.tasks.sending import make_queue
from qdo.worker import Worker
from qdo.worker.job import RetryPolicy
from qdo.worker.work import Counts
from queuey.errors import ConfigurationError, LeaseGroupNotFound, QueueyError

__all__ = ["TaskWorker"]

log = logging.getLogger(__name__)

ALARM_THREADS = 4
"""Alarms that a worker looks up at once. What they send goes in one request all the same."""
AGAIN_SECONDS = 2.0
"""Until a server that could not be prepared is asked again."""


class TaskWorker(Worker):
    """Runs the tasks of some modules, and sends what schedules have due.

    ::

        TaskWorker(["myapp.jobs"]).run()
    """

    def __init__(
        self,
        modules: Sequence[str],
        queues: Sequence[str] = (),
        coordinator: Coordinator | None = None,
        make_client: Callable[[], Client] = Client,
        *,
        owned: bool = False,
        **given: Any,
    ) -> None:
        """:param queues: those to work on; by default all queues of the tasks.
        :param owned: work on partitions that this worker owns, in place of leases. Results and steps of chains are stored before
            the offset then, each once.
        :param given: options of :class:`~qdo.worker.Worker`, but for ``lease``, ``batch`` and ``retry``. Tasks send by the
            environment, so it has to name the same server as ``make_client``.
        :raises ConfigurationError: a module or a task is wrong, or as for Worker.
        """
        for name in ("lease", "batch", "retry"):
            if name in given:
                raise ConfigurationError(f"{name} is no option of a worker on tasks")
        job = TaskJob(modules)
        self.tasks = job.tasks
        if isinstance(queues, str):
            check_queues(queues)
        named = dict.fromkeys(task.queue for task in self.tasks.values())
        if strange := [queue for queue in queues if queue not in named]:
            raise ConfigurationError(f"no task is sent to queue {strange[0]}: expected {', '.join(named)}")
        self.queues = list(queues or named)
        attempts = 1 + max(task.options.retries for task in self.tasks.values())
        self._attempts = attempts
        how: dict[str, Any] = {"retry": RetryPolicy(attempts=max(attempts, 10))} if owned else {"lease": True}
        super().__init__(job, self.queues, coordinator, make_client, **how, **given)
        self._make_client = make_client
        self._alarms = Worker(
            *(send_occurrence, [ALARMS], None, make_client),
            lease=True,
            group=ALARMS_GROUP,
            threads=ALARM_THREADS,
            drain_seconds=5.0,
        )
        self._is_over = False
        self._waker = Waker()

    def run(self) -> Counts:
        """As :meth:`~qdo.worker.Worker.run`. First it makes the queues of its tasks, and sets their schedules."""
        self._prepare()
        if self._is_over:
            return self.counts
        alarms = threading.Thread(target=self._run_alarms, name="schedules", daemon=True)
        alarms.start()
        try:
            return super().run()
        finally:
            self._alarms.stop()
            alarms.join(min(self.options.drain_seconds, threading.TIMEOUT_MAX))

    def _run_alarms(self) -> None:
        try:
            self._alarms.run()
        except Exception as error:  # noqa: BLE001 - the worker raises it: without schedules it must not go on
            self.work.error = error
            self.stop()

    def stop(self, *, at_once: bool = False) -> None:
        self._is_over = True
        self._waker.wake()
        super().stop(at_once=at_once)

    def _prepare(self) -> None:
        """:raises QueueyError: the server refuses it for good."""
        while not self._is_over:
            try:
                with self._make_client() as client:
                    self._make_queues(client)
                    self._set_schedules(client)
                return
            except QueueyError as error:
                if not may_pass(error):
                    raise
                log.warning("the queues of tasks cannot be made yet, again in %g s: %s", AGAIN_SECONDS, error)
                self._waker.wait(AGAIN_SECONDS)

    def _make_queues(self, client: Client) -> None:
        for name in self.queues:
            make_queue(client, name)
            if self.options.lease:
                self._allow_attempts(client, name)

    def _allow_attempts(self, client: Client, queue: str) -> None:
        """Tasks count their attempts by themselves: the group must not give a message up before.

        It hands out one more, so that a task whose worker died in its last attempt is given up here, with a result.
        """
        group = self.options.group
        try:
            most = int(client.lease_group(queue, group).settings["max_failures"])
        except LeaseGroupNotFound:
            most = int(client.set_lease_group(queue, group)["max_failures"])
        if 0 < most <= self._attempts:
            client.set_lease_group(queue, group, max_failures=self._attempts + 1)

    def _set_schedules(self, client: Client) -> None:
        book = ScheduleBook(client)
        for task in self.tasks.values():
            options = task.options
            if options.cron is not None:
                body = task.arguments.encode((), {}).decode()
                wanted = Schedule(
                    name=task.name,
                    cron=options.cron,
                    tz=options.tz,
                    missed=options.missed,
                    queue=task.queue,
                    task=task.name,
                    body=body,
                )
                if book.set(wanted):
                    log.info("schedule %s is set: %s %s", task.name, options.cron, options.tz)
