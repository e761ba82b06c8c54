"""Threads that payers share.

A payer with much work waits behind its own work, and delays others by at most one piece of it (G17).
"""

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

    With several threads, no payer has all of them at once, so others find a free one. A single thread is free for
    others after each piece of work.
    """

    def __init__(self, threads: int) -> None:
        """:param threads: the number of threads that call :meth:`work`."""
        self._most_each = max(threads - 1, 1)
        self._lines: dict[str, deque[Work]] = {}
        """Lines by payer, none of them empty; the payer whose turn it is comes first."""
        self._running: Counter[str] = Counter()
        self._lock = new_lock()

    def add(self, payer: str, work: Work, *, first: bool = False) -> None:
        """Queue ``work`` for a thread; errors that it raises are logged.

        Call :meth:`work` in a thread once for each.

        :param first: put it before all other work of the payer.
        """
        with self._lock:
            line = self._lines.setdefault(payer, deque())
            (line.appendleft if first else line.append)(work)

    def work(self) -> None:
        """Do the work whose turn it is, until none is left for this thread."""
        payer = ""
        while found := self._next(payer):
            payer, work = found
            try:
                work()
            except Exception:
                log.exception("work of %s failed", payer)  # else the payer would lose this thread for ever

    def _next(self, done: str) -> tuple[str, Work] | None:
        """The next piece of work, and its payer.

        :param done: the payer of the piece that this thread has finished; empty if there is none.
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
                self._lines[payer] = line  # to the end of the order
            return payer, work


class SharedThreads:
    """A few threads, in which payers take turns."""

    def __init__(self, count: int, name: str, begin: Callable[[], object] | None = None) -> None:
        """:param begin: called first in each thread."""
        self._turns = PayerTurns(count)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix=name, initializer=begin)
        self._closed = False

    def add(self, payer: str, work: Work, *, first: bool = False) -> None:
        """See :meth:`PayerTurns.add`; after :meth:`close`, ``work`` is dropped."""
        self._turns.add(payer, work, first=first)
        try:
            self._threads.submit(self._turns.work)
        except RuntimeError:
            if not self._closed:
                raise

    def close(self) -> None:
        """Return once all earlier work is done."""
        self._closed = True
        self._threads.shutdown(wait=True)


class Line:
    """The line of one coroutine's payer.

    It is an :class:`~queuey.future.Inbox` that threads serve.

    A coroutine starts behind all other work of its payer, and resumes before it: what is nearly done ends first.
    """

    def __init__(self, threads: SharedThreads, payer: str) -> None:
        self._threads, self._payer, self._begun = threads, payer, False

    def arrives(self, go_on: Work) -> None:
        self._threads.add(self._payer, go_on, first=self._begun)
        self._begun = True
