"""A backend for the tasks of Django: ``django.tasks`` of Django 6, or the package ``django-tasks`` before.

::

    TASKS = {"default": {"BACKEND": "qdo.adapters.django.tasks.QueueyTaskBackend", "QUEUES": ["default"]}}

A task is a message, and ``run_after`` is its delivery time. ``manage.py queuey_tasks`` runs tasks. What became of one is a
message at the same place of the queue ``<queue>-results``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import close_old_connections
from django.utils.module_loading import import_string

try:
    from django.tasks import signals, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import TaskResultDoesNotExist
except ImportError:  # before Django 6
    from django_tasks import signals, task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django_tasks.exceptions import TaskResultDoesNotExist

from qdo.adapters.clients import ThreadClients, check_receiving, make_job_queue
from qdo.client import Client, Message, NewMessage
from qdo.client.values import address
from qdo.worker.job import Context, RejectMessage, StopWorker, reason_of, unknown_task
from qdo.worker.unread import ending_if_unread
from queuey import tracebacks
from queuey.errors import BadRequest, ConfigurationError, QueueNotFound

__all__ = ["QueueyTaskBackend", "TaskRunner", "task_backends"]

HEADER = "queuey-django-task"
"""Of a message: the path of the task. Its body has the arguments."""
JSON = "application/json"
LIFE_SECONDS = 33_554_432
"""Of a task that waits: the longest TTL there is, 388 days, from the moment at which it is due."""
RESULT_SECONDS = 7 * 86_400
"""For which the result of a task is kept."""
TIMES = ("enqueued_at", "started_at", "finished_at", "last_attempted_at")
OPTIONS = {"url", "application", "key", "group"}


class QueueyTaskBackend(BaseTaskBackend):
    """Sends tasks, and knows what became of them.

    The options ``url``, ``application`` and ``key`` name the server; without a URL the environment does. ``group`` is the lease
    group of the workers.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        """:raises ImproperlyConfigured: an option is unknown, or no group can have this name."""
        super().__init__(alias, params)
        if unknown := self.options.keys() - OPTIONS:
            raise ImproperlyConfigured(
                f"TASKS[{alias!r}]: unknown option {min(unknown)}: expected {', '.join(sorted(OPTIONS))}"
            )
        self.group = self.options.get("group", "django")
        try:
            check_receiving(self.group, None)
        except ConfigurationError as error:
            raise ImproperlyConfigured(f"TASKS[{alias!r}]: {error}") from error
        self._clients = ThreadClients(self.make_client)

    def make_client(self) -> Client:
        return Client(*(self.options.get(name) for name in ("url", "application", "key")))

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Store a task. It is stored once this returns, whether or not a transaction of Django is open.

        :raises InvalidTask: the backend does not take it.
        """
        self.validate_task(task)
        now = datetime.now(UTC)
        result = _result(task, "", self.alias, list(args), dict(kwargs), enqueued_at=now)
        body = {"args": result.args, "kwargs": result.kwargs, "enqueued_at": now.isoformat()}
        new = NewMessage.of_json(
            body, ttl_seconds=LIFE_SECONDS, deliver_at=_aware(task.run_after), headers={HEADER: task.module_path}
        )
        stored = self._in_queue(task.queue_name, lambda client: client.append(task.queue_name, new))
        object.__setattr__(result, "id", f"{task.queue_name}/{address(stored)}")
        signals.task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """A task and what became of it.

        :raises TaskResultDoesNotExist: there is no such task, or its result is not kept any more.
        :raises QueueyError: the server is away, or does not let this site read. Whether there is a result is not known then.
        """
        queue, _, place = result_id.partition("/")
        client = self._clients.get()
        try:
            found = _first(client, results_queue(queue), place)
            if found is not None:
                return self.recorded(result_id, found)
            waiting = _first(client, queue, place)
            return self.waiting(queue, waiting) if waiting is not None else _missing(result_id)
        except (BadRequest, QueueNotFound, ImportError, LookupError, TypeError, ValueError) as error:
            raise TaskResultDoesNotExist(result_id) from error

    def waiting(self, queue: str, message: Message) -> Any:
        """The task of a message that was not begun.

        :raises LookupError, TypeError, ValueError, ImportError: it is no task of Django.
        """
        body = json.loads(message.body)
        task = self._task(message.headers[HEADER].decode(), queue)
        at = datetime.fromisoformat(body["enqueued_at"])
        return _result(task, f"{queue}/{address(message)}", self.alias, body["args"], body["kwargs"], enqueued_at=at)

    def recorded(self, result_id: str, message: Message) -> Any:
        """A result as a worker recorded it."""
        told = json.loads(message.body)
        task = self._task(told["task"], told["queue"])
        times = {name: told[name] and datetime.fromisoformat(told[name]) for name in TIMES}
        result = _result(task, result_id, self.alias, told["args"], told["kwargs"], **times)
        changes = {
            "status": TaskResultStatus(told["status"]),
            "errors": [TaskError(exception_class_path=path, traceback=text) for path, text in told["errors"]],
            "worker_ids": told["worker_ids"],
            "_return_value": told["value"],
        }
        for name, value in changes.items():
            object.__setattr__(result, name, value)
        return result

    def record(self, result: Any) -> None:
        """Store what is known of a task, in place of what was known."""
        queue, _, place = result.id.partition("/")
        told = {
            "task": result.task.module_path,
            "queue": queue,
            "args": result.args,
            "kwargs": result.kwargs,
            "status": str(result.status),
            "errors": [[one.exception_class_path, one.traceback] for one in result.errors],
            "worker_ids": result.worker_ids,
            "value": result._return_value,  # noqa: SLF001 -- the property raises if there is none
        } | {name: (at := getattr(result, name)) and at.isoformat() for name in TIMES}
        new = NewMessage.of_json(told, ttl_seconds=RESULT_SECONDS)
        results = results_queue(queue)
        try:
            self._clients.get().put(results, place, new)
        except QueueNotFound:
            self._clients.get().create_queue(results)
            self._clients.get().put(results, place, new)

    def make_queues(self) -> None:
        for name in self.queues:
            make_job_queue(self._clients.get(), name)

    def close(self) -> None:
        self._clients.close()

    def _in_queue(self, name: str, store: Callable[[Client], Any]) -> Any:
        client = self._clients.get()
        try:
            return store(client)
        except QueueNotFound:
            make_job_queue(client, name)
            return store(client)

    def _task(self, path: str, queue: str) -> Any:
        found = import_string(path)
        if not isinstance(found, Task):
            raise ImportError(f"{path} is no task")  # noqa: TRY004 -- as where there is nothing of this name
        return found.using(queue_name=queue, backend=self.alias)


class TaskRunner:
    """The job of a worker on tasks of Django."""

    def __init__(self, backend: QueueyTaskBackend) -> None:
        self._backend = backend

    def __call__(self, message: Message, context: Context) -> None:
        """Run a task once, and record what became of it. One that raises has failed, and is not tried again.

        One whose end was recorded by a worker that died before it acknowledged the message is not run again.

        :raises RejectMessage: the message is no task, or what becomes of it can never be stored.
        :raises RetryLater: this site does not have the task yet.
        """
        try:
            result = self._backend.waiting(context.queue, message)
        except (LookupError, TypeError, ValueError) as error:
            raise RejectMessage(f"no task of Django: {reason_of(error)}") from error
        except ImportError as error:
            raise unknown_task(context.attempt, f"no task of this site: {reason_of(error)}") from None
        if context.generation > 1:  # it was handed out before, and its worker may have died
            result = self._known(result)
            if result.status in (TaskResultStatus.SUCCESSFUL, TaskResultStatus.FAILED):
                return
        close_old_connections()
        try:
            self._run(result, context.member)
        finally:
            close_old_connections()

    def _known(self, result: Any) -> Any:
        try:
            return self._backend.get_result(result.id)
        except TaskResultDoesNotExist:
            return result

    def _run(self, result: Any, worker: str) -> None:
        now = datetime.now(UTC)
        first = {"started_at": now} if result.started_at is None else {}
        _set(result, status=TaskResultStatus.RUNNING, last_attempted_at=now, **first)
        result.worker_ids.append(worker)
        self._record(result)
        signals.task_started.send(sender=type(self._backend), task_result=result)
        context = (TaskContext(task_result=result),) if result.task.takes_context else ()
        try:
            with ending_if_unread():
                value = result.task.call(*context, *result.args, **result.kwargs)
            value = json.loads(json.dumps(value, allow_nan=False))
        except StopWorker:
            raise
        except Exception as error:  # noqa: BLE001 -- a user's
            self._fail(result, error)
            return
        _set(result, status=TaskResultStatus.SUCCESSFUL, finished_at=datetime.now(UTC), _return_value=value)
        try:
            self._backend.record(result)
        except BadRequest as error:  # it is too large, for instance: to run the task again would not mend it
            self._fail(result, error)
        else:
            signals.task_finished.send(sender=type(self._backend), task_result=result)

    def _fail(self, result: Any, error: Exception) -> None:
        text = tracebacks.text_of(error, error.__traceback__)
        path = f"{type(error).__module__}.{type(error).__qualname__}"
        result.errors.append(TaskError(exception_class_path=path, traceback=text))
        _set(result, status=TaskResultStatus.FAILED, finished_at=datetime.now(UTC), _return_value=None)
        self._record(result)
        signals.task_finished.send(sender=type(self._backend), task_result=result)

    def _record(self, result: Any) -> None:
        """:raises RejectMessage: the server refuses it, and would another time."""
        try:
            self._backend.record(result)
        except BadRequest as error:
            raise RejectMessage(f"what became of it cannot be stored: {error.code}: {error}") from error


def results_queue(queue: str) -> str:
    """The queue with the results of a queue's tasks."""
    return f"{queue}-results"


def _result(task: Any, result_id: str, alias: str, args: list[Any], kwargs: dict[str, Any], **times: Any) -> Any:
    """A task that was not begun, as far as is known."""
    return TaskResult(
        task=task,
        id=result_id,
        status=TaskResultStatus.READY,
        args=args,
        kwargs=kwargs,
        backend=alias,
        errors=[],
        worker_ids=[],
        **dict.fromkeys(TIMES) | times,
    )


def _set(result: Any, **values: Any) -> None:
    """Results are frozen to those that read them."""
    for name, value in values.items():
        object.__setattr__(result, name, value)


def _first(client: Client, queue: str, place: str) -> Message | None:
    try:
        return next(iter(client.get(queue, place)), None)
    except QueueNotFound:
        return None


def _missing(result_id: str) -> Any:
    raise TaskResultDoesNotExist(result_id)


def _aware(moment: datetime | None) -> datetime | None:
    """Naive moments of a site without time zones are in its own."""
    return moment.astimezone() if moment is not None and moment.tzinfo is None else moment
