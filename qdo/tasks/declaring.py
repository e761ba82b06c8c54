"""Tasks: functions that workers call, and what a program sends to have them called."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypedDict, TypeVar, Unpack, overload

import msgspec

from qdo.client.endpoint import MOST_TIMEOUT_SECONDS
from qdo.client.given import check_list, check_seconds, check_text
from qdo.client.moments import moment_to_wire
from qdo.client.values import NewMessage
from qdo.client.wire import once_of
from qdo.groups.names import is_new_queue_name
from qdo.tasks.arguments import Arguments, ReturnValue
from qdo.tasks.occurrences import MISSED, Cron
from qdo.tasks.results import TaskResult, watch
from qdo.tasks.sending import append, append_batch, delete
from qdo.tasks.wire import RESULTS, THEN, NextStep, new_task
from qdo.worker.checking import check_number, check_options
from queuey.errors import ConfigurationError, InvalidParameter

__all__ = ["DeclaredTask", "TaskFields", "TaskOptions", "TaskSender", "task"]

P = ParamSpec("P")
R = TypeVar("R")

MOST_PAUSE_SECONDS = 3600.0
"""Between two attempts, if the pauses double."""
_BOUNDS = {"retries": (0, inf), "timeout": (0.001, MOST_TIMEOUT_SECONDS), "backoff": (0, inf)}


class TaskFields(TypedDict, total=False):
    """The fields of :class:`TaskOptions`, as keyword arguments."""

    name: str | None
    queue: str
    retries: int
    backoff: float | Callable[[int], float]
    timeout: float | None
    unique: bool
    results: bool | str
    cron: str | None
    tz: str
    missed: Literal["one", "all", "none"]


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """How a task is sent and run.

    :raises ConfigurationError: a value is out of range, or two options contradict each other.
    """

    name: str | None = None
    """In messages; None for the module and the name of the function. Messages that are under way name it, so keep it."""
    queue: str = "tasks"
    """Of its messages. It is made with the first of them."""
    retries: int = 4
    """Attempts after the first one. After the last one the message is a dead letter."""
    backoff: float | Callable[[int], float] = 1.0
    """Seconds before the second attempt; each further pause is twice as long, up to an hour. Or a function that gets the
    number of the attempt that failed, from 1, and returns seconds."""
    timeout: float | None = None
    """Seconds for one attempt, up to a year; None for no end."""
    unique: bool = False
    """Store a call once within 24 hours if it is sent again with the same arguments."""
    results: bool | str = False
    """Store what the function returns: True in the queue ``<queue>-results``, a text in the queue of that name."""
    cron: str | None = None
    """When a worker sends the task by itself, such as ``0 6 * * *``; with six fields the first is seconds. All parameters of
    the task need defaults then."""
    tz: str = "UTC"
    """The time zone of ``cron``, such as ``Europe/Berlin``."""
    missed: Literal["one", "all", "none"] = "one"
    """Which occurrences are sent late, if no worker ran when they were due: one of them, all, or none."""

    def __post_init__(self) -> None:
        for what, (least, most) in _BOUNDS.items():
            value = getattr(self, what)
            if not ((what == "timeout" and value is None) or (what == "backoff" and callable(value))):
                check_number(what, value, least, most, whole=what == "retries")
        name: object = self.name
        if name is not None and (not isinstance(name, str) or not name):
            raise ConfigurationError(f"name is {name!r}: expected a text")
        if not isinstance(self.unique, bool):
            raise ConfigurationError(
                f"unique is {self.unique!r}: expected True or False; schedule(unique=...) takes a key of your own"
            )
        if not isinstance(self.results, bool | str):
            raise ConfigurationError(f"results is {self.results!r}: expected True, False or the name of a queue")
        for queue in (self.queue, *([] if self.results_queue is None else [self.results_queue])):
            if not is_new_queue_name(queue):
                raise ConfigurationError(
                    f"queue {queue!r}: expected 1 to 50 letters, digits, _ . -; results=NAME names another"
                )
        if self.missed not in MISSED:
            raise ConfigurationError(f"missed is {self.missed!r}: expected one of {', '.join(MISSED)}")
        if self.cron is not None:
            Cron(self.cron, self.tz)
            return
        for name, usual in (("tz", "UTC"), ("missed", "one")):
            if getattr(self, name) != usual:
                raise ConfigurationError(f"{name} is of a task that workers send by themselves: give cron as well")

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> TaskOptions:
        """Options by their names.

        :raises ConfigurationError: there is no such option.
        """
        check_options(cls, given, "a task")
        return cls(**given)

    def pause(self, attempt: int) -> float:
        """Seconds after a failed attempt, from 1."""
        if callable(self.backoff):
            return max(0.0, float(self.backoff(attempt)))
        return float(min(self.backoff * 2.0 ** min(attempt - 1, 60), MOST_PAUSE_SECONDS))

    @property
    def results_queue(self) -> str | None:
        """The queue for results; None if there are none."""
        if isinstance(self.results, str):
            return self.results
        return f"{self.queue}-results" if self.results else None


@dataclass(frozen=True)
class TaskSender(Generic[P, R]):
    """A task with what goes beside its arguments: a time, a key, the steps behind it."""

    task: DeclaredTask[P, R]
    in_: float | timedelta | None = None
    at: datetime | str | None = None
    key: str | None = None
    unique: str | None = None
    steps: tuple[NextStep, ...] = ()
    last: DeclaredTask[Any, Any] | None = None
    """The last of the steps; None if there are none."""

    def schedule(
        self,
        *,
        in_: float | timedelta | None = None,
        at: datetime | str | None = None,
        key: str | None = None,
        unique: str | None = None,
    ) -> TaskSender[P, R]:
        """The same, to be sent at another time, or under a key.

        :param in_: seconds from now, or a duration; not together with ``at``.
        :param at: a moment with a time zone, or decimal seconds since 1970.
        :param key: messages of one key share a partition. In a lease group with ``order`` ``key`` they are run one after the
            other.
        :param unique: an idempotency key: a call that is sent again under it within 24 hours is stored once.
        :raises InvalidParameter: ``at`` is no moment, has no time zone, or stands beside ``in_``, which is no number of
            seconds from 0 on; or ``key`` or ``unique`` is no text.
        """
        if in_ is not None and at is not None:
            raise InvalidParameter(problems={"at": "give in_ or at, one of them"})
        if at is not None:
            moment_to_wire(at, "at", ago=False)
        if in_ is not None:
            check_seconds("in_", in_.total_seconds() if isinstance(in_, timedelta) else in_, 0)
        for name, text in (("key", key), ("unique", unique)):
            if text is not None:
                check_text(name, text)
        return replace(self, in_=in_, at=at, key=key, unique=unique)

    def then(self, following: DeclaredTask[Any, Any], /, **arguments: Any) -> TaskSender[P, R]:
        """The same, with a further step: its message is stored in the commit that acknowledges the step before.

        :param arguments: of the following task. The first of its parameters that is not among them gets what the step before
            returned.
        :raises InvalidParameter: this is no task, or it does not take these arguments, or lacks some.
        """
        if not isinstance(following, DeclaredTask):
            raise InvalidParameter(problems={"following": f"{following!r} is no task: declare it with @task"})
        following.arguments.encode_some(arguments)
        into = next((name for name in following.arguments.names if name not in arguments), None)
        lacking = [name for name in following.arguments.required if name not in arguments and name != into]
        if lacking:
            raise InvalidParameter(
                f"task {following.name}: {', '.join(lacking)}: give each parameter but the first, which gets the value"
            )
        step = NextStep(following.name, following.options.queue, msgspec.to_builtins(arguments), into)
        return replace(self, steps=(*self.steps, step), last=following)

    def message(self, *args: P.args, **kwargs: P.kwargs) -> NewMessage:
        """The message that :meth:`send` would store, for another client: ``await client.append(task.queue, ...)``.

        :raises InvalidParameter: the task takes other arguments, or one has no form in JSON.
        """
        declared, body = self.task, self.task.arguments.encode(args, kwargs)
        unique = self.unique
        if unique is None and declared.options.unique:
            unique = once_of("task", declared.name, body.decode())
        headers = {RESULTS: self.results_queue, THEN: msgspec.json.encode(self.steps) if self.steps else None}
        seconds = self.in_.total_seconds() if isinstance(self.in_, timedelta) else self.in_
        return new_task(
            declared.name,
            body,
            headers,
            delay_seconds=seconds,
            deliver_at=self.at,
            key=self.key,
            idempotency_key=unique,
        )

    @property
    def results_queue(self) -> str | None:
        """The queue for the result of the task, or of the last step."""
        return (self.last or self.task).options.results_queue

    def send(self, *args: P.args, **kwargs: P.kwargs) -> TaskResult:
        """Have the task called by a worker.

        :returns: with its ``id``, and the result once there is one.
        :raises InvalidParameter: as :meth:`message`. Nothing is sent.
        :raises KeyReused: ``unique`` was used for other arguments. Nothing is stored.
        """
        return self._results([append(self.task.options.queue, self.message(*args, **kwargs))])[0]

    def send_many(self, calls: Iterable[Mapping[str, Any]]) -> list[TaskResult]:
        """Have the task called once for each of these arguments by name: all are stored, or none.

        :raises InvalidParameter: as :meth:`message`. Nothing is sent.
        """
        expected = 'a list of arguments by name, such as [{"to": "ann@example.org"}]'
        check_list("calls", calls, expected)
        calls = [*calls]
        check_list("calls", calls, expected, Mapping)
        messages = [self.message(**call) for call in calls]  # type: ignore[call-arg] # checked against the signature
        return self._results(append_batch(self.task.options.queue, messages)) if messages else []

    def _results(self, ids: Iterable[str]) -> list[TaskResult]:
        returns = ReturnValue((self.last or self.task).function, (self.last or self.task).name)
        has_steps = bool(self.steps)
        return [watch(TaskResult(one, self.results_queue, returns, has_steps=has_steps)) for one in ids]


class DeclaredTask(Generic[P, R]):
    """A function that workers call. Calling it calls the function in place."""

    def __init__(self, function: Callable[P, R], options: TaskOptions) -> None:
        """:raises ConfigurationError: the function has parameters that cannot be sent, or is a generator."""
        self.function, self.options = function, options
        """What was declared."""
        self.name = options.name or _name_of(function)
        """In messages, and for ``qdo work``."""
        functools.update_wrapper(self, function)
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigurationError(f"task {self.name} is a generator, whose lines run only when somebody iterates")
        self.arguments = Arguments(function, self.name)
        self.returns = ReturnValue(function, self.name)
        if options.cron is not None and (required := self.arguments.required):
            raise ConfigurationError(f"task {self.name} has a cron line: {', '.join(required)} needs a default")

    def __repr__(self) -> str:
        return f"<task {self.name} of queue {self.queue}>"

    if not TYPE_CHECKING:  # a type checker knows all attributes

        def __getattr__(self, name: str) -> Any:
            """:raises AttributeError: with the word for it here, if other libraries for tasks have this attribute."""
            here = f": here it is {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
            raise AttributeError(f"a task has no attribute {name!r}{here}")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now."""
        return self.function(*args, **kwargs)

    @property
    def queue(self) -> str:
        """The queue of its messages."""
        return self.options.queue

    @property
    def is_async(self) -> bool:
        """Whether a call returns a coroutine."""
        return inspect.iscoroutinefunction(self.function)

    def send(self, *args: P.args, **kwargs: P.kwargs) -> TaskResult:
        """As :meth:`TaskSender.send`."""
        return TaskSender(self).send(*args, **kwargs)

    def send_many(self, calls: Iterable[Mapping[str, Any]]) -> list[TaskResult]:
        """As :meth:`TaskSender.send_many`."""
        return TaskSender(self).send_many(calls)

    def message(self, *args: P.args, **kwargs: P.kwargs) -> NewMessage:
        """As :meth:`TaskSender.message`."""
        return TaskSender(self).message(*args, **kwargs)

    def schedule(
        self,
        *,
        in_: float | timedelta | None = None,
        at: datetime | str | None = None,
        key: str | None = None,
        unique: str | None = None,
    ) -> TaskSender[P, R]:
        """As :meth:`TaskSender.schedule`."""
        return TaskSender(self).schedule(in_=in_, at=at, key=key, unique=unique)

    def then(self, following: DeclaredTask[Any, Any], /, **arguments: Any) -> TaskSender[P, R]:
        """As :meth:`TaskSender.then`."""
        return TaskSender(self).then(following, **arguments)

    def result(self, task_id: str) -> TaskResult:
        """The result of a task by its id, in another process than the one that sent it.

        :raises InvalidParameter: it is no id of a task.
        """
        return TaskResult(task_id, self.options.results_queue, self.returns)

    def cancel(self, sent: TaskResult | str) -> None:
        """Remove the message of a task, so that no worker begins it. A task that has begun goes on.

        If it is removed, ``get`` raises :class:`~qdo.tasks.results.TaskRemoved` some seconds later.

        :param sent: what :meth:`send` gave, or its id. A task that is done, or does not exist, is no error.
        :raises InvalidParameter: it is no id of a task of this queue.
        """
        task_id = sent.id if isinstance(sent, TaskResult) else sent
        check_text("id", task_id)
        queue, slash, place = task_id.partition("/")
        if not slash or queue != self.queue:
            raise InvalidParameter(problems={"id": f"{task_id!r} is no id of a task of queue {self.queue}"})
        delete(queue, place)
        if isinstance(sent, TaskResult):
            sent.look_soon()


