"""Calls that are cancelled at a chosen await."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any, NamedTuple

MOST_AWAITS = 100


class Cancelled(NamedTuple):
    """Where a call is cancelled."""

    at: int
    """The number of the await, from 1."""
    is_late: bool
    """What it waits for has come already, and the task was cancelled before it could go on."""


@coroutine
def _cancelled(work: Coroutine[Any, Any, Any], where: Cancelled) -> Generator[Any, Any, Any]:
    """The call, and whether it was cancelled."""
    count = 0
    outcome: BaseException | None = None
    while True:
        try:
            waits_for = work.send(None) if outcome is None else work.throw(outcome)
        except StopIteration as end:
            return end.value
        count += 1
        task = asyncio.current_task()
        assert task is not None
        if count == where.at and not where.is_late:
            task.cancel()
        try:
            yield waits_for
            outcome = asyncio.CancelledError() if count == where.at else None
        except BaseException as error:  # noqa: BLE001 -- the call gets it
            outcome = error


async def each_await(call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Make the call again and again, cancelled at each of its awaits in both ways, and yield after each.

    Both ways end with a call that is not cancelled, for it has no more awaits.
    """
    for is_late in (False, True):
        for at in range(1, MOST_AWAITS):
            where = Cancelled(at, is_late)

            async def work(where: Cancelled = where) -> Any:
                return await _cancelled(call(), where)

            task = asyncio.create_task(work())
            await asyncio.wait([task])
            yield where
            if not task.cancelled():
                task.result()
                break
        else:
            raise AssertionError(f"a call with {MOST_AWAITS} awaits")
