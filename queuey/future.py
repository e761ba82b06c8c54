"""Futures: answers of a group commit, a Cassandra driver or a wake-up.

The functions of ``queuey/api`` and ``queuey/service`` are coroutines that await nothing but futures. They know no event
loop: :func:`run` drives one in a thread that waits, :class:`LoopRunner` on an event loop. A future that is done already
costs neither of them a switch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, cast

from queuey.locks import new_lock

T = TypeVar("T")

log = logging.getLogger(__name__)

_lock = new_lock()
"""Guards the moment between asking whether a future is done and leaving a callback. All futures share it: a holder keeps
it for nanoseconds."""


class Future(Generic[T]):
    """A value or an error that one thread will set, once, and others await.

    >>> Future.of(3).result()
    3
    """

    __slots__ = ("_callback", "_done", "_error", "_value")

    def __init__(self) -> None:
        self._done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callback: Callable[[Future[T]], None] | None = None

    @classmethod
    def of(cls, value: T) -> Future[T]:
        """A future that has its value already."""
        future = cls()
        future._value = value
        future._done = True
        return future

    @classmethod
    def failed(cls, error: BaseException) -> Future[T]:
        """A future that has its error already."""
        future = cls()
        future._error = error
        future._done = True
        return future

    @property
    def done(self) -> bool:
        return self._done

    def set_result(self, value: T) -> None:
        """Set the value and call the callback.

        :raises AssertionError: the future is done already, which is a mistake of the caller.
        """
        self._settle(value, None)

    def set_error(self, error: BaseException) -> None:
        """Set the error and call the callback; as :meth:`set_result`."""
        self._settle(None, error)

    def _settle(self, value: T | None, error: BaseException | None) -> None:
        with _lock:
            if self._done:
                raise AssertionError("a future is done once")
            self._value, self._error, self._done = value, error, True
            callback, self._callback = self._callback, None
        if callback is not None:
            callback(self)

    def result(self) -> T:
        """The value; the future must be done.

        :raises BaseException: the error that was set.
        """
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """Call back once; a future has one callback.

        It is called in the thread that sets the outcome, or at once if the outcome is set.
        """
        with _lock:
            if not self._done:
                self._callback = callback
                return
        callback(self)

    def wait(self, timeout_seconds: float | None = None) -> T:
        """Block this thread until the future is done.

        :raises TimeoutError: it is not done in time; it may still be done later.
        """
        if not self._done and not _is_done_in_time(self, timeout_seconds):
            raise TimeoutError
        return self.result()

    def __await__(self) -> Generator[Future[T], None, T]:
        if not self._done:
            yield self
        return self.result()


def _is_done_in_time(future: Future[Any], seconds: float | None) -> bool:
    """Block this thread until a future is done. A lock is enough for that; :class:`threading.Event` makes three."""
    done = threading.Lock()
    done.acquire()
    future.add_done_callback(lambda _: done.release())
    return done.acquire(timeout=-1 if seconds is None else seconds)


Waiting = Coroutine["Future[Any]", None, T]
"""A coroutine that awaits only futures."""


def run(work: Waiting[T]) -> T:
    """Drive a coroutine to its end; this thread waits wherever it must."""
    try:
        while True:
            future = work.send(None)
            if not future.done:
                _is_done_in_time(future, None)
    except StopIteration as stop:
        return cast(T, stop.value)


def start(work: Waiting[T]) -> Future[T]:
    """Start a coroutine; it goes on in whichever thread finishes what it awaits.

    So a store can take several steps for one call while no thread waits for any of them.
    """
    future: Future[T] = Future()
    _Started(work, future)()
    return future


class _Started(Generic[T]):
    """A coroutine that goes on when what it awaits is done.

    Nothing it holds refers back to it, or a finished page of a megabyte would wait for the garbage collector.
    """

    __slots__ = ("_future", "_work")

    def __init__(self, work: Waiting[T], future: Future[T]) -> None:
        self._work = work
        self._future = future

    def __call__(self, _: Future[Any] | None = None) -> None:
        try:
            while True:
                awaited = self._work.send(None)
                if not awaited.done:
                    awaited.add_done_callback(self)
                    return
        except StopIteration as stop:
            self._future.set_result(cast(T, stop.value))
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the caller that awaits the future
            self._future.set_error(error)


def at_turns_end(work: Callable[[], object]) -> None:
    """Do ``work`` at the end of this turn of the event loop.

    In a thread without a loop, do it at once.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        work()
    else:
        loop.call_soon(work)


