"""An answer that is on its way: from a group commit, a Cassandra future, a wake-up.

The functions of ``queuey/api`` and ``queuey/service`` are coroutines that await nothing but
promises. They know no event loop: :func:`run` drives one in a thread that waits, :func:`drive`
drives one on an asyncio loop. A promise that is kept already costs neither a switch.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")

_lock = threading.Lock()
"""Guards the moment between 'is it kept?' and 'then tell me', for all promises: it is held for nanoseconds."""


class Promise(Generic[T]):
    """A value or an error that one thread will set, once, and others await.

    >>> Promise.of(3).result()
    3
    """

    __slots__ = ("_callback", "_error", "_kept", "_value")

    def __init__(self) -> None:
        self._kept = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callback: Callable[[Promise[T]], None] | None = None

    @classmethod
    def of(cls, value: T) -> Promise[T]:
        """A promise that is kept already."""
        promise = cls()
        promise._value = value
        promise._kept = True
        return promise

    @classmethod
    def failed(cls, error: BaseException) -> Promise[T]:
        """A promise that is broken already."""
        promise = cls()
        promise._error = error
        promise._kept = True
        return promise

    @property
    def kept(self) -> bool:
        return self._kept

    def keep(self, value: T) -> None:
        """Set the value and tell who waits. Keeping a promise twice is a mistake that shows as AssertionError."""
        self._settle(value, None)

    def fail(self, error: BaseException) -> None:
        """Set the error and tell who waits."""
        self._settle(None, error)

    def _settle(self, value: T | None, error: BaseException | None) -> None:
        with _lock:
            if self._kept:
                raise AssertionError("a promise is kept once")
            self._value, self._error, self._kept = value, error, True
            callback = self._callback
        if callback is not None:
            callback(self)

    def result(self) -> T:
        """The value; only once kept.

        :raises BaseException: the error it was failed with.
        """
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def when_kept(self, callback: Callable[[Promise[T]], None]) -> None:
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
            self.when_kept(lambda _: done.set())
            if not done.wait(timeout_seconds):
                raise TimeoutError
        return self.result()

    def __await__(self) -> Generator[Promise[T], None, T]:
        if not self._kept:
            yield self
        return self.result()


Waiting = Coroutine["Promise[Any]", None, T]
"""A coroutine that awaits only promises."""


def run(work: Waiting[T]) -> T:
    """Drive a coroutine to its end; this thread waits wherever it must."""
    try:
        while True:
            promise = work.send(None)
            if not promise.kept:
                done = threading.Event()
                promise.when_kept(lambda _, done=done: done.set())  # type: ignore[misc]
                done.wait()
    except StopIteration as stop:
        return cast(T, stop.value)


class LoopInbox:
    """Carries kept promises from other threads to one event loop, one wake-up for as many as have gathered.

    A group commit keeps its promises one after the other; waking the loop for each costs a system
    call each. Here the first wakes it and the others ride along.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._kept: deque[asyncio.Future[None]] = deque()
        self._woken = False

    def arrives(self, future: asyncio.Future[None]) -> None:
        """From any thread: let ``future`` be resolved on the loop soon."""
        self._kept.append(future)
        if not self._woken:
            self._woken = True
            # A loop that was closed has nobody waiting: that must not harm the thread that keeps the promise.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._woken = False
        kept = self._kept
        while kept:
            future = kept.popleft()
            if not future.done():
                future.set_result(None)


async def drive(work: Waiting[T], inbox: LoopInbox, loop: asyncio.AbstractEventLoop) -> T:
    """Drive a coroutine to its end on ``loop``; other work goes on wherever it must wait.

    If this is cancelled, ``work`` is closed at once, so that what it holds is given back.
    """
    try:
        while True:
            promise = work.send(None)
            if not promise.kept:
                future = loop.create_future()
                promise.when_kept(lambda _, future=future: inbox.arrives(future))  # type: ignore[misc]
                await future
    except StopIteration as stop:
        return cast(T, stop.value)
    finally:
        work.close()
