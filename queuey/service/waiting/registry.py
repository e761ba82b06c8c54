"""Who waits for messages, and what wakes whom (docs/decisions/010).

A reader opens a :class:`Watch` on partitions, reads, and waits when it found nothing. What arrives
after the watch was opened wakes it, also between its read and its wait; so nothing is missed. A
watch may be woken early or for nothing: it looks again.

One lock, one table of partitions that somebody watches, and one thread for everything that is due by
time: a waiter costs no thread, no task and no timer of its own.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from math import inf
from uuid import UUID

from queuey.clock import Clock
from queuey.errors import ClockUnsafe, QueueyError, TooManyWaiters
from queuey.future import Future
from queuey.ids import TICKS_PER_SECOND, MessageId
from queuey.locks import new_lock
from queuey.model import Consistency, Location, PartitionId, Queue, ReadRequest, Span
from queuey.monitor.metrics import WAITERS, WAITERS_REFUSED, Monitor
from queuey.security.principals import STRANGERS
from queuey.service.turns import LOOK_ROWS, Turns
from queuey.service.waiting.changed_queues import ChangedQueues
from queuey.service.waiting.peers import TELL_SECONDS, Activities
from queuey.service.waiting.watch import FAILED_LOOK_SECONDS, Watch, WatchedPartition
from queuey.settings import Settings
from queuey.storage import MessageStore

log = logging.getLogger(__name__)

STEP_SECONDS = 0.05
"""What is due by time within so long is done together."""
LOOK_AGAIN_SECONDS = 15.0
"""A reader that heard of nothing for so long looks by itself, where other servers might have died before they told."""
_IDLE_SECONDS = 1.0
"""The wall clock may be stepped: what is due by it is looked for this often."""


class Waiters:
    """The waiting readers of one server. Thread-safe."""

    def __init__(
        self, messages: MessageStore, clock: Clock, monitor: Monitor, settings: Settings, *, by_hand: bool = False
    ) -> None:
        """:param by_hand: no thread looks for what is due: who moves the clock calls :meth:`tick`."""
        self.clock = clock
        self.ended = False
        """The server stops: nobody waits any longer."""
        self._by_hand = by_hand
        self._messages = messages
        self._monitor = monitor
        self._delay_ticks = round(messages.read_delay_seconds * TICKS_PER_SECOND)
        self._places: dict[PartitionId, WatchedPartition] = {}
        self._most: int = settings.limits.max_waiters
        self._most_in_threads: int = max(settings.server.threads - 1, 1)
        self._most_by_kind: Mapping[str, int] = {
            "user": settings.limits.max_waiters_per_user,
            "application": settings.limits.max_waiters_per_application,
            STRANGERS: self._most * settings.limits.max_waiters_strangers_percent // 100,
        }
        self._waiters = 0
        self._in_threads = 0
        self._by_reader: Counter[str] = Counter()
        self._lock = new_lock()
        self._timers: list[tuple[float, int, Watch]] = []
        self._due: list[tuple[float, PartitionId]] = []
        self._serial = count()
        self._sooner = threading.Event()
        self._next = inf
        self._thread: threading.Thread | None = None
        self._activities = Activities(messages.peers, clock) if messages.peers is not None else None
        self.arrivals = ChangedQueues(clock, self._readable_ticks, alone=self._activities is None)
        """Which queues got something, for who cannot watch them all."""
        monitor.ask(WAITERS, lambda: self._waiters)

    @property
    def looks_again(self) -> bool:
        """Whether a message can become readable that nobody here heard of: where there are other servers."""
        return self._activities is not None

    # Who waits

    def watch(self, places: Iterable[tuple[Queue, int]], readers: Sequence[str], *, in_thread: bool) -> Watch:
        """Begin to hear of what arrives in these partitions of queues.

        :param readers: who reads: each counts against its own limit.
        :param in_thread: a thread will wait for it.
        :raises TooManyWaiters: there are as many as may be; ``whose`` says of whom.
        """
        with self._lock:
            self._admit(readers, in_thread=in_thread)
            watch = Watch(self, readers, in_thread=in_thread)
            for queue, number in places:
                self._enter(watch, queue, number)
            self._start()
            if self._activities is not None:
                self._not_later_than(self.clock.elapsed())
        return watch

    def _admit(self, readers: Sequence[str], *, in_thread: bool) -> None:
        if self._waiters >= self._most:
            self._refuse("server", f"{self._most} readers wait on this server, and no more may")
        if in_thread and self._in_threads >= self._most_in_threads:
            self._refuse(
                "threads", f"{self._most_in_threads} of this server's threads wait for readers, and no more may"
            )
        for reader in readers:
            kind = _kind(reader)
            most = self._most_by_kind[kind]
            if self._by_reader[reader] >= most:
                have = "readers without a credential have" if kind == STRANGERS else f"{reader} has"
                self._refuse(kind, f"{have} {most} waiting readers on this server, and no more may be")
        self._waiters += 1
        self._in_threads += in_thread
        self._by_reader.update(readers)

    def _refuse(self, whose: str, text: str) -> None:
        self._monitor.count(WAITERS_REFUSED, 1, whose)
        raise TooManyWaiters(f"{text}: end one, or try again after Retry-After seconds", whose=whose)

    def _enter(self, watch: Watch, queue: Queue, number: int) -> None:
        partition = queue.partition(number)
        place = self._places.get(partition)
        if place is None:
            place = self._places[partition] = WatchedPartition(queue.consistency)
        place.watches.add(watch)
        watch.partitions[partition] = place
        watch.unscanned.add(partition)

    def add(self, watch: Watch, queue: Queue, number: int) -> None:
        """Let a watch hear of one more partition, from now on."""
        with self._lock:
            if not watch.closed:
                self._enter(watch, queue, number)

    def remove(self, watch: Watch, queue: UUID) -> None:
        """Let a watch hear of a queue no more."""
        with self._lock:
            for partition in [one for one in watch.partitions if one.queue == queue]:
                self._unwatch(watch, partition)
                del watch.partitions[partition]
                watch.unscanned.discard(partition)

    def _unwatch(self, watch: Watch, partition: PartitionId) -> None:
        place = watch.partitions[partition]
        place.watches.discard(watch)
        if not place.watches:
            self._places.pop(partition, None)

    def leave(self, watch: Watch) -> None:
        """A reader waits no more; see :meth:`Watch.close`."""
        with self._lock:
            if watch.closed:
                return
            watch.closed = True
            watch.promise = None
            for partition in watch.partitions:
                self._unwatch(watch, partition)
            watch.partitions = {}
            self._waiters -= 1
            self._in_threads -= watch.in_thread
            for reader in watch.readers:
                self._by_reader[reader] -= 1
                if not self._by_reader[reader]:
                    del self._by_reader[reader]

    # What wakes

    def arrived(self, to: Queue, placed: Sequence[Location]) -> None:
        """Messages were acknowledged by this server."""
        queue = to.uuid
        self.arrivals.note(to, placed)
        if self._activities is not None and self._activities.note(queue, placed):
            with self._lock:
                self._start()
                self._not_later_than(self.clock.elapsed() + TELL_SECONDS)
        if not self._places:
            return
        watched = {number for number, _ in placed if (queue, number) in self._places}
        if not watched:
            return
        readable = self._readable_ticks()
        with self._lock:
            woken = [
                watch
                for number in watched
                for watch in self._note(
                    PartitionId(queue, number), [ticks for at, (ticks, _) in placed if at == number], readable
                )
            ]
        _keep_all(woken)

    def _readable_ticks(self) -> int:
        """Up to here readers may read; in an embedded store exactly so."""
        if self._delay_ticks:
            return self.clock.now_ticks() - self._delay_ticks
        try:
            return self._messages.watermark(Consistency.STRONG)
        except ClockUnsafe:
            return self.clock.now_ticks()

    def _note(self, partition: PartitionId, ticks: Sequence[int], readable: int) -> Iterator[Future[None]]:
        """With the lock held: messages came to a partition. Who is to be woken now?"""
        place = self._places.get(partition)
        if place is None:
            return
        later = [tick for tick in ticks if tick > readable]
        if later:
            self._expect(partition, place, min(later))
        if len(later) < len(ticks):
            yield from self._wake(partition, place)

    def _expect(self, partition: PartitionId, place: WatchedPartition, ticks: float) -> None:
        if ticks < place.next_ticks:
            place.next_ticks = ticks
            heapq.heappush(self._due, (ticks + self._delay_ticks, partition))
            away = (ticks + self._delay_ticks - self.clock.now_ticks()) / TICKS_PER_SECOND
            self._not_later_than(self.clock.elapsed() + max(away, 0.0))

    def _wake(self, partition: PartitionId, place: WatchedPartition) -> Iterator[Future[None]]:
        for watch in place.watches:
            watch.news.add(partition)
            promise, watch.promise = watch.promise, None
            if promise is not None:
                yield promise

    def changed(self, queue: UUID) -> None:
        """A queue was deleted, or its settings have changed: its readers look whether they may go on."""
        with self._lock:
            places = [place for partition, place in self._places.items() if partition.queue == queue]
            woken = self._touch({watch for place in places for watch in place.watches})
        _keep_all(woken)

    def _touch(self, watches: Iterable[Watch]) -> list[Future[None]]:
        """With the lock held: these are to look up. Who of them is to be woken?"""
        woken = []
        for watch in watches:
            watch.invalidated = True
            promise, watch.promise = watch.promise, None
            if promise is not None:
                woken.append(promise)
        return woken

    def heard(self, partitions: Sequence[PartitionId] | None, ticks: int) -> None:
        """Another server told of messages up to ``ticks`` in these partitions; None stands for any."""
        readable = self._readable_ticks()
        with self._lock:
            found = list(self._places) if partitions is None else partitions
            woken = [promise for partition in found for promise in self._note(partition, [ticks], readable)]
        _keep_all(woken)

    def wake(self, watch: Watch) -> None:
        """Let a wait end: there is something to look at that the watch does not hear of."""
        with self._lock:
            promise, watch.promise = watch.promise, None
        if promise is not None:
            promise.set_result(None)

    def stop(self) -> None:
        """Let all waits end, now and later."""
        with self._lock:
            self.ended = True
            watches = {watch for place in self._places.values() for watch in place.watches}
            watches.update([watch for _, _, watch in self._timers])
            woken = self._touch(watches)
        _keep_all(woken)

    def close(self) -> None:
        """End the thread. May be repeated."""
        self.stop()
        self._sooner.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def take_events(self, watch: Watch) -> tuple[set[PartitionId], bool]:
        """See :meth:`Watch.take_events`."""
        with self._lock:
            news, invalidated = watch.news, watch.invalidated
            watch.invalidated = False
            if news:
                watch.news = set()
        return news, invalidated

    # What is due by time

    def wait(self, watch: Watch, until: float, *, whatever_comes: bool = False) -> Future[None]:
        """Kept when there is something to look at, or the elapsed time ``until`` has come.

        :param whatever_comes: what has come already does not end it.
        """
        with self._lock:
            come = not whatever_comes and (watch.news or watch.invalidated)
            if come or self.ended or watch.closed or self.clock.elapsed() >= until:
                return Future.of(None)
            promise: Future[None] = Future()
            watch.promise = promise
            watch.until = until
            if until < watch.timed:
                watch.timed = until
                heapq.heappush(self._timers, (until, next(self._serial), watch))
                self._not_later_than(until)
        return promise

    async def look_ahead(self, watch: Watch) -> bool:
        """Ask the store, once a partition, for what is there and not readable yet: later arrivals are heard of.

        :returns: False if the store could not be asked: look again soon.
        """
        turns = Turns()
        for partition in list(watch.unscanned):
            await turns.give()
            place = watch.partitions.get(partition)
            if place is not None and not place.known:
                turns.count(LOOK_ROWS)
                try:
                    await self._look(partition, place)
                except QueueyError:
                    return False
            with self._lock:
                if place is None or place.known:  # and not if it fell due meanwhile: then there may be more behind it
                    watch.unscanned.discard(partition)
        return True

    async def _look(self, partition: PartitionId, place: WatchedPartition) -> None:
        """:raises QueueyError: the store could not be asked."""
        fired = place.fired
        found = await self._next_in(partition, place.consistency)
        with self._lock:
            if place.fired == fired:
                place.known = True
                self._expect(partition, place, found)

    async def _next_in(self, partition: PartitionId, consistency: Consistency) -> float:
        after = MessageId.last_of(self._messages.watermark(consistency))
        request = ReadRequest(partition, Span(after), 1, with_bodies=False)
        page = await self._messages.read(request, now_ticks=self.clock.now_ticks(), consistency=consistency)
        return page.messages[0].ticks if page.messages else inf

    def tick(self) -> float:
        """Do what is due.

        :returns: seconds until there may be more to do.
        """
        woken: list[Future[None]] = []
        with self._lock:
            elapsed, now = self.clock.elapsed(), self.clock.now_ticks()
            while self._due and self._due[0][0] <= now:
                _, partition = heapq.heappop(self._due)
                place = self._places.get(partition)
                if place is not None and place.next_ticks + self._delay_ticks <= now:
                    place.next_ticks, place.known = inf, False
                    place.fired += 1
                    for watch in place.watches:
                        watch.unscanned.add(partition)
                    woken += self._wake(partition, place)
            while self._timers and self._timers[0][0] <= elapsed:
                watch = heapq.heappop(self._timers)[2]
                woken += self._time_is_up(watch, elapsed)
            rest = self._rest(elapsed, now)
            self._next = elapsed + rest
        _keep_all(woken)
        return rest

    def _time_is_up(self, watch: Watch, elapsed: float) -> Iterator[Future[None]]:
        watch.timed = inf
        if watch.promise is None:
            return
        if watch.until <= elapsed:
            promise, watch.promise = watch.promise, None
            yield promise
        else:
            watch.timed = watch.until
            heapq.heappush(self._timers, (watch.until, next(self._serial), watch))

    def _rest(self, elapsed: float, now: int) -> float:
        rest = self._timers[0][0] - elapsed if self._timers else inf
        if self._due:
            rest = min(rest, (self._due[0][0] - now) / TICKS_PER_SECOND, _IDLE_SECONDS)
        return rest

    def _not_later_than(self, elapsed: float) -> None:
        if elapsed < self._next:
            self._next = elapsed
            self._sooner.set()

    def _start(self) -> None:
        """With the lock held: let the thread run, and look at once."""
        if self._thread is None and not self.ended and not self._by_hand:
            self._thread = threading.Thread(target=self._run, name="live", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self.ended:
            try:
                rest = self._work()
            except Exception:
                log.exception("it is not known what waiting readers are to be told, and will be looked for again")
                rest = FAILED_LOOK_SECONDS
            self._sooner.wait(max(rest, STEP_SECONDS) if rest < inf else None)
            self._sooner.clear()

    def _work(self) -> float:
        rest = self.tick()
        if self._activities is not None:
            rest = min(rest, self._activities.work(self.heard, somebody_waits=bool(self._places)))
        return rest


def _kind(reader: str) -> str:
    """Whose limit a reader counts against."""
    if reader == STRANGERS:
        return STRANGERS
    return "user" if reader.startswith(("bid:", "oidc:")) else "application"


def _keep_all(promises: Iterable[Future[None]]) -> None:
    for promise in promises:
        promise.set_result(None)
