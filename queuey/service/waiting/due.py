"""What is due by time: messages that become readable, and waits that end.

One thread looks after both.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable, Iterator
from itertools import count
from math import inf

from queuey.clock import Clock
from queuey.errors import ClockUnsafe
from queuey.ids import TICKS_PER_SECOND, MessageId
from queuey.model import Consistency, PartitionId, ReadRequest, Span
from queuey.service.waiting.watch import FAILED_LOOK_SECONDS, Watch
from queuey.storage import MessageStore

log = logging.getLogger(__name__)

STEP_SECONDS = 0.005
"""The thread rests at least this long, so that what falls due in between is done together. Nothing is late by more."""
_IDLE_SECONDS = 1.0
"""The wall clock may be stepped: the thread looks this often for what is due by it."""


class ReadableMessages:
    """From when on the store lets a message be read."""

    def __init__(self, messages: MessageStore, clock: Clock) -> None:
        self._messages = messages
        self._clock = clock
        self.delay_ticks = round(messages.read_delay_seconds * TICKS_PER_SECOND)

    def upto(self) -> int:
        """The last moment whose messages may be read now.

        In an embedded store it is exact.
        """
        if self.delay_ticks:
            return self._clock.now_ticks() - self.delay_ticks
        try:
            return self._messages.watermark(Consistency.STRONG)
        except ClockUnsafe:
            return self._clock.now_ticks()

    async def next_in(self, partition: PartitionId, consistency: Consistency, after_ticks: int) -> float:
        """The moment of the first message that is stored and comes after a moment.

        Infinite if there is none.

        :raises QueueyError: the store could not be asked.
        """
        request = ReadRequest(partition, Span(MessageId.last_of(after_ticks)), 1, with_bodies=False)
        page = await self._messages.read(request, now_ticks=self._clock.now_ticks(), consistency=consistency)
        return page.messages[0].ticks if page.messages else inf


class DueTimes:
    """When partitions are to be looked at, and when waits end.

    The caller holds the lock of the registry.
    """

    def __init__(self) -> None:
        self.partitions: list[tuple[float, PartitionId]] = []
        """A heap, by the ticks of the wall clock."""
        self.waits: list[tuple[float, int, Watch]] = []
        """A heap, by the elapsed time; a number keeps watches from being compared."""
        self._serial = count()

    def look_at(self, partition: PartitionId, ticks: float) -> None:
        """A message of this partition becomes readable then."""
        heapq.heappush(self.partitions, (ticks, partition))

    def end_wait(self, watch: Watch, elapsed: float) -> None:
        """Look at this wait then; an earlier look is kept as well."""
        watch.timed = elapsed
        heapq.heappush(self.waits, (elapsed, next(self._serial), watch))

    def due_partitions(self, now_ticks: int) -> Iterator[PartitionId]:
        """Take out the partitions that are due."""
        while self.partitions and self.partitions[0][0] <= now_ticks:
            yield heapq.heappop(self.partitions)[1]

    def due_waits(self, elapsed: float) -> Iterator[Watch]:
        """Take out the watches whose wait is over.

        A watch that waits longer by now comes again later.
        """
        while self.waits and self.waits[0][0] <= elapsed:
            watch = heapq.heappop(self.waits)[2]
            watch.timed = inf
            if watch.future is None:
                continue
            if watch.until <= elapsed:
                yield watch
            else:
                self.end_wait(watch, watch.until)

    def rest(self, elapsed: float, now_ticks: int) -> float:
        """Seconds until something is due, infinite if nothing will be."""
        rest = self.waits[0][0] - elapsed if self.waits else inf
        if self.partitions:
            rest = min(rest, (self.partitions[0][0] - now_ticks) / TICKS_PER_SECOND, _IDLE_SECONDS)
        return rest


class DueThread:
    """The thread that does what is due.

    It begins with the first waiter, and outlives failures.
    """

    def __init__(self, work: Callable[[], float], *, by_hand: bool) -> None:
        """:param work: does what is due, and gives the seconds for which the thread rests then.
        :param by_hand: there is no thread: a test calls ``work``.
        """
        self._work = work
        self._sooner = threading.Event()
        self._next = inf
        """The elapsed time of its next look."""
        self._thread: threading.Thread | None = None
        self._ended = by_hand

    def start(self) -> None:
        """Let it run; the caller holds the lock of the registry."""
        if self._thread is None and not self._ended:
            self._thread = threading.Thread(target=self._run, name="waiters", daemon=True)
            self._thread.start()

    def not_later_than(self, elapsed: float) -> None:
        """Something is due then."""
        if elapsed < self._next:
            self._next = elapsed
            self._sooner.set()

    def rests_until(self, elapsed: float) -> None:
        """Everything before this is done."""
        self._next = elapsed

    def close(self) -> None:
        """End it. May be repeated."""
        self._ended = True
        self._sooner.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while not self._ended:
            try:
                rest = self._work()
            except Exception:
                log.exception("waiting readers could not be woken in time; the next look follows")
                rest = FAILED_LOOK_SECONDS
            self._sooner.wait(rest if rest < inf else None)
            self._sooner.clear()
