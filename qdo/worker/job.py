"""What a user brings: the job, and what to do when it fails."""

from __future__ import annotations

import importlib
import inspect
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from qdo.client.values import Message, NewMessage
from qdo.groups.coordination import Claim
from qdo.worker.checking import check_number
from queuey import tracebacks
from queuey.clock import Clock
from queuey.errors import ConfigurationError, QueueyError
from queuey.ids import TICKS_PER_SECOND
from queuey.model.headers import header_in_any_case
from queuey.model.schedules import TASK_HEADER

__all__ = [
    "Context",
    "FailedMessages",
    "Job",
    "RejectMessage",
    "RetryLater",
    "RetryPolicy",
    "StopWorker",
    "check_job",
    "first_line_of",
    "load_hook",
    "load_module",
    "reason_of",
    "unknown_task",
]

_MOST_REASON = 500
"""Characters."""
MOST_LATER_SECONDS = 43_200.0
"""The longest delay of a message that is released."""
_MOST_SECONDS = 31_536_000
"""A year."""
_BOUNDS: Mapping[str, tuple[float, float]] = {
    "attempts": (1, inf),
    "first_seconds": (0, _MOST_SECONDS),
    "factor": (0, 1000),
    "most_seconds": (0, _MOST_SECONDS),
    "jitter": (0, 1),
}
"""Of a policy's fields. After a pause without end nothing would go on."""
UNKNOWN_ATTEMPTS = 10
"""Of a message whose task this worker does not have. Their pauses, 1 to 256 s, leave eight minutes to bring it out."""

Job = Callable[[Any, "Context"], Any]
"""Called with a message, or a list of messages, and its context. Its return value is ignored; a coroutine is awaited."""


class StopWorker(Exception):
    """A job raises it to end the worker in order.

    Its message counts as not processed.
    """


class RejectMessage(Exception):
    """A job raises it to give its message up at once, since no other attempt would end better.

    The text is the reason that the dead letter tells. ``raise RejectMessage(...) from error`` gives it that error's
    traceback.
    """

    results: Sequence[tuple[str, NewMessage]] = ()
    """Of a leased message: stored with the step that rejects it, each in its queue."""


class RetryLater(Exception):
    """A job raises it to have its message again at a time of its own choice. The attempt has failed like any other.

    ``raise RetryLater(30) from error`` logs that error.
    """

    def __init__(self, seconds: float, reason: str = "") -> None:
        """:param seconds: until the next attempt, at most 12 hours with leases."""
        super().__init__(seconds, reason)
        self.seconds = min(max(0.0, float(seconds)), MOST_LATER_SECONDS)  # in this order 0 takes the place of NaN
        self.reason = reason

    def __str__(self) -> str:
        return self.reason or f"again in {self.seconds:g} s"


def unknown_task(attempt: int, reason: str) -> RejectMessage | RetryLater:
    """What becomes of a message whose task this worker does not have: workers may be brought out after senders.

    :param attempt: of the message, from 1.
    """
    return RejectMessage(reason) if attempt >= UNKNOWN_ATTEMPTS else RetryLater(2.0 ** (attempt - 1), reason)


