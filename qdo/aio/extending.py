"""Keeps leases from running out while tasks work on their messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from math import inf

from qdo.client.extending import HeldLease, HeldLeases

__all__ = ["AsyncExtender"]

Extend = Callable[[Sequence[HeldLease]], Awaitable[Collection[str]]]
"""Extends leases of one group, and returns the receipts of those that had ended."""


class AsyncExtender:
    """Extends leases from one task, which runs while there is a lease.

    Each request is a task of its own: one that takes long delays no other.
    """

    def __init__(self, extend: Extend) -> None:
        self._extend = extend
        self._leases = HeldLeases()
        self._task: asyncio.Task[None] | None = None
        self._sent: set[asyncio.Task[None]] = set()
        """Requests under way."""
        self._earlier = asyncio.Event()
        """A lease is due earlier than the task wakes, or a request has ended."""
        self._wakes_at = inf

    def keep(self, lease: HeldLease) -> None:
        """Extend a lease from now on."""
        self._leases.add(lease)
        if self._task is None or self._task.done():
            self._earlier = asyncio.Event()  # it belongs to the first event loop that waits for it
            self._task = asyncio.get_running_loop().create_task(self._run(), name="queuey-leases")
        elif lease.due < self._wakes_at:
            self._earlier.set()

    def drop(self, lease: HeldLease) -> None:
        """Extend a lease no more."""
        self._leases.drop(lease)

    async def aclose(self) -> None:
        """Drop all leases. They run out in their own time."""
        self._leases.clear()
        task, self._task = self._task, None
        left = [*self._sent, *([] if task is None else [task])]
        for one in left:
            one.cancel()
        if left:
            await asyncio.wait(left)

    async def _run(self) -> None:
        while (due := self._leases.next_due()) is not None:
            self._earlier.clear()
            self._wakes_at = due
            with suppress(TimeoutError):
                async with asyncio.timeout(None if due == inf else due - time.monotonic()):
                    await self._earlier.wait()
            for some in self._leases.due(time.monotonic()):
                self._leases.begin(some)
                sent = asyncio.get_running_loop().create_task(self._extend_some(some))
                self._sent.add(sent)
                sent.add_done_callback(self._sent.discard)

    async def _extend_some(self, leases: Sequence[HeldLease]) -> None:
        began = time.monotonic()
        try:
            stale = await self._extend(leases)
        except Exception as error:  # noqa: BLE001 - failed() logs it
            self._leases.failed(leases, error, time.monotonic())
        else:
            self._leases.extended(leases, stale, began)
        self._earlier.set()
