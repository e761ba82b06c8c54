"""Keeps leases from running out while their messages are worked on."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from math import inf

from queuey.errors import QueueyError

__all__ = ["IDLE_SECONDS", "MIN_EXTENSION_SECONDS", "MOST_RECEIPTS", "Extender", "HeldLease", "HeldLeases"]

log = logging.getLogger(__name__)

MIN_EXTENSION_SECONDS = 1.0
"""A shorter lease is extended to this, or its extensions would be most of what a program does."""
MOST_RECEIPTS = 1000
"""Of one request, which the server bounds to that."""
IDLE_SECONDS = 10.0
"""A thread without leases ends after this time."""


class HeldLease:
    """What the client knows of one lease; it changes while the receiver works."""

    __slots__ = ("due", "group", "is_lost", "is_over", "queue", "receipt", "seconds")

    def __init__(self, queue: str, group: str, receipt: str, seconds: float, due: float) -> None:
        """:param seconds: for which each extension keeps the message hidden.
        :param due: when the next extension is due, on the monotonic clock.
        """
        self.queue, self.group, self.receipt = queue, group, receipt
        self.seconds = max(seconds, MIN_EXTENSION_SECONDS)
        self.due = due
        self.is_over = False
        """It was settled, or the server said that it had ended."""
        self.is_lost = False
        """An extension came too late."""

    def extended(self, seconds: float, now: float) -> None:
        """The lease was extended by hand.

        >>> lease = HeldLease("q", "g", "receipt", 30, due=10)
        >>> lease.extended(3600, now=5)
        >>> lease.due
        3585.0
        >>> lease.extended(3, now=6)
        >>> lease.due
        7.0
        """
        # A background extension must not shorten what was asked for: it comes when two thirds of its own length are left.
        self.due = now + max(seconds - self.seconds * 2 / 3, seconds / 3)


class HeldLeases:
    """The leases to be extended, each at a third of its length. It keeps no time of its own."""

    def __init__(self) -> None:
        self._leases: set[HeldLease] = set()

    def add(self, lease: HeldLease) -> None:
        self._leases.add(lease)

    def drop(self, lease: HeldLease) -> None:
        self._leases.discard(lease)

    def clear(self) -> None:
        self._leases.clear()

    def next_due(self) -> float | None:
        """When the next extension is due, on the monotonic clock; None if there is no lease."""
        self._leases = {lease for lease in self._leases if not lease.is_over}
        return min((lease.due for lease in self._leases), default=None)

    def due(self, now: float) -> list[list[HeldLease]]:
        """The leases that are due. Those of one group are extended by one request, or by as few as take them."""
        groups: dict[tuple[str, str], list[HeldLease]] = {}
        for lease in self._leases:
            if lease.due <= now and not lease.is_over:
                groups.setdefault((lease.queue, lease.group), []).append(lease)
        return [
            some[first : first + MOST_RECEIPTS]
            for some in groups.values()
            for first in range(0, len(some), MOST_RECEIPTS)
        ]

    def begin(self, leases: Sequence[HeldLease]) -> None:
        """A request to extend these is under way: they are not due before it has ended."""
        for lease in leases:
            lease.due = inf

    def extended(self, leases: Sequence[HeldLease], stale: Collection[str], began: float) -> None:
        """Leases were extended.

        :param stale: receipts of those that had ended.
        :param began: when the request was sent.
        """
        for lease in leases:
            lease.due = began + lease.seconds / 3
            if lease.receipt in stale:
                lease.is_lost = not lease.is_over
                self.drop(lease)

    def failed(self, leases: Sequence[HeldLease], error: Exception, now: float) -> None:
        """Leases could not be extended. They are tried again soon.

        They may still be alive when the server is back. Their end is found out by whatever settles them.

        :param error: it is in the log, unless the server or its absence says it.
        """
        if not isinstance(error, QueueyError):
            said = "leases of queue %s are not extended: the answer is none that Queuey gives"
            log.error(said, leases[0].queue, exc_info=error)
        for lease in leases:
            lease.due = now + lease.seconds / 6


Send = Callable[[Sequence[HeldLease]], Collection[str]]
"""Extends leases of one group, and returns the receipts of those that had ended."""


class Extender:
    """Extends leases from one thread, which starts with the first of them."""

    def __init__(self, send: Send, close: Callable[[], None]) -> None:
        """:param close: ends the connections of ``send``."""
        self._send, self._close = send, close
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._leases = HeldLeases()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._wakes_at = -inf

    def _locked(self) -> threading.Condition:
        """A process that was forked begins anew: the leases are those of the other one, and a thread there may have had the lock."""
        if self._process != os.getpid():
            self._begin()
        return self._changed

    def keep(self, lease: HeldLease) -> None:
        """Extend a lease from now on."""
        with self._locked():
            self._leases.add(lease)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="queuey-leases", daemon=True)
                self._thread.start()
            elif lease.due < self._wakes_at:
                self._changed.notify()

    def drop(self, lease: HeldLease) -> None:
        """Extend a lease no more."""
        with self._locked():
            self._leases.drop(lease)

    def close(self) -> None:
        """Drop all leases. They run out in their own time."""
        with self._locked():
            self._leases.clear()
            self._wakes_at = -inf
            thread, self._thread = self._thread, None
            self._changed.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join(IDLE_SECONDS)
        self._close()

    def _run(self) -> None:
        while due := self._wait():
            for some in due:
                self._extend(some)

    def _wait(self) -> list[list[HeldLease]]:
        """Wait for leases that are due; empty if the thread is to end."""
        with self._changed:
            idle_until = time.monotonic() + IDLE_SECONDS
            while self._thread is threading.current_thread():
                now, next_due = time.monotonic(), self._leases.next_due()
                if next_due is not None and next_due <= now:
                    return self._leases.due(now)
                if next_due is None and now >= idle_until:
                    self._thread = None
                    break
                self._wakes_at = idle_until if next_due is None else next_due
                self._changed.wait(self._wakes_at - now)
            return []

    def _extend(self, leases: Sequence[HeldLease]) -> None:
        began = time.monotonic()
        try:
            stale = self._send(leases)
        except Exception as error:  # noqa: BLE001 - failed() logs it
            with self._changed:
                self._leases.failed(leases, error, time.monotonic())
            return
        with self._changed:
            self._leases.extended(leases, stale, began)
