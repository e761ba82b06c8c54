"""Work that outlives the calls that began it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from queuey.errors import QueueyError

__all__ = ["MOST_TASKS", "Background"]

T = TypeVar("T")
log = logging.getLogger(__name__)

MOST_TASKS = 100
"""Calls whose end nobody waits for, at once."""


class Background:
    """Tasks that go on when their caller is cancelled."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, None], what: str) -> None:
        """Run this beside everything else, unless too much runs already.

        :param what: for the log: what is true if it is not done.
        """
        if len(self._tasks) >= MOST_TASKS:
            work.close()
            log.warning("%s: %d calls are in the background already", what, MOST_TASKS)
            return
        self._task(work).add_done_callback(lambda task: _tell(task, what))

    async def finish(self, work: Coroutine[Any, Any, T], what: str) -> T:
        """Wait for this. It goes on if the caller is cancelled.

        :param what: as for :meth:`start`.
        """
        task = self._task(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(lambda task: _tell(task, what))
            raise

    async def aclose(self, seconds: float) -> None:
        """Wait for the tasks this long, or until this is cancelled, and end those that are left."""
        try:
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=seconds)
        finally:
            left = [*self._tasks]
            for task in left:
                task.cancel()
        if left:
            await asyncio.wait(left)

    def _task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _tell(task: asyncio.Task[Any], what: str) -> None:
    if task.cancelled():
        log.warning("%s: the client was closed", what)
    elif isinstance(error := task.exception(), QueueyError):
        log.warning("%s: %s", what, error)
    elif error is not None:
        log.error("%s", what, exc_info=error)