class Context:
    """What a job can know of where it runs.

    Each key queue has one, and uses it again for each message.
    """

    __slots__ = (
        "_claim",
        "attempt",
        "clock",
        "generation",
        "group",
        "member",
        "message",
        "partition",
        "queue",
        "value",
    )

    def __init__(self, claim: Claim, *, member: str, group: str, clock: Clock, value: Any) -> None:
        """:param value: what ``job_context`` gave."""
        self._claim = claim
        self.queue, self.partition = claim.partition
        """Of the message."""
        self.generation = claim.generation
        """Rises with each owner of the partition. Store it with side effects to refuse those of a former owner (G14)."""
        self.member = member
        """The name of the worker in its group."""
        self.group = group
        """The name of the group."""
        self.clock = clock
        self.attempt = 1
        """Of this message: 1 for the first time."""
        self.message: Message | None = None
        """The message of this call; of a batch the first one."""
        self.value = value
        """What ``job_context`` gave."""

    can_append = False
    """Whether :meth:`append` stores results in one step with the acknowledgement."""

    def append(self, queue: str, message: NewMessage | bytes | str) -> None:
        """Append a result with the acknowledgement of the message, in one step: it is stored once, or not at all.

        Only leased messages have this. If the job raises, or its lease has ended, its results are not stored.

        :raises ConfigurationError: the worker owns partitions, whose offsets are recorded apart from queues.
        """
        raise ConfigurationError(
            f"a result for {queue} cannot be stored in one step with an offset: use a Client, or a worker with lease=True"
        )

    def reject_if_refused(self, instead: Sequence[tuple[str, NewMessage]]) -> None:
        """No other attempt follows: if what the job appends is refused, its message is rejected with the reason.

        :param instead: messages to append then, each with its queue.
        """

    def outcome(self) -> Any:
        """What a call in another process takes back to this one."""
        return None

    def take_over(self, outcome: Any) -> None:
        """Take over what :meth:`outcome` gave there."""

    def plain(self) -> Context:
        """A copy for another process. What ``job_context`` gave stays in this one."""
        copy = Context(self._claim, member=self.member, group=self.group, clock=self.clock, value=None)
        copy.attempt, copy.message = self.attempt, self.message
        return copy

    @property
    def lag_seconds(self) -> float:
        """How long the message has been readable: the age since the moment it was due."""
        if self.message is None:
            return 0.0
        return max((self.clock.now_ticks() - self.message.id.ticks) / TICKS_PER_SECOND, 0.0)


@dataclass(frozen=True)
class RetryPolicy:
    """How often a failed job is tried again, and when.

    Only the message's own partition waits: messages behind it must not overtake it (G16).

    >>> policy = RetryPolicy(attempts=4, first_seconds=1, jitter=0)
    >>> [policy.pause(attempt) for attempt in (1, 2, 3, 4)]
    [1.0, 2.0, 4.0, None]

    :raises ConfigurationError: a value is no number, or out of range.
    """

    attempts: int = 5
    """All attempts together. After the last one the message becomes a dead letter."""
    first_seconds: float = 0.5
    factor: float = 2.0
    most_seconds: float = 60.0
    jitter: float = 0.2
    """A pause is longer or shorter by up to this share of it, at random."""

    def __post_init__(self) -> None:
        for what, (least, most) in _BOUNDS.items():
            check_number(f"retry: {what}", getattr(self, what), least, most, whole=what == "attempts")

    def pause(self, attempt: int) -> float | None:
        """Seconds to wait after a failed attempt, from 1; None if it was the last."""
        if attempt >= self.attempts:
            return None
        try:
            seconds = min(self.first_seconds * self.factor ** (attempt - 1), self.most_seconds)
        except OverflowError:  # after a thousand attempts the number is too large
            seconds = self.most_seconds
        return seconds * (1 + self.jitter * random.uniform(-1, 1))  # noqa: S311 - no secret


