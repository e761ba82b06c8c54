"""An answer that is on its way: from a group commit, a Cassandra future, a wake-up.

The functions of ``queuey/api`` and ``queuey/service`` are coroutines that await nothing but
promises. They know no event loop: :func:`run` drives one in a thread that waits, :class:`LoopRunner`
on an event loop. A promise that is kept already costs neither a switch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, cast

from queuey.locks import new_lock

T = TypeVar("T")

log = logging.getLogger(__name__)

_lock = new_lock()
"""Guards the moment between 'is it kept?' and 'then tell me', for all promises: it is held for nanoseconds."""


class Future(Generic[T]):
    """A value or an error that one thread will set, once, and others await.

    >>> Future.of(3).result()
    3
    """

    __slots__ = ("_callback", "_error", "_kept", "_value")

    def __init__(self) -> None:
        self._kept = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callback: Callable[[Future[T]], None] | None = None

    @classmethod
    def of(cls, value: T) -> Future[T]:
        """A promise that is kept already."""
        promise = cls()
        promise._value = value
        promise._kept = True
        return promise

    @classmethod
    def failed(cls, error: BaseException) -> Future[T]:
        """A promise that is broken already."""
        promise = cls()
        promise._error = error
        promise._kept = True
        return promise

    @property
    def done(self) -> bool:
        return self._kept

    def set_result(self, value: T) -> None:
        """Set the value and tell who waits. Keeping a promise twice is a mistake that shows as AssertionError."""
        self._settle(value, None)

    def set_error(self, error: BaseException) -> None:
        """Set the error and tell who waits."""
        self._settle(None, error)

    def _settle(self, value: T | None, error: BaseException | None) -> None:
        with _lock:
            if self._kept:
                raise AssertionError("a promise is kept once")
            self._value, self._error, self._kept = value, error, True
            callback, self._callback = self._callback, None
        if callback is not None:
            callback(self)

    def result(self) -> T:
        """The value; only once kept.

        :raises BaseException: the error it was failed with.
        """
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """Call back once, in the thread that keeps the promise, or at once if it is kept. One waiter a promise."""
        with _lock:
            if not self._kept:
                self._callback = callback
                return
        callback(self)

    def wait(self, timeout_seconds: float | None = None) -> T:
        """Block this thread until the promise is kept.

        :raises TimeoutError: not kept in time; it may still be kept later.
        """
        if not self._kept:
            done = threading.Event()
            self.add_done_callback(lambda _: done.set())
            if not done.wait(timeout_seconds):
                raise TimeoutError
        return self.result()

    def __await__(self) -> Generator[Future[T], None, T]:
        if not self._kept:
            yield self
        return self.result()


Waiting = Coroutine["Future[Any]", None, T]
"""A coroutine that awaits only promises."""


def run(work: Waiting[T]) -> T:
    """Drive a coroutine to its end; this thread waits wherever it must."""
    try:
        while True:
            promise = work.send(None)
            if not promise.done:
                done = threading.Event()
                promise.add_done_callback(lambda _, done=done: done.set())  # type: ignore[misc]
                done.wait()
    except StopIteration as stop:
        return cast(T, stop.value)


def start(work: Waiting[T]) -> Future[T]:
    """Start a coroutine and promise its outcome; it goes on in whichever thread keeps what it awaits.

    So a store can take several steps for one call while no thread waits for any of them.
    """
    promise: Future[T] = Future()
    _Started(work, promise)()
    return promise


class _Started(Generic[T]):
    """A coroutine that goes on when what it awaits is kept.

    It is told of by nothing that it holds: in a cycle the outcome, which may be a page of a megabyte, would stay until somebody collects garbage.
    """

    __slots__ = ("_promise", "_work")

    def __init__(self, work: Waiting[T], promise: Future[T]) -> None:
        self._work = work
        self._promise = promise

    def __call__(self, _: Future[Any] | None = None) -> None:
        try:
            while True:
                awaited = self._work.send(None)
                if not awaited.done:
                    awaited.add_done_callback(self)
                    return
        except StopIteration as stop:
            self._promise.set_result(cast(T, stop.value))
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to who awaits the promise
            self._promise.set_error(error)


def at_turns_end(work: Callable[[], object]) -> None:
    """Do it once all that came with this turn of the event loop is dealt with; at once in a thread without a loop."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        work()
    else:
        loop.call_soon(work)


_of_thread = threading.local()


def give_way_to(inbox: LoopInbox) -> None:
    """From now on :func:`others_turn` in this thread lets that loop have a turn."""
    _of_thread.loop = inbox


async def others_turn() -> None:
    """Go on in a later turn of the event loop, so that long work does not hold up all others.

    A thread that gives way to a loop waits here until that loop has done what is waiting. In any other thread this is at once.
    """
    turn: Future[None] = Future()
    inbox: LoopInbox | None = getattr(_of_thread, "loop", None)
    if inbox is None:
        at_turns_end(partial(turn.set_result, None))
        await turn
        return
    inbox.arrives(partial(turn.set_result, None))
    while not (turn.done or inbox.closed):
        with contextlib.suppress(TimeoutError):
            turn.wait(_LOOK_SECONDS)


_LOOK_SECONDS = 0.1
"""Between two looks whether the loop that is waited for has ended."""


class Inbox(Protocol):
    """Where a coroutine goes on when what it awaited is kept."""

    def arrives(self, go_on: Callable[[], object]) -> None:
        """From any thread: let ``go_on`` be called soon."""


class LoopInbox:
    """Carries what other threads have done to one event loop, one wake-up for as much as has gathered.

    A group commit keeps its promises one after the other; waking the loop for each costs a system
    call each. Here the first wakes it and the others ride along.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._arrived: deque[Callable[[], object]] = deque()
        self._woken = False
        self.closed = False
        """The loop has no more turns: nobody waits for one. Whoever ends it sets this."""

    def arrives(self, go_on: Callable[[], object]) -> None:
        """From any thread: let ``go_on`` be called on the loop soon."""
        self._arrived.append(go_on)
        if not self._woken:
            self._woken = True
            # A loop that was closed has nobody waiting: that must not harm the thread that keeps the promise.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._woken = False
        arrived = self._arrived
        while arrived:
            try:
                arrived.popleft()()
            except Exception:
                log.exception("a call that was waited for could not go on")  # the others have done nothing wrong


class LoopRunner(Generic[T]):
    """A coroutine driven to its end on a loop, or in threads, which do other work wherever it must wait; no task, no future."""

    __slots__ = ("_done", "_failed", "_inbox", "_work")

    def __init__(
        self,
        work: Waiting[T],
        inbox: Inbox,
        done: Callable[[T], object],
        failed: Callable[[BaseException], object],
    ) -> None:
        """:param inbox: where ``work`` goes on after each wait; begin there as well.
        :param done: called once, where ``work`` ends, with what it returns.
        :param failed: called instead with what it raises.
        """
        self._work = work
        self._inbox = inbox
        self._done = done
        self._failed = failed

    def go_on(self) -> None:
        """Begin, or go on now that what was awaited is kept."""
        send = self._work.send
        try:
            promise = send(None)
            while promise.done:
                promise = send(None)
        except StopIteration as stop:
            self._done(stop.value)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to who waits
            self._failed(error)
        else:
            promise.add_done_callback(self._kept)

    def _kept(self, promise: Future[Any]) -> None:
        self._inbox.arrives(self.go_on)

    def give_up(self) -> None:
        """Where it would go on: end the coroutine while it waits, so that what it holds is given back at once."""
        self._done = self._failed = _nobody
        self._work.close()


def _nobody(outcome: object) -> None:
    """Who waited has gone."""
