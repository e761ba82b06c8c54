"""Settings of queues in memory: those that were used last as objects, and many more in a compact form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf

from queuey.locks import new_lock
from queuey.model import Queue
from queuey.recent import ONE_IN
from queuey.service.compact_queues import CompactQueues

__all__ = ["CACHED_QUEUES", "CachedQueue", "QueueCache"]

CACHED_QUEUES = 10_000
"""Queues whose settings are cached as objects, at most; they take about 8 MB."""
_AGED = 0.75
"""A part of the time for which cached settings may be used. After it, one call looks them up again while others use
them."""


class CachedQueue:
    """A cached queue."""

    __slots__ = ("aged", "asked", "queue", "since", "until")

    def __init__(self, queue: Queue, since: float, trusted: float) -> None:
        self.queue = queue
        self.since = since
        """The elapsed time at which its look-up began."""
        self.until = since + trusted
        """The elapsed time up to which it may be used."""
        self.aged = since + _AGED * trusted
        self.asked = False
        """One call is looking it up again."""

    def serves(self, now: float) -> bool:
        return now < self.aged or (self.asked and now < self.until)


class QueueCache:
    """The queues that were used last. Thread-safe.

    Where this process makes every change of a queue, what it has read of it stays true. Then it also knows in the compact
    form the queues that were used before, and those that it has made.
    """

    def __init__(self, trusted: float, elapsed: Callable[[], float]) -> None:
        """:param trusted: seconds for which settings may be used; infinite where this process makes every change."""
        self._trusted, self._elapsed = trusted, elapsed
        self._known: dict[tuple[str, str], CachedQueue] = {}
        self._before: dict[tuple[str, str], CachedQueue] = {}
        """Those that were used before all of :attr:`_known`. They go together, once those are as many: to drop one for each
        that comes costs a load over very many queues a twentieth of its time."""
        self._compact = CompactQueues() if trusted == inf else None
        self._found = 0
        """Queues that were found in the compact form so far. Once there are many objects, one of :data:`ONE_IN` becomes one:
        over more queues than there are objects, an object is mostly dropped before it is used again, and costs as much as
        to find two queues."""
        self.changes = 0
        """Changes of queues so far."""
        self._lock = new_lock()
        """Between a look at :attr:`changes` and what is kept by it, no change is made."""

    def queue(self, application: str, name: str) -> Queue | None:
        """The queue, if its settings are known and may be used."""
        known = self._known.get((application, name))
        if known is None:
            return self._used_before(application, name)
        return known.queue if self._compact is not None or known.serves(self._elapsed()) else None

    def _used_before(self, application: str, name: str) -> Queue | None:
        with self._lock:
            known = self._before.pop((application, name), None)
            if known is not None:
                self._keep(known)
                return self.queue(application, name)
            if self._compact is None:
                return None
            queue = self._compact.find(application, name)
            if queue is not None:
                self._found += 1
                if not self._before or self._found % ONE_IN == 0:
                    self._keep(CachedQueue(queue, self._elapsed(), self._trusted))
            return queue

    def get(self, application: str, name: str) -> CachedQueue | None:
        """What is known of a queue, and since when; whether or not it may be used."""
        with self._lock:
            known = self._known.get((application, name)) or self._before.get((application, name))
            if known is None and self._compact is not None:
                queue = self._compact.find(application, name)
                known = None if queue is None else CachedQueue(queue, self._elapsed(), self._trusted)
            return known

    def used(self, application: str | None, most: int) -> Sequence[Queue]:
        """The queues of an application, or of all, that were used last, of those that are cached as objects."""
        with self._lock:
            known = self._before | self._known
        return [one.queue for (owner, _), one in known.items() if application in (None, owner)][-most:]

    def learn(self, queue: Queue, since: float, changes: int) -> None:
        """Cache what the store said of a queue, unless some queue was changed meanwhile.

        :param since: the elapsed time at which it was asked.
        :param changes: how many there had been before it was asked.
        """
        with self._lock:
            if changes == self.changes:
                if self._compact is not None:
                    self._compact.add(queue)
                self._keep(CachedQueue(queue, since, self._trusted))

    def made(self, queue: Queue, changes: int) -> None:
        """Know a queue that this process has made, in the compact form: most queues are not used at once.

        :param changes: as for :meth:`learn`.
        """
        with self._lock:
            if self._compact is not None and changes == self.changes:
                self._compact.add(queue)

    def _keep(self, known: CachedQueue) -> None:
        if len(self._known) >= CACHED_QUEUES // 2:
            self._before, self._known = self._known, {}
        self._known[known.queue.application, known.queue.name] = known

    @contextmanager
    def changing(self, queue: Queue) -> Iterator[None]:
        """Know nothing of a queue before and after a change, whatever comes of that.

        A look-up that began before the change must not put the old settings back.
        """
        self.forget(queue)
        try:
            yield
        finally:
            self.forget(queue)

    def forget(self, queue: Queue) -> None:
        """Know nothing of a queue."""
        with self._lock:
            self.changes += 1
            self._known.pop((queue.application, queue.name), None)
            self._before.pop((queue.application, queue.name), None)
            if self._compact is not None:
                self._compact.forget(queue.application, queue.name)
