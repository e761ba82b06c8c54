"""The calls of one store that are under way."""

from __future__ import annotations

import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from queuey.errors import StorageUnavailable
from queuey.future import Future, start
from queuey.locks import new_lock

__all__ = ["Underway"]

T = TypeVar("T")


class Underway:
    """The calls of one store that are under way. Thread-safe.

    They are bounded (G17), and finished before the store closes. Each is held here until it ends. The garbage collector
    ends a call that nothing holds, in whichever thread it runs, and the end of a call takes locks which that thread may
    hold already.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._calls: dict[Coroutine[Future[Any], None, Any], Coroutine[Future[Any], None, Any]] = {}
        self._closed = False
        self._changed = threading.Condition(new_lock())

    def start(self, work: Coroutine[Future[Any], None, T]) -> Future[T]:
        """Start a call.

        :returns: its outcome; :class:`StorageUnavailable` at once if too many calls are under way, or the store is
            closed.
        """
        with self._changed:
            if self._closed or len(self._calls) >= self._most:
                work.close()
                why = "the store is closed" if self._closed else f"{self._most} calls of Cassandra are under way"
                return Future.failed(StorageUnavailable(f"{why}: nothing was stored, try again"))
            call = self._calls[work] = self._ending(work)
        return start(call)

    async def _ending(self, work: Coroutine[Future[Any], None, T]) -> T:
        try:
            return await work
        finally:
            with self._changed:
                del self._calls[work]
                if self._closed and not self._calls:
                    self._changed.notify_all()

    def finish(self, seconds: float) -> None:
        """Refuse new calls, and wait a while for those under way.

        May be called again.
        """
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._calls, seconds)
