"""A stream of new messages. While none come, it costs one waiting coroutine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from random import random

from queuey.api.cursors import format_progress, format_several
from queuey.api.live.forms import LiveForm
from queuey.errors import Forbidden, QueueNotFound, QueueyError, ServerStopping, Throttled
from queuey.http.access import identify_again, queue_again
from queuey.http.exchange import Call
from queuey.ids import TICKS_PER_SECOND, MessageId, format_timestamp
from queuey.model import Columns, PartitionId, Queue
from queuey.security.permissions import Permission
from queuey.service import Service
from queuey.service.follow import PAGE_BYTES, PAGE_ROWS, Follower, Found
from queuey.service.waiting.registry import LOOK_AGAIN_SECONDS
from queuey.service.waiting.watch import Watch

KEEPALIVE_SECONDS = 30.0
"""Seconds between two keepalives. Each time the stream checks whether the reader may still read. If other servers
append to the same store, it is :data:`~queuey.service.waiting.registry.LOOK_AGAIN_SECONDS`. With one every 15 s, ten
thousand readers take 8 % of a core (measured)."""
KEEPALIVE_IN_THREAD_SECONDS = 0.5
"""The same where a thread waits: threads are few, and one learns that its reader has gone only when it sends
something."""
_AGAIN_SECONDS = 1.0
"""Seconds until the next attempt after an error of the store."""
_WORTH = 6
"""Bytes that one byte of a body takes at most while a piece is made: the length of JSON's longest escape."""
_ROW_BYTES = 512
"""Bytes of a message beside its body and its cursor."""
_PAGE_ROOM = _WORTH * PAGE_BYTES + PAGE_ROWS * (_ROW_BYTES + 128)
"""Bytes of room for a page, unless it is one large message."""


@dataclass(frozen=True, slots=True)
class LiveRead:
    """What a live answer reads, and how it shows it."""

    follower: Follower
    form: LiveForm
    numbers: Sequence[int] | None
    """Partitions to read; None for all, later ones included."""
    several: bool
    """The reader reads several queues, and its cursor has the form for that."""
    until: float | None
    """The elapsed time at which the stream ends if no messages come first; None for a stream without end."""
    notes: bytes
    """Sent first, right after the opening."""


