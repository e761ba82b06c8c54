"""Calls without I/O, which every client carries out in its own way.

A call is a generator. It yields steps, such as a :class:`Request`, is sent the outcome of each, and returns its result. So
what is sent, repeated and read stands once, and the clients differ in their transport and in ``await``::

    @call
    def offsets(self, queue: str, group: str) -> Steps[list[GroupOffset]]:
        answer = yield from self._endpoint.ask("GET", *group_path(...))
        return ...

:class:`call` makes a method of it: with :class:`Blocks` it returns the result, with :class:`Awaits` a coroutine of it.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import update_wrapper
from math import inf
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from queuey.errors import QueueyError

__all__ = [
    "ALLOWED",
    "FORBIDDEN",
    "Awaits",
    "Blocks",
    "BytesSource",
    "InThread",
    "Items",
    "Listing",
    "NoAnswer",
    "Pause",
    "Read",
    "Repeats",
    "Reply",
    "Request",
    "Step",
    "Steps",
    "call",
    "listing",
]

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True)
class Repeats:
    """Whether a request that may have been carried out is sent again."""

    allowed: bool = True
    """Carrying it out twice is the same as once."""
    within_seconds: float = inf
    """A repeat that is sent later than this is not the same request to the server."""
    longest_pause_seconds: float = inf
    """If a longer pause is asked for before a repeat, there is none."""


ALLOWED, FORBIDDEN = Repeats(), Repeats(allowed=False)


# Steps, and their outcomes.


@dataclass(frozen=True, slots=True)
class Request:
    """One attempt at a request. Its outcome is an :class:`Reply` or :class:`NoAnswer`."""

    method: str
    url: str
    """Whole and quoted."""
    headers: Mapping[str, str]
    body: bytes | memoryview | None
    connect_seconds: float
    """The longest time until there is a connection."""
    silence_seconds: float
    """The longest time without a byte of the answer."""
    repeats: Repeats = ALLOWED
    is_stream: bool = False
    """Leave the body of a successful answer unread."""
    withdraw: Callable[[], Steps[None]] | None = field(default=None, compare=False)
    """What undoes the request if the caller gives it up while it may be under way."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait. It has no outcome."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Read:
    """Take the next bytes of a streamed answer. The outcome is empty at its end, or :class:`NoAnswer` if it broke off.

    With ``seconds`` it is None if nothing comes in this time. The answer can be read on then.
    """

    answer: Reply
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class InThread:
    """Run a function that may wait. Its outcome is what the function returns."""

    function: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Items(Generic[T]):
    """Results of a :data:`Listing`. It has no outcome."""

    items: Iterable[T]


Step = Request | Pause | Read | InThread
Steps = Generator[Step, Any, T]
"""A call: it yields steps, takes their outcomes, and returns its result."""
Listing = Generator[Step | Items[T], Any, None]
"""A call whose results come one after the other."""


class NoAnswer(Exception):
    """A request got no answer, or only a part of one."""

    def __init__(
        self, cause: object, *, never_sent: bool = False, is_final: bool = False, by_proxy: bool = False
    ) -> None:
        """:param never_sent: there was no connection.
        :param is_final: another attempt ends in the same way.
        :param by_proxy: the proxy of the environment made none, or there was none to it.
        """
        super().__init__(str(cause))
        self.never_sent, self.is_final, self.by_proxy = never_sent, is_final, by_proxy


_MISREAD = (LookupError, TypeError, ValueError, AttributeError)
"""What reading an answer raises that lacks something, or has it in another form."""


def advance(steps: Generator[S, Any, Any], outcome: Any) -> S:
    """Hand over the outcome of the last step, and take the next one.

    :raises QueueyError: the answer that it hands over cannot be read as one of Queuey.
    """
    try:
        return steps.send(outcome)
    except _MISREAD as error:
        if isinstance(outcome, Reply):
            raise outcome.is_foreign() from error
        raise


class BytesSource(Protocol):
    """The unread body of an answer."""

    def close(self) -> None:
        """End the connection unless the body was read to its end."""

    def interrupt(self) -> None:
        """Let a read that waits in another thread or task end, as at the end of the body."""

    def file(self) -> Any:
        """A file for reading, to be used in the function of :class:`InThread`."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered."""

    status: int
    reason: str
    headers: Mapping[str, str]
    """Names are found in any case."""
    body: bytes
    """Empty if it is streamed."""
    url: str
    source: BytesSource | None = None
    """The unread body of a stream."""

    def json(self) -> Any:
        """The JSON of a successful answer.

        :raises QueueyError: the answer is not what a Queuey server would send.
        """
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise self.is_foreign() from error

    def is_foreign(self) -> QueueyError:
        """The error that says so: the answer is not what a Queuey server would send."""
        return QueueyError(
            f"What answers at {self.url.partition('?')[0]} is not Queuey: is the address right? A proxy before Queuey has to "
            "hand on its answers, and headers that begin with Queuey-, as they are."
        )

    def close(self) -> None:
        """End a stream."""
        if self.source is not None:
            self.source.close()

    def interrupt(self) -> None:
        """End a stream that another thread or task reads."""
        if self.source is not None:
            self.source.interrupt()


# Methods.


class Blocks(ABC):
    """A subject whose calls wait in their thread, and return their result."""

    __slots__ = ()

    @abstractmethod
    def _do(self, steps: Steps[T]) -> T:
        """Carry out a call."""


class Awaits(ABC):
    """A subject whose calls return coroutines."""

    __slots__ = ()

    @abstractmethod
    async def _do(self, steps: Steps[T]) -> T:
        """Carry out a call."""


class call(Generic[P, T]):  # noqa: N801 -- a decorator
    """A method that carries out the steps of a generator function.

    ``steps`` is that function, for calls that are a part of another.
    """

    def __init__(self, steps: Callable[Concatenate[Any, P], Steps[T]]) -> None:
        self.steps = steps
        update_wrapper(self, steps)

    @overload
    def __call__(self, subject: Blocks, /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def __call__(self, subject: Awaits, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]: ...
    def __call__(self, subject: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        return subject._do(self.steps(subject, *args, **kwargs))  # noqa: SLF001 -- what a subject is

    @overload
    def __get__(self, subject: None, owner: type) -> Self: ...
    @overload
    def __get__(self, subject: Blocks, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, subject: Awaits, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, subject: object, owner: type) -> Any:
        return self if subject is None else MethodType(self, subject)


class listing(Generic[P, T]):  # noqa: N801 -- a decorator
    """As :class:`call`, for a method whose results come one after the other.

    Its subject has ``_each``, which carries out a :data:`Listing`.
    """

    def __init__(self, steps: Callable[Concatenate[Any, P], Listing[T]]) -> None:
        self.steps = steps
        update_wrapper(self, steps)

    @overload
    def __call__(self, subject: Blocks, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]: ...
    @overload
    def __call__(self, subject: Awaits, /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]: ...
    def __call__(self, subject: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        return subject._each(self.steps(subject, *args, **kwargs))  # noqa: SLF001 -- what a subject is

    @overload
    def __get__(self, subject: None, owner: type) -> Self: ...
    @overload
    def __get__(self, subject: Blocks, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, subject: Awaits, owner: type) -> Callable[P, AsyncGenerator[T, None]]: ...
    def __get__(self, subject: object, owner: type) -> Any:
        return self if subject is None else MethodType(self, subject)
