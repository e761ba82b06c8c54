"""``manage.py queuey_tasks``: a worker on the tasks of a site."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from qdo.adapters.django.tasks import QueueyTaskBackend, TaskRunner, task_backends
from qdo.adapters.stopping import stopped_by_signals
from qdo.client.refusals import may_pass
from qdo.worker import Worker
from queuey.errors import QueueyError


class TasksCommand(BaseCommand):
    help = "Run the tasks that are sent to Queuey. A signal ends the worker once the tasks under way are done."

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--backend", default="default", help="of TASKS; by default %(default)s")
        parser.add_argument("--queue", action="append", help="work on this one; by default on all of the backend")
        parser.add_argument("--threads", type=int, default=4, help="tasks at once; by default %(default)s")
        parser.add_argument("--exit-at-end", action="store_true", help="end when no task is left")

    def handle(
        self, *_: Any, backend: str, queue: list[str] | None, threads: int, exit_at_end: bool, **more: Any
    ) -> None:
        found = task_backends[backend]
        if not isinstance(found, QueueyTaskBackend):
            raise CommandError(f"TASKS[{backend!r}] is no backend of Queuey")
        if strange := set(queue or ()) - found.queues:
            raise CommandError(
                f"{min(strange)} is no queue of TASKS[{backend!r}]: it has {', '.join(sorted(found.queues))}"
            )
        queues = queue or sorted(found.queues)
        try:
            self._make_queues(found)
            worker = Worker(
                TaskRunner(found),
                queues,
                None,
                found.make_client,
                lease=True,
                group=found.group,
                threads=threads,
                exit_at_end=exit_at_end,
            )
            self.stdout.write(f"works on {', '.join(queues)}; Ctrl-C ends once the tasks under way are done")
            with stopped_by_signals(worker.stop):
                worker.run()
        except QueueyError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{worker.counts.done} done, {worker.counts.dead} given up")

    def _make_queues(self, backend: QueueyTaskBackend) -> None:
        """Make the queues. If the server is away, the worker waits for it, and tasks make their queues."""
        try:
            backend.make_queues()
        except QueueyError as error:
            if not may_pass(error):
                raise
            self.stderr.write(f"{error}. Waiting for it.")


Command = TasksCommand
