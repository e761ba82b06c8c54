"""The readers that wait for messages, and what wakes them (docs/decisions/010).

A reader opens a :class:`Watch` on partitions, reads, and waits when it found nothing. What arrives after the watch was
opened wakes it, also between its read and its wait; so nothing is missed. A watch may be woken early or for nothing: it
looks again.

One lock, one table of partitions that somebody watches, and one thread for everything that is due by time: a waiter costs
no thread, no task and no timer of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from uuid import UUID

from queuey.clock import Clock
from queuey.errors import QueueyError
from queuey.future import Future
from queuey.ids import TICKS_PER_SECOND
from queuey.locks import new_lock
from queuey.model import Location, PartitionId, Queue
from queuey.monitor.metrics import Monitor
from queuey.service.turns import LOOK_ROWS, Turns
from queuey.service.waiting.append_rates import AppendRates
from queuey.service.waiting.changed_queues import ChangedQueues
from queuey.service.waiting.due import STEP_SECONDS, DueThread, DueTimes, ReadableMessages
from queuey.service.waiting.limits import WaiterLimits
from queuey.service.waiting.peers import PUBLISH_SECONDS, Notices
from queuey.service.waiting.watch import Watch, WatchedPartition, WatchTable
from queuey.settings import Settings
from queuey.storage import MessageStore

LOOK_AGAIN_SECONDS = 15.0
"""A reader that heard of nothing for this long looks by itself, where another server may have died before it published."""


class Waiters:
    """The waiting readers of one server. Thread-safe."""

    def __init__(
        self, messages: MessageStore, clock: Clock, monitor: Monitor, settings: Settings, *, by_hand: bool = False
    ) -> None:
        """:param by_hand: no thread looks for what is due: the test that moves the clock calls :meth:`tick`."""
        self.clock = clock
        self.ended = False
        """The server stops: nobody waits any longer."""
        self._readable = ReadableMessages(messages, clock)
        self._limits = WaiterLimits(settings, monitor)
        self._table = WatchTable()
        self._due = DueTimes()
        self._lock = new_lock()
        self._thread = DueThread(self.tick, by_hand=by_hand)
        self._notices = Notices(messages.peers, clock) if messages.peers is not None else None
        self.changed_queues = ChangedQueues(clock, self._readable.upto, alone=self._notices is None)
        """Which queues got something, for callers with too many queues to watch each."""
        self.append_rates = AppendRates(clock)
        """How much queues get, for people that look at an application."""

    @property
    def looks_again(self) -> bool:
        """Whether a message can become readable that nobody here heard of.

        It can where there are other servers.
        """
        return self._notices is not None

    # The readers that wait

    def watch(self, places: Iterable[tuple[Queue, int]], readers: Sequence[str] | None, *, in_thread: bool) -> Watch:
        """Begin to hear of what arrives in these partitions of queues.

        :param readers: the principals that read: the watch counts against the limit of each. None if it is for readers
            that are counted already.
        :param in_thread: a thread will wait for it.
        :raises TooManyWaiters: a limit is reached; ``whose`` says which.
        """
        readable = self._readable.upto()
        with self._lock:
            if readers is not None:
                self._limits.admit(readers, in_thread=in_thread)
            watch = Watch(self, readers, in_thread=in_thread)
            for queue, number in places:
                self._table.enter(watch, queue, number, readable)
            self._thread.start()
            if self._notices is not None:
                self._thread.not_later_than(self.clock.elapsed())
        return watch

    def add(self, watch: Watch, queue: Queue, number: int) -> None:
        """Let a watch hear of one more partition, from now on."""
        readable = self._readable.upto()
        with self._lock:
            if not watch.closed:
                self._table.enter(watch, queue, number, readable)

    def remove(self, watch: Watch, queue: UUID) -> None:
        """Let a watch hear of a queue no more."""
        with self._lock:
            self._table.leave(watch, [one for one in watch.partitions if one.queue == queue])

    def leave(self, watch: Watch) -> None:
        """A reader waits no more; see :meth:`Watch.close`."""
        with self._lock:
            if watch.closed:
                return
            watch.closed = True
            watch.future = None
            self._table.leave(watch, watch.partitions)
            if watch.readers is not None:
                self._limits.leave(watch.readers, in_thread=watch.in_thread)

    # What wakes them

    def arrived(self, to: Queue, placed: Sequence[Location]) -> None:
        """Messages were acknowledged by this server."""
        queue = to.uuid
        self.changed_queues.note(to, placed)
        self.append_rates.note(to, placed)
        if self._notices is not None and self._notices.note(queue, placed):
            with self._lock:
                self._thread.start()
                self._thread.not_later_than(self.clock.elapsed() + PUBLISH_SECONDS)
        watched = self._table.partitions
        if not watched:
            return
        numbers = {number for number, _ in placed if (queue, number) in watched}
        if not numbers:
            return
        readable = self._readable.upto()
        with self._lock:
            woken = [
                future
                for number in numbers
                for future in self._note(
                    PartitionId(queue, number), [ticks for at, (ticks, _) in placed if at == number], readable
                )
            ]
        _end(woken)

    def heard(self, partitions: Sequence[PartitionId] | None, ticks: int) -> None:
        """Another server published messages up to ``ticks``.

        ``partitions`` says where; None stands for any.
        """
        readable = self._readable.upto()
        with self._lock:
            found = list(self._table.partitions) if partitions is None else partitions
            woken = [future for partition in found for future in self._note(partition, [ticks], readable)]
        _end(woken)

    def _note(self, partition: PartitionId, ticks: Sequence[int], readable: int) -> Iterator[Future[None]]:
        """With the lock held: messages came to a partition. The waits that end now."""
        watched = self._table.partitions.get(partition)
        if watched is None:
            return
        later = [tick for tick in ticks if tick > readable]
        if later:
            self._expect(partition, watched, min(later))
        if len(later) < len(ticks):
            yield from watched.wake(partition)

    def _expect(self, partition: PartitionId, watched: WatchedPartition, ticks: float) -> None:
        """With the lock held: a message of these ticks is stored, and not readable yet."""
        if ticks < watched.next_ticks:
            watched.next_ticks = ticks
            due = ticks + self._readable.delay_ticks
            self._due.look_at(partition, due)
            away = (due - self.clock.now_ticks()) / TICKS_PER_SECOND
            self._thread.not_later_than(self.clock.elapsed() + max(away, 0.0))

    def changed(self, queue: UUID) -> None:
        """A queue was deleted, or its settings have changed.

        Its readers check whether they may go on.
        """
        with self._lock:
            woken = _invalidate(self._table.watches(queue))
        _end(woken)

    def wake(self, watch: Watch) -> None:
        """Let a wait end: there is something to look at that the watch does not hear of."""
        with self._lock:
            woken = list(watch.end_wait())
        _end(woken)

    def ring(self, watch: Watch) -> None:
        """Let a wait end, this one or the next: there is something to look at that the watch does not hear of."""
        with self._lock:
            woken = _invalidate([watch])
        _end(woken)

    def stop(self) -> None:
        """Let all waits end, now and later."""
        with self._lock:
            self.ended = True
            watches = self._table.watches()
            watches.update([watch for _, _, watch in self._due.waits])
            woken = _invalidate(watches)
        _end(woken)

    def close(self) -> None:
        """End the thread. May be repeated."""
        self.stop()
        self._thread.close()

    # What a watch asks

    def take_events(self, watch: Watch) -> tuple[set[PartitionId], bool]:
        """See :meth:`Watch.take_events`."""
        with self._lock:
            readable, invalidated = watch.readable, watch.invalidated
            watch.invalidated = False
            if readable:
                watch.readable = set()
        return readable, invalidated

    def wait(self, watch: Watch, until: float, *, whatever_comes: bool = False) -> Future[None]:
        """A future: done when there is something to look at, or at ``until``.

        ``until`` is an elapsed time.

        :param whatever_comes: what has come already does not end it.
        """
        with self._lock:
            come = not whatever_comes and (watch.readable or watch.invalidated)
            if come or self.ended or watch.closed or self.clock.elapsed() >= until:
                return Future.of(None)
            future: Future[None] = Future()
            watch.future = future
            watch.until = until
            if until < watch.timed:
                self._due.end_wait(watch, until)
                self._thread.not_later_than(until)
        return future

    async def look_ahead(self, watch: Watch) -> bool:
        """Ask the store, once a partition, for what is there and was not readable when it was looked at last.

        What has become readable since wakes its watches. What arrives later is heard of.

        :returns: False if the store could not be asked: look again soon.
        """
        turns = Turns()
        for partition in list(watch.unscanned):
            await turns.give()
            watched = watch.partitions.get(partition)
            if watched is not None and not watched.known:
                turns.count(LOOK_ROWS)
                try:
                    await self._look(partition, watched)
                except QueueyError:
                    return False
            with self._lock:
                # Not if it fell due meanwhile: then there may be more behind it.
                if watched is None or watched.known:
                    watch.unscanned.discard(partition)
        return True

    async def _look(self, partition: PartitionId, watched: WatchedPartition) -> None:
        """:raises QueueyError: the store could not be asked."""
        fired, readable = watched.fired, self._readable.upto()
        found = await self._readable.next_in(partition, watched.consistency, watched.passed_ticks)
        woken: list[Future[None]] = []
        with self._lock:
            # If it fell due meanwhile, the answer may be older than what fell due.
            if watched.fired == fired and found > readable:
                watched.known = True
                self._expect(partition, watched, found)
            elif watched.fired == fired:  # it may have come between a reader's look and its wait
                woken += watched.fall_due(partition, readable)
        _end(woken)

    # What is due by time

    def tick(self) -> float:
        """Do what is due.

        :returns: seconds until there may be more to do; the step of the thread at least, infinite if nothing is due later.
        """
        woken: list[Future[None]] = []
        now = self._readable.upto() + self._readable.delay_ticks
        with self._lock:
            elapsed = self.clock.elapsed()
            for partition in self._due.due_partitions(now):
                watched = self._table.partitions.get(partition)
                if watched is not None and watched.next_ticks + self._readable.delay_ticks <= now:
                    woken += watched.fall_due(partition, round(watched.next_ticks))
            for watch in self._due.due_waits(elapsed):
                woken += watch.end_wait()
            rest = self._due.rest(elapsed, now)
            self._thread.rests_until(elapsed + rest)
        _end(woken)
        if self._notices is not None:
            rest = min(rest, self._notices.work(self.heard, somebody_waits=bool(self._table.partitions)))
        return max(rest, STEP_SECONDS)


def _invalidate(watches: Iterable[Watch]) -> list[Future[None]]:
    """With the lock held: these readers are to look up. The waits that end."""
    woken: list[Future[None]] = []
    for watch in watches:
        watch.invalidated = True
        woken += watch.end_wait()
    return woken


def _end(waits: Iterable[Future[None]]) -> None:
    """Without the lock: what a reader does next may come back here."""
    for future in waits:
        future.set_result(None)