@dataclass(frozen=True)
class FailedMessages:
    """Messages whose job failed for the last time."""

    queue: str
    messages: Sequence[Message]
    attempts: int
    error: BaseException

    def subject(self, where: object) -> str:
        """What failed, for a log: the first message, and the task that it names.

        :param where: the queue or the partition.
        """
        first = self.messages[0]
        name = header_in_any_case(first.headers, TASK_HEADER)
        task = "" if name is None else f"task {name.decode('utf-8', 'backslashreplace')[:_MOST_REASON]}, "
        return f"{task}message {first.id.hex} in {where}"

    @property
    def reason(self) -> str:
        """The class of the error and the first line of its text; of a message that was rejected the text alone.

        It is for people, and to group failures.
        """
        is_bare = isinstance(self.error, RetryLater) and not self.error.reason
        return reason_of(self._cause if is_bare else self.error)

    @property
    def _cause(self) -> BaseException:
        """What the job raised, also behind what says how to go on."""
        says_how = isinstance(self.error, RejectMessage | RetryLater)
        return (self.error.__cause__ if says_how else None) or self.error

    @property
    def has_traceback(self) -> bool:
        """Whether there is more to show than that the job said how to go on.

        An error of Queuey that no line of the job raised, such as of what it returned, says all in its text.
        """
        cause = self._cause
        if isinstance(cause, RejectMessage | RetryLater):
            return False
        return not isinstance(cause, QueueyError) or tracebacks.leaves(Path(__file__).parents[1], cause)

    @property
    def shown(self) -> tuple[type[BaseException], BaseException, TracebackType | None] | None:
        """What a log shows of the error, without the worker's own lines; None if the reason says it all."""
        cause = self._cause
        return (type(cause), cause, self._job_traceback) if self.has_traceback else None

    @property
    def _job_traceback(self) -> TracebackType | None:
        return tracebacks.without(Path(__file__).parents[1], self._cause)

    @property
    def traceback(self) -> str:
        """What Python prints of the error, without the worker's own lines; bounded."""
        return tracebacks.text_of(self._cause, self._job_traceback)


def first_line_of(error: BaseException) -> str:
    """The first line of an error's text, bounded, and UTF-8 whatever it says."""
    try:
        return tracebacks.bounded(str(error).partition("\n")[0][:_MOST_REASON])
    except Exception:  # noqa: BLE001 - a user's class may say nothing of itself
        return "its text cannot be made"


def reason_of(error: BaseException) -> str:
    """The class of an error and the first line of its text; of a message that was rejected the text alone."""
    text = first_line_of(error)
    if isinstance(error, RejectMessage | RetryLater) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def load_module(name: str) -> ModuleType:
    """A module by its name. The current folder is searched as well.

    :raises ConfigurationError: it cannot be imported.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ImportError as error:
        module = name.removesuffix(".py").strip("/").replace("/", ".")
        hint = "" if module == name else f"; a module has a name, no path: {module}"
        raise ConfigurationError(f"module {name} cannot be imported: {error}{hint}") from error


def load_hook(text: str) -> Any:
    """What ``module:name`` names. The current folder is searched as well.

    >>> load_hook("os.path:join").__name__
    'join'

    :raises ConfigurationError: it names nothing that can be called.
    """
    module, colon, name = text.partition(":")
    if not (module and colon and name):
        raise ConfigurationError(f"{text!r} names no function: expected MODULE:FUNCTION, such as jobs:process")
    try:
        found: Any = load_module(module)
    except ConfigurationError as error:
        raise ConfigurationError(f"{text!r}: {error}") from error
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ConfigurationError(f"{text!r}: module {module} has no function {name}")
    return found


def check_job(function: Any, *arguments: str) -> None:
    """Check that a function can be called with these arguments.

    It also checks that a call runs the function.

    >>> check_job(lambda message: None, "message", "context")
    Traceback (most recent call last):
    queuey.errors.ConfigurationError: the job <lambda>(message) cannot be called with (message, context): too many positional arguments

    :raises ConfigurationError: it is no function, takes other arguments, or is a generator: calling that runs nothing.
    """
    if not callable(function):
        raise ConfigurationError(f"the job is {function!r}: expected a function")
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    if any(kind(function) for kind in (inspect.isgeneratorfunction, inspect.isasyncgenfunction)):
        raise ConfigurationError(
            f"the job {name} is a generator, whose lines run only when somebody iterates: no yield"
        )
    try:
        takes = inspect.signature(function)
    except (ValueError, TypeError):
        return  # some functions in C do not tell
    try:
        takes.bind(*arguments)
    except TypeError as error:
        raise ConfigurationError(
            f"the job {name}{takes} cannot be called with ({', '.join(arguments)}): {error}"
        ) from error
