"""How many readers may wait at once (G17)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NoReturn

from queuey.errors import TooManyWaiters
from queuey.monitor.metrics import WAITERS, WAITERS_REFUSED, Monitor
from queuey.security.principals import STRANGERS, is_user
from queuey.settings import Settings


class WaiterLimits:
    """Counts the readers that wait: on the server, in its threads, of each reader.

    The caller holds the lock of :class:`~queuey.service.waiting.registry.Waiters`.
    """

    def __init__(self, settings: Settings, monitor: Monitor) -> None:
        limits = settings.limits
        self._monitor = monitor
        self._most = limits.max_waiters
        self._most_in_threads = max(settings.server.threads - 1, 1)
        """One thread stays for calls that do not wait."""
        self._most_by_kind: Mapping[str, int] = {
            "user": limits.max_waiters_per_user,
            "application": limits.max_waiters_per_application,
            STRANGERS: limits.max_waiters * limits.max_waiters_strangers_percent // 100,
        }
        self._waiters = 0
        self._in_threads = 0
        self.by_reader: Counter[str] = Counter()
        monitor.ask(WAITERS, lambda: self._waiters)

    def admit(self, readers: Sequence[str], *, in_thread: bool) -> None:
        """Count one more waiter.

        :param readers: the principals that read: it counts against the limit of each.
        :param in_thread: a thread waits for it.
        :raises TooManyWaiters: one limit is reached; ``whose`` says which.
        """
        if self._waiters >= self._most:
            self._refuse("server", f"{self._most} readers wait on this server, and no more may")
        if in_thread and self._in_threads >= self._most_in_threads:
            self._refuse(
                "threads", f"{self._most_in_threads} of this server's threads wait for readers, and no more may"
            )
        for reader in readers:
            kind = _kind(reader)
            most = self._most_by_kind[kind]
            if self.by_reader[reader] >= most:
                have = "readers without a credential have" if kind == STRANGERS else f"{reader} has"
                self._refuse(kind, f"{have} {most} waiting readers on this server, and no more may be")
        self._waiters += 1
        self._in_threads += in_thread
        self.by_reader.update(readers)

    def _refuse(self, whose: str, text: str) -> NoReturn:
        self._monitor.count(WAITERS_REFUSED, 1, whose)
        raise TooManyWaiters(f"{text}: end one, or try again after Retry-After seconds", whose=whose)

    def leave(self, readers: Sequence[str], *, in_thread: bool) -> None:
        """Count one waiter less: one that was admitted with the same arguments."""
        self._waiters -= 1
        self._in_threads -= in_thread
        for reader in readers:
            self.by_reader[reader] -= 1
            if not self.by_reader[reader]:
                del self.by_reader[reader]


def _kind(reader: str) -> str:
    """Whose limit a reader counts against; an operator's is that of an application."""
    if reader == STRANGERS:
        return STRANGERS
    return "user" if is_user(reader) else "application"
