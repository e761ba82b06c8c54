"""Threads shared among payers: a payer with much work waits behind its own work, and delays others by one piece of it at most (G17)."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from queuey.locks import new_lock

log = logging.getLogger(__name__)

Work = Callable[[], object]


class PayerTurns:
    """Work that waits for threads: one line for each payer, and the lines take turns.

    No payer has all threads at once, so the others find a free one; a single thread they get when its work is done.
    """

    def __init__(self, threads: int) -> None:
        """:param threads: how many call :meth:`work`."""
        self._most_each = max(threads - 1, 1)
        self._lines: dict[str, deque[Work]] = {}
        """Never empty ones; the payer whose turn it is comes first."""
        self._running: Counter[str] = Counter()
        self._lock = new_lock()

    def add(self, payer: str, work: Work, *, first: bool = False) -> None:
        """Let a thread do ``work``; what it raises is logged. Call :meth:`work` in a thread once for each.

        :param first: before all other work of the payer.
        """
        with self._lock:
            line = self._lines.setdefault(payer, deque())
            (line.appendleft if first else line.append)(work)

    def work(self) -> None:
        """Do the work whose turn it is, until there is none for this thread."""
        payer = ""
        while found := self._next(payer):
            payer, work = found
            try:
                work()
            except Exception:
                log.exception("work of %s failed", payer)  # its payer would have lost this thread for ever

    def _next(self, done: str) -> tuple[str, Work] | None:
        """The next piece of work and its payer.

        :param done: the payer of the piece that this thread has finished, empty if there is none.
        """
        with self._lock:
            if done:
                self._running[done] -= 1
                if not self._running[done]:
                    del self._running[done]
            payer = next((name for name in self._lines if self._running[name] < self._most_each), None)
            if payer is None:
                return None
            self._running[payer] += 1
            line = self._lines.pop(payer)
            work = line.popleft()
            if line:
                self._lines[payer] = line  # behind all others
            return payer, work


class SharedThreads:
    """A few threads, and the turns that payers take in them."""

    def __init__(self, count: int, name: str, begin: Callable[[], object] | None = None) -> None:
        """:param begin: called first in each thread."""
        self._turns = PayerTurns(count)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix=name, initializer=begin)
        self._closed = False

    def add(self, payer: str, work: Work, *, first: bool = False) -> None:
        """As :meth:`PayerTurns.add`; once they are closed, ``work`` is not done."""
        self._turns.add(payer, work, first=first)
        try:
            self._threads.submit(self._turns.work)
        except RuntimeError:
            if not self._closed:
                raise

    def close(self) -> None:
        """Return once all that came before is done."""
        self._closed = True
        self._threads.shutdown(wait=True)


class Line:
    """The line of one coroutine's payer: an :class:`~queuey.future.Inbox` whose work threads do.

    A coroutine begins behind all other work of its payer, and goes on before it: what is nearly done ends first.
    """

    def __init__(self, threads: SharedThreads, payer: str) -> None:
        self._threads, self._payer, self._begun = threads, payer, False

    def arrives(self, go_on: Work) -> None:
        self._threads.add(self._payer, go_on, first=self._begun)
        self._begun = True
