"""What threads and event loops do alike stands once, as coroutines. A thread carries one out without a loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from qdo.bench.clock import SECOND, LoadClock

T = TypeVar("T")

Sleep = Callable[[int], Coroutine[Any, Any, None]]
"""Returns at this moment of the clock, or at once if it is over."""


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine all of whose waits block their thread.

    >>> async def three() -> int:
    ...     return 3
    >>> at_once(three())
    3

    :raises RuntimeError: it waits for an event loop.
    """
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise RuntimeError("a coroutine of a thread waits for an event loop")


def thread_sleep(clock: LoadClock) -> Sleep:
    """Puts the thread to sleep."""

    async def sleep(moment: int) -> None:
        clock.sleep_until(moment)

    return sleep


def task_sleep(clock: LoadClock) -> Sleep:
    """Lets the other tasks of the event loop go on. It is up to a millisecond late: so exact are the timers of a loop."""

    async def sleep(moment: int) -> None:
        await asyncio.sleep(max(0.0, (moment - clock.now()) / SECOND))

    return sleep
