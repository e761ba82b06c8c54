"""The job of a worker on tasks: it finds the task of a message, and calls it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import msgspec

from qdo.client.refusals import may_pass
from qdo.client.values import Message, NewMessage
from qdo.client.wire import once_of
from qdo.tasks.declaring import DeclaredTask
from qdo.tasks.loading import load_tasks
from qdo.tasks.results import RESULT_SECONDS
from qdo.tasks.sending import default_client, make_queue
from qdo.tasks.timing import awaited, within
from qdo.tasks.wire import (
    JSON,
    NAME,
    NO_JSON,
    RESULT_OF,
    RESULTS,
    ROOT,
    STATUS,
    THEN,
    header,
    new_task,
    next_steps,
    root_of,
)
from qdo.worker.forked import in_one_process
from qdo.worker.job import Context, RejectMessage, RetryLater, StopWorker, reason_of, unknown_task
from qdo.worker.spans import name_span
from qdo.worker.unread import ending_if_unread
from queuey.errors import ConfigurationError, InvalidParameter, KeyReused, QueueyError

__all__ = ["TaskJob", "current_context"]

log = logging.getLogger(__name__)

REFUSED = "its results are refused"
"""Why a message is rejected whose task did its work. In a dead letter the refusal follows."""
_current: ContextVar[Context] = ContextVar("current_context")

Parcels = list[tuple[str, NewMessage]]
"""Messages to store with the end of a task, each with its queue."""


def current_context() -> Context:
    """Where the task that calls this runs: its ``message``, ``attempt``, ``queue``, ``member`` and ``is_lost``.

    :raises ConfigurationError: no worker runs a task here.
    """
    try:
        return _current.get()
    except LookupError:
        raise ConfigurationError("no worker runs a task here: the function was called in place") from None


class TaskJob:
    """Calls the task of a message in this thread, or in a process for jobs."""

    def __init__(self, modules: Sequence[str]) -> None:
        """:raises ConfigurationError: as :func:`~qdo.tasks.loading.load_tasks`."""
        self._modules = tuple(modules)
        self.tasks = load_tasks(modules)
        self._known_queues: set[str] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._modules,)

    def __call__(self, message: Message, context: Context) -> None:
        """:raises Exception: whatever the task raises, as what is to become of its message."""
        try:
            call = self._call_of(message, context)
        except RejectMessage as error:
            raise self._given_up(error, message, context) from None
        name_span(f"task {call.task.name}")
        token = _current.set(context)
        try:
            parcels = call.done(call.value())
        except BaseException as error:  # noqa: BLE001 - a user's
            _raise(self._failed(call, error), error)
        finally:
            _current.reset(token)
        try:
            self._store(context, parcels)
        except QueueyError as error:
            if may_pass(error):
                raise
            refused = RejectMessage(f"{REFUSED}: {error}")
            _raise(self._given_up(refused, message, context) if call.is_last else error, error)
        if call.is_last:
            context.reject_if_refused(_result_that_failed(message, context, f"{REFUSED}: see its dead letter"))

    def _call_of(self, message: Message, context: Context) -> TaskCall:
        """:raises RejectMessage: the message is no task, or its arguments are not the task's, or its next steps are none.
        :raises RetryLater: no task has this name yet.
        """
        name = header(message, NAME)
        if name is None:
            raise RejectMessage(f"not a task: it has no header {NAME}")
        task = self.tasks.get(name)
        if task is None:
            raise unknown_task(context.attempt, f"no task is named {name[:200]} in {', '.join(self._modules)}")
        if context.attempt > task.options.retries + 1:
            raise RejectMessage(f"attempt {context.attempt - 1} did not end: its worker died, or lost its lease")
        try:
            next_steps(message)
            return TaskCall(task, task.arguments.decode(message.body), message, context)
        except InvalidParameter as error:
            raise RejectMessage(str(error)) from None
        except NO_JSON as error:
            raise RejectMessage(f"header {THEN}: {error}") from None

    def _failed(self, call: TaskCall, error: BaseException) -> BaseException:
        """What becomes of a message whose task raised this."""
        if isinstance(error, StopWorker):
            return error
        options, attempt = call.task.options, call.context.attempt
        if isinstance(error, RejectMessage) or call.is_last:
            rejected = error if isinstance(error, RejectMessage) else RejectMessage(reason_of(error))
            return self._given_up(rejected, call.message, call.context)
        return error if isinstance(error, RetryLater) else RetryLater(options.pause(attempt))

    def _given_up(self, rejected: RejectMessage, message: Message, context: Context) -> RejectMessage:
        """Let the result say so, if one is asked for and can be stored: it is stored with the rejection."""
        parcels = _result_that_failed(message, context, reason_of(rejected))
        try:
            if context.can_append:
                self._make_queues(parcels, context)
                rejected.results = parcels
            else:
                self._store(context, parcels)
        except QueueyError as error:
            if may_pass(error):
                raise
            log.warning("task %s: nobody hears that it failed, since that is refused: %s", message.id.hex, error)
        return rejected

    def _store(self, context: Context, parcels: Parcels) -> None:
        """Store messages with the acknowledgement; or, where offsets are recorded apart, once before it."""
        self._make_queues(parcels, context)
        for queue, message in parcels:
            if context.can_append:
                context.append(queue, message)
            else:
                with suppress(KeyReused):  # an attempt that was not recorded has stored it, and in other words
                    default_client().append(queue, message)

    def _make_queues(self, parcels: Parcels, context: Context) -> None:
        for queue, _ in parcels:
            # An earlier attempt may have failed since a queue was deleted that this worker had made.
            if queue not in self._known_queues or context.attempt > 1:
                make_queue(default_client(), queue)
                self._known_queues.add(queue)


def _raise(outcome: BaseException, error: BaseException) -> NoReturn:
    """Raise what becomes of a message, because of what its task raised."""
    if outcome is error:
        raise error
    raise outcome from error


@dataclass(frozen=True)
class TaskCall:
    """One attempt at a task."""

    task: DeclaredTask[Any, Any]
    arguments: Mapping[str, Any]
    message: Message
    context: Context

    @property
    def is_last(self) -> bool:
        """Whether no other attempt follows if this one fails."""
        return self.context.attempt > self.task.options.retries

    def value(self) -> Any:
        """What the function returns. A coroutine runs on the event loop of all tasks, and this thread waits.

        :raises TaskTimeout: it takes longer than it may.
        :raises NobodyReads: what it prints has no reader any more.
        """
        seconds = self.task.options.timeout
        with ending_if_unread():
            if self.task.is_async:
                return awaited(self._awaited, seconds)
            with in_one_process():
                return within(seconds, partial(self.task.function, **self.arguments))

    async def _awaited(self) -> Any:
        with in_one_process():
            return await self.task.function(**self.arguments)

    def done(self, value: Any) -> Parcels:
        """The next step of the chain, or the result; nothing if none is asked for.

        :raises InvalidParameter: JSON has no form for the value.
        """
        steps = next_steps(self.message)
        results = header(self.message, RESULTS)
        if not steps and results is None:
            return []
        body = self.task.returns.encode(value)
        if not steps:
            return result_of(self.message, self.context, "done", body)
        step, *rest = steps
        arguments = dict(step.arguments)
        if step.into is not None:
            arguments[step.into] = msgspec.Raw(body)
        headers = {
            RESULTS: results,
            ROOT: root_of(self.context.queue, self.message),
            THEN: msgspec.json.encode(rest) if rest else None,
        }
        following = new_task(
            step.task,
            msgspec.json.encode(arguments),
            headers,
            key=self.message.key,
            idempotency_key=_once("then", self.message, self.context),
        )
        return [(step.queue, following)]


def result_of(message: Message, context: Context, status: str, body: bytes) -> Parcels:
    """The result of a message's task, or of its chain; nothing if none is asked for."""
    queue = header(message, RESULTS)
    if queue is None:
        return []
    headers = {RESULT_OF: root_of(context.queue, message), STATUS: status}
    once = _once("result", message, context)
    return [(queue, NewMessage(body, RESULT_SECONDS, content_type=JSON, idempotency_key=once, headers=headers))]


def _result_that_failed(message: Message, context: Context, reason: str) -> Parcels:
    return result_of(message, context, "failed", msgspec.json.encode({"reason": reason}))


def _once(purpose: str, message: Message, context: Context) -> str | None:
    """Where a message and what it leads to are not stored in one step, an idempotency key keeps them one."""
    if context.can_append:
        return None
    return once_of(purpose, context.queue, message.partition, message.id.hex)