_of_thread = threading.local()


def give_way_to(inbox: LoopInbox) -> None:
    """From now on :func:`others_turn` in this thread gives that loop a turn."""
    _of_thread.loop = inbox


@contextlib.contextmanager
def settled_together() -> Iterator[None]:
    """Of the futures that this thread settles meanwhile, wake each event loop once, at the end.

    To wake a loop gives it the interpreter. It would take it after the first future, and do little for each of the others.
    """
    gathered = _of_thread.gathered = set[LoopInbox]()
    try:
        yield
    finally:
        _of_thread.gathered = None
        for inbox in gathered:
            inbox.wake()


async def others_turn() -> None:
    """Go on in a later turn of the event loop: long work lets others pass.

    A thread that gives way to a loop waits here until that loop has done what waits for it. In any other thread this
    returns at once.
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
"""How often a thread that waits for a turn of the loop checks whether the loop has ended."""


class Inbox(Protocol):
    """Where a coroutine goes on when what it awaited is done."""

    def arrives(self, go_on: Callable[[], object]) -> None:
        """From any thread: let ``go_on`` be called soon."""


class LoopInbox:
    """Carries what other threads have done to one event loop.

    One wake-up is for all that has gathered.

    A group commit finishes its futures one after the other; waking the loop for each would cost a system call each. Here
    the first wakes it and the others ride along.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Call it in the loop's thread."""
        self._loop = loop
        self._thread = threading.get_ident()
        self._arrived: deque[Callable[[], object]] = deque()
        self._woken = False
        self.closed = False
        """The loop has no more turns, so nobody waits for one. The code that ends the loop sets this."""

    def arrives(self, go_on: Callable[[], object]) -> None:
        """From any thread: let ``go_on`` be called on the loop soon."""
        self._arrived.append(go_on)
        gathered: set[LoopInbox] | None = getattr(_of_thread, "gathered", None)
        if gathered is None:
            self.wake()
        else:
            gathered.add(self)

    def wake(self) -> None:
        """From any thread: let the loop go on soon with what has arrived."""
        if not self._woken:
            self._woken = True
            is_awake = threading.get_ident() == self._thread  # then it needs no system call
            # A closed loop has nobody waiting. That must not harm the thread that finished the future.
            with contextlib.suppress(RuntimeError):
                (self._loop.call_soon if is_awake else self._loop.call_soon_threadsafe)(self._drain)

    def _drain(self) -> None:
        self._woken = False  # what arrives from now on has the next turn: a chain of commits must not keep the loop
        arrived = self._arrived
        for _ in range(len(arrived)):
            try:
                arrived.popleft()()
            except Exception:
                # The other calls have done nothing wrong: they go on.
                log.exception("a call could not go on after a wait")


class LoopRunner(Generic[T]):
    """Drives a coroutine on a loop or in threads.

    They do other work wherever it waits. It needs no task and no asyncio future.
    """

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
        """Begin, or go on now that what was awaited is done."""
        send = self._work.send
        try:
            future = send(None)
            while future.done:
                future = send(None)
        except StopIteration as stop:
            self._done(stop.value)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the caller
            self._failed(error)
        else:
            future.add_done_callback(self._awaited_done)

    def _awaited_done(self, future: Future[Any]) -> None:
        self._inbox.arrives(self.go_on)

    def give_up(self) -> None:
        """End the coroutine while it waits; it gives back at once what it holds.

        Call it in the thread where the coroutine would go on.
        """
        self._done = self._failed = _nobody
        self._work.close()


def _nobody(outcome: object) -> None:
    """The caller has gone."""
