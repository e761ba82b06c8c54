"""The time limit of one attempt, and the event loop of coroutines."""

from __future__ import annotations

import asyncio
import ctypes
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

__all__ = ["TaskTimeout", "awaited", "within"]


_STEPS = 100
"""Turns of a loop within which the interpreter raises what another thread has raised in this one: it looks at each."""


class TaskTimeout(Exception):
    """An attempt took longer than the task's timeout."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"it took longer than {seconds:g} s")


class _TimedOut(BaseException):
    """Ends what runs. It is no Exception, so that ``except Exception`` in a task does not catch it."""


def within(seconds: float | None, call: Callable[[], Any]) -> Any:
    """What a call returns, within this time.

    In the main thread, as in a process for jobs, a signal interrupts the call anywhere. In another thread the call is
    interrupted before its next Python instruction: one that waits in C, such as ``time.sleep``, returns first.

    :param seconds: None for no limit.
    :raises TaskTimeout: it takes longer. The traceback says where it was.
    """
    if seconds is None:
        return call()
    limit = _by_signal if threading.current_thread() is threading.main_thread() else _by_thread
    try:
        with limit(seconds):
            return call()
    except _TimedOut as error:
        raise TaskTimeout(seconds).with_traceback(error.__traceback__) from None


def awaited(made: Callable[[], Awaitable[Any]], seconds: float | None) -> Any:
    """The result of a coroutine on an event loop that all tasks of this process share. The calling thread waits.

    :raises TaskTimeout: it takes longer than ``seconds``; it is cancelled where it waits.
    """

    async def limited() -> Any:
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await made()
        except TimeoutError as error:
            if limit.expired() and seconds is not None:
                where = (error.__context__ or error).__traceback__
                raise TaskTimeout(seconds).with_traceback(where) from None
            raise

    future = asyncio.run_coroutine_threadsafe(limited(), _loop())
    if (error := future.exception()) is not None:
        raise error  # without the lines of the library that waits
    return future.result()


_loop_lock = threading.Lock()


def _loop() -> asyncio.AbstractEventLoop:
    with _loop_lock:
        return _new_loop()


@cache
def _new_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=_run, args=(loop,), name="async-tasks", daemon=True).start()
    return loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    while True:  # a task may stop the loop, which others use
        with suppress(SystemExit, KeyboardInterrupt):  # they go to the task as well
            loop.run_forever()


@contextmanager
def _by_signal(seconds: float) -> Iterator[None]:
    def interrupt(*_: Any) -> None:
        raise _TimedOut

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _by_thread(seconds: float) -> Iterator[None]:
    target, lock, is_over, is_raised = threading.get_ident(), threading.Lock(), False, False

    def interrupt() -> None:
        nonlocal is_raised
        with lock:
            if not is_over:
                is_raised = True
                _raise_in(target, _TimedOut)

    timer = threading.Timer(seconds, interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with lock:
            is_over = True
        if is_raised:
            # What was raised late comes here. If it were taken back instead, CPython 3.11 would look for it for ever: each
            # call would be slower, and under a debugger none would begin.
            for _ in range(_STEPS):
                pass


def _raise_in(thread: int, error: type[BaseException]) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))