_ELSEWHERE = {
    "delay": "send(...)",
    "apply_async": "schedule(in_=..., at=...).send(...)",
    "send_with_options": "schedule(in_=..., at=...).send(...)",
    "defer": "send(...)",
    "enqueue": "send(...)",
    "s": "then(task, ...)",
    "si": "then(task, ...)",
    "signature": "then(task, ...)",
    "retry": "raise qdo.RetryLater(seconds)",
}
"""Attributes of tasks in other libraries."""


def _name_of(function: Callable[..., Any]) -> str:
    """The module and the name of a function, as workers find it."""
    module = function.__module__
    if module == "__main__":
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        module = spec.name if spec else Path(getattr(main, "__file__", None) or "__main__").stem
    return f"{module}.{function.__qualname__}"


@overload
def task(function: Callable[P, R], /) -> DeclaredTask[P, R]: ...


@overload
def task(**options: Unpack[TaskFields]) -> Callable[[Callable[P, R]], DeclaredTask[P, R]]: ...


def task(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Declare that workers may call a function.

    ::

        @task(queue="mail", retries=5)
        def send_mail(to: str, subject: str = "hello") -> None: ...

        send_mail.send(to="ann@example.org")

    :param options: fields of :class:`TaskOptions`.
    :raises ConfigurationError: an option is unknown or out of range, or the function cannot be a task.
    """
    if isinstance(function, str):
        raise ConfigurationError(f"@task({function!r}): options have names, such as @task(queue={function!r})")
    if function is not None and not callable(function):
        raise ConfigurationError(f"@task({function!r}): a task is a function, and options have names")
    checked = TaskOptions.of(options)
    if function is not None:
        return DeclaredTask(function, checked)
    return lambda found: DeclaredTask(found, checked)