class LiveStream:
    """The body of a live answer (:class:`queuey.http.exchange.BodyStream`)."""

    waits = True

    __slots__ = (
        "_call",
        "_check_at",
        "_columns",
        "_follower",
        "_form",
        "_last_look",
        "_least_room",
        "_missed",
        "_notes",
        "_numbers",
        "_opened",
        "_over",
        "_rows",
        "_service",
        "_several",
        "_ticket",
        "_until",
        "_watch",
    )

    def __init__(self, service: Service, call: Call, watch: Watch, following: LiveRead) -> None:
        self._service = service
        self._call = call
        self._follower = following.follower
        self._watch = watch
        self._form = following.form
        self._numbers = following.numbers
        self._several = following.several
        self._until = following.until
        self._notes = following.notes
        self._opened = self._over = self._missed = self._last_look = False
        self._rows = 0
        waiters = service.waiters
        self._ticket = call.ticket.patient(partial(waiters.wake, watch))
        # A store that reads elsewhere may have brought a page for every reader before the first one is looked at.
        largest = service.settings.limits.max_body_bytes if service.log.reads_elsewhere else 0
        self._least_room = max(_PAGE_ROOM, largest)
        self._check_at = self._next_check((1 + random()) / 2)  # noqa: S311 - separates readers that came together

    async def more(self) -> bytes | None:
        """See :class:`queuey.http.exchange.BodyStream`."""
        self._ticket.taken()
        piece = await self._next()
        self._ticket.made(len(piece or b""))
        return piece

    def close(self) -> None:
        """See :class:`queuey.http.exchange.BodyStream`."""
        self._over = True
        self._ticket.close()
        self._watch.close()

    async def _next(self) -> bytes | None:
        waiters = self._service.waiters
        while not self._over:
            try:
                piece = await self._step()
            except QueueyError as error:
                self._ticket.made(0)
                if not error.retriable or waiters.ended or self._until is not None:
                    return self._end(error)
                self._missed = True
                self._check_at = min(self._check_at, waiters.clock.elapsed() + _AGAIN_SECONDS)
                await waiters.wait(self._watch, waiters.clock.elapsed() + _AGAIN_SECONDS, whatever_comes=True)
            else:
                if piece:
                    return piece
        return None

    async def _step(self) -> bytes | None:
        """Do the next thing; None if it gives the client nothing."""
        waiters, follower = self._service.waiters, self._follower
        if not self._opened:
            self._opened = True
            follower.begin(None)
            return self._opening()
        if waiters.clock.elapsed() >= self._check_at:
            return await self._check()
        if self._missed:
            follower.begin(None)
            self._missed = False
        if self._watch.invalidated:  # before a page is read: messages that wait to be taken may be very many
            news, _ = self._watch.take_events()
            self._missed = bool(news)
            return await self._look_up()
        if follower.reads and not self._ticket.wait_for(self._least_room):
            return await self._wait_for_room()
        found = await follower.read()
        if found is not None:
            return self._page(found)
        self._ticket.made(0)
        if waiters.ended:
            return self._end(ServerStopping())
        if self._until is not None and (self._rows or self._time_is_over(self._until)):
            return self._end(None)
        news, invalidated = self._watch.take_events()
        if news:
            self._missed = True  # until a round has begun
            follower.begin(news)
            self._missed = False
        if invalidated:
            return await self._look_up()
        if not news:
            await self._watch.wait(min(self._check_at, inf if self._until is None else self._until))
        return None

    async def _wait_for_room(self) -> bytes | None:
        """Wait for this stream's turn to get room, or for an event that ends the wait.

        It does not read ahead of the room (G17).

        :raises ServerStopping, Throttled: the wait is over; the reader can go on from its cursor.
        """
        waiters, watch, until = self._service.waiters, self._watch, inf if self._until is None else self._until
        if waiters.ended:
            raise ServerStopping
        if waiters.clock.elapsed() >= until:
            raise Throttled
        woken = waiters.wait(watch, min(self._check_at, until), whatever_comes=True)
        if not self._ticket.room:  # it may have come in between
            await woken
        return None

    def _page(self, found: Found) -> bytes | None:
        """A page of messages; None without room to make it: it is read again later."""
        room = _WORTH * found.size + len(found.messages) * (_ROW_BYTES + len(self._cursor))
        if not self._ticket.widen(room):
            self._follower.put_back(found)
            return None
        return self._present(found)

    def _time_is_over(self, until: float) -> bool:
        """Whether the stream's time is over.

        If it may have missed news, it looks once more first.
        """
        if self._service.waiters.clock.elapsed() < until:
            return False
        if not self._service.waiters.looks_again or self._last_look:
            return True
        self._last_look = self._missed = True
        return False

    # Pieces

    @property
    def _cursor(self) -> str:
        queues, progress = self._follower.queues.values(), self._follower.progress
        if self._several:
            return format_several(queues, progress)
        return format_progress(next(iter(queues)), self._numbers, progress)

    def _opening(self) -> bytes:
        names = list(self._follower.queues)
        about = {"queues": names} if self._several else {"queue": names[0]}
        watermark = format_timestamp(self._follower.watermark)
        return self._form.note("open", {**about, "watermark": watermark}, self._cursor) + self._notes

    def _present(self, found: Found) -> bytes:
        queue, number, messages, size = found
        self._rows += len(messages)
        self._service.monitor.delivered(
            self._call.identity.counted_as(queue.application), self._form.media_type, len(messages), size
        )
        return self._form.rows(
            queue.name, messages, number, self._cursors(queue.partition(number), Columns.of(messages))
        )

    def _cursors(self, partition: PartitionId, columns: Columns) -> Iterator[str]:
        for place in map(MessageId, columns.ticks, columns.tails):
            self._follower.progress.set(partition, place)
            yield self._cursor

    def _end(self, error: QueueyError | None) -> bytes:
        """The last piece; its cursor is where to continue."""
        self._over = True
        said = {
            "rows": self._rows,
            "more": error is not None,
            "watermark": format_timestamp(self._follower.watermark),
            **({} if error is None else {"code": error.code, "detail": str(error), "retriable": error.retriable}),
        }
        return self._form.note("end", said, self._cursor if self._follower.queues else None)

    # Whether the reader may still read

    def _next_check(self, share: float = 1.0) -> float:
        """:param share: the part of the usual pause that this one takes."""
        clock, expires = self._service.clock, self._call.identity.expires_ticks
        life = inf if expires is None else max((expires - clock.now_ticks()) / TICKS_PER_SECOND, 0.0)
        pause = LOOK_AGAIN_SECONDS if self._service.waiters.looks_again else KEEPALIVE_SECONDS
        if self._call.in_thread:
            pause = KEEPALIVE_IN_THREAD_SECONDS
        return clock.elapsed() + min(pause * share, life)

    async def _check(self) -> bytes:
        notes = await self._look_up(only_the_reader=self._service.queues.hears_of_changes)
        if self._over:
            return notes
        self._check_at = self._next_check()
        if self._service.waiters.looks_again:
            self._missed = True
        return notes + self._form.note(
            "keepalive", {"watermark": format_timestamp(self._follower.watermark)}, self._cursor
        )

    async def _look_up(self, *, only_the_reader: bool = False) -> bytes:
        """Check the reader and the queues again.

        Report queues that cannot be read any more.

        :param only_the_reader: check the queues only if the reader is another one now. A change of a queue already
            notifies its readers, and ten thousand queues looked up in turn would push each other out of the cache.
        """
        service, call, before = self._service, self._call, self._call.identity
        await identify_again(service, call)
        if only_the_reader and call.identity == before:
            return b""
        notes = b""
        for queue in list(self._follower.queues.values()):
            try:
                self._take_over(queue, await queue_again(service, call, queue, Permission.VIEW))
            except (Forbidden, QueueNotFound) as error:
                notes += self._lose(queue, error)
        return notes

    def _take_over(self, queue: Queue, found: Queue) -> None:
        if found == queue:
            return
        numbers = range(1, found.partitions + 1) if self._numbers is None else self._numbers
        for number in range(queue.partitions + 1, found.partitions + 1):
            if number in numbers:
                self._follower.begin_at_zero(found.partition(number))
                self._service.waiters.add(self._watch, found, number)
                self._missed = True
        self._follower.add(found, numbers)

    def _lose(self, queue: Queue, error: QueueyError) -> bytes:
        said = {"queue": queue.name, "code": error.code, "detail": str(error)}
        note = self._form.note("reset" if isinstance(error, QueueNotFound) else "refused", said)
        if len(self._follower.queues) == 1:
            return note + self._end(error)
        self._follower.drop(queue)
        self._service.waiters.remove(self._watch, queue.uuid)
        return note
