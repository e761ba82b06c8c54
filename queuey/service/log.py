"""Messages: appending to queues and reading spans of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil, inf
from random import random
from typing import NamedTuple, TypeVar

from google_crc32c import value as crc32c

from queuey import future
from queuey.clock import Clock
from queuey.errors import OutcomeUnknown, QueueNotFound, StorageUnavailable
from queuey.future import Future
from queuey.ids import TICKS_PER_SECOND, MessageId
from queuey.model import (
    Appended,
    AppendRequest,
    Location,
    Message,
    Overwrite,
    Page,
    PartitionId,
    Queue,
    ReadRequest,
    Span,
    SpanCount,
    SpanRemoval,
)
from queuey.monitor.metrics import Monitor
from queuey.service.queues import Queues
from queuey.service.turns import LOOK_ROWS, Turns
from queuey.service.waiting.registry import Waiters
from queuey.storage import MessageStore

T = TypeVar("T")

ROW_BYTES = 128
"""Bytes of a message in an answer beside its body: id, timestamp and member names."""


class CountPace(NamedTuple):
    """How long one request counts."""

    seconds: float = 2.0
    """Not longer, so that counting for strangers cannot hold all threads."""
    together: int = 100_000
    """Messages that are counted between two checks of the time."""


COUNT_PACE = CountPace()


class QueueRead(NamedTuple):
    """What a reader asks of one queue: a page of each of some partitions."""

    spans: Sequence[tuple[int, Span]]
    """Partition numbers and their spans, in the order of the answer."""
    limit: int
    """Messages of each partition."""
    newest_first: bool = False
    max_bytes: int = 4 << 20
    """Bytes of bodies in the whole answer; one message comes in any case."""
    with_bodies: bool = True
    skip_corrupt: bool = False

    def of(self, partition: PartitionId, span: Span, max_bytes: int) -> ReadRequest:
        """The request for one partition's page.

        :param max_bytes: the room that the pages before it left.
        """
        return ReadRequest(
            partition, span, self.limit, self.newest_first, max_bytes, self.with_bodies, self.skip_corrupt
        )


class PartitionPage(NamedTuple):
    """The page of one partition."""

    partition: int
    page: Page


class ReadAnswer(NamedTuple):
    """Pages in the order asked, and the moment up to which they are complete."""

    pages: Sequence[PartitionPage]
    watermark: int
    size: int
    """Bytes of all bodies."""


class Log:
    """The messages of all queues."""

    def __init__(
        self, messages: MessageStore, queues: Queues, clock: Clock, monitor: Monitor, waiters: Waiters
    ) -> None:
        self._messages = messages
        self._waiters = waiters
        self._queues = queues
        self._clock = clock
        self._monitor = monitor
        self.note_coming: Callable[[AppendRequest], None] = lambda request: None
        """Hears of each append before it is stored."""
        self._settled = messages.settled_seconds
        delay = messages.read_delay_seconds
        self.least_ttl_seconds = ceil(delay) + 1 if delay else 1
        """Seconds. A message with a shorter TTL could expire before any reader may see it (G8)."""
        self.read_delay_seconds = delay
        """See :attr:`queuey.storage.MessageStore.read_delay_seconds`."""
        self.reads_elsewhere = messages.reads_elsewhere
        """See :attr:`queuey.storage.MessageStore.reads_elsewhere`."""

    async def append(self, request: AppendRequest) -> Appended:
        """See :meth:`queuey.storage.MessageStore.append`; it wakes the readers that wait."""
        stored = self._messages.append(request)
        self.note_coming(request)
        appended = await stored if self._settled == inf else await self._while_there(request.queue, stored)
        if not appended.repeated:
            self._waiters.arrived(request.queue, appended.placed)
        return appended

    def arrived(self, queue: Queue, placed: Sequence[Location]) -> None:
        """Wake the readers that wait for messages which another step appended."""
        self._waiters.arrived(queue, placed)

    async def _while_there(self, queue: Queue, written: Future[T]) -> T:
        """The result of a write, if its queue still exists (G9).

        No removal of the queue can have been answered before the write is acknowledged. The queue was found before the
        request was read, and that look-up may itself have taken long: all this time counts.

        :raises QueueNotFound: the queue is gone; the written messages are never read.
        :raises OutcomeUnknown: it is not known whether the queue still exists.
        """
        outcome = await written
        try:
            there = await self._queues.is_there(queue, self._settled)
        except StorageUnavailable as error:
            raise OutcomeUnknown from error
        if not there:
            raise QueueNotFound
        return outcome

    def watermark(self, queue: Queue) -> int:
        """The ticks up to which the queue is complete for readers."""
        return self._messages.watermark(queue.consistency)

    def newest_ticks(self, queue: Queue) -> int:
        """A moment at or behind the ids of all messages that were acknowledged by now, but for scheduled ones.

        It is ahead of the time by as much as the clocks of other servers may be.
        """
        ahead = round(self.read_delay_seconds * TICKS_PER_SECOND)
        return max(self._clock.now_ticks() + ahead, self.watermark(queue))

    async def read(self, queue: Queue, request: QueueRead, turns: Turns | None = None) -> ReadAnswer:
        """One page of each partition asked for, none past the watermark (G3, G5).

        :param turns: the turns of a caller that reads more than this.
        :raises CorruptMessage: unless ``skip_corrupt``.
        """
        watermark = self.watermark(queue)
        end, now = MessageId.last_of(watermark), self._clock.now_ticks()
        pages: list[PartitionPage] = []
        room, total, turns = request.max_bytes, 0, turns or Turns()
        for number, (after, upto) in request.spans:
            if not 1 <= number <= queue.partitions:
                continue
            if pages and room <= 0:
                pages.append(PartitionPage(number, Page([], True)))
                continue
            if turns.over:
                await turns.give()
            asked = request.of(queue.partition(number), Span(after, min(upto, end)), max(room, 0))
            page = await self._messages.read(asked, now_ticks=now, consistency=queue.consistency)
            size, count = page.size, len(page.messages)
            room -= size + count * ROW_BYTES
            total += size
            turns.count(count + LOOK_ROWS, size)
            pages.append(PartitionPage(number, page))
        return ReadAnswer(pages, watermark, total)

    async def first_behind(
        self, queue: Queue, places: Mapping[int, MessageId], turns: Turns | None = None
    ) -> Mapping[int, MessageId]:
        """By partition, the first message behind a place: the oldest one that a group has not finished.

        :param places: by partition, up to where all is finished. Partitions without a later message are left out.
        """
        spans = [(number, Span(place)) for number, place in places.items()]
        found = await self.read(queue, QueueRead(spans, 1, with_bodies=False), turns)
        return {one.partition: one.page.messages[0].id for one in found.pages if one.page.messages}

    async def count_spans(
        self,
        queue: Queue,
        spans: Sequence[tuple[int, Span]],
        *,
        limit: int,
        step: int,
        pace: CountPace = COUNT_PACE,
        unseen: bool = False,
    ) -> tuple[int, Sequence[tuple[int, SpanCount]]]:
        """Counts of spans, none past the watermark.

        Returns the watermark, then the counts by partition. See :meth:`queuey.storage.MessageStore.count_span`. When
        the time is up, ``more`` is true for spans that are not counted to their end.

        :param unseen: spans go on behind the watermark, up to what was acknowledged by now.
        """
        watermark = self.watermark(queue)
        end = MessageId.last_of(self.newest_ticks(queue) if unseen else watermark)
        count = _Count(limit, step, self._clock.elapsed() + pace.seconds, pace.together)
        asked = [
            (number, future.start(self._count_span(queue, number, Span(after, min(upto, end)), count)))
            for number, (after, upto) in spans
            if 1 <= number <= queue.partitions
        ]
        return watermark, [(number, await counted) for number, counted in asked]

    async def _count_span(self, queue: Queue, number: int, span: Span, count: _Count) -> SpanCount:
        split_points: list[MessageId] = []
        counted, after = 0, span.after
        while True:
            portion = 0 if self._clock.elapsed() >= count.until else count.portion(counted)
            found = await self._messages.count_span(
                queue.partition(number),
                Span(after, span.upto),
                now_ticks=self._clock.now_ticks(),
                limit=portion,
                step=count.step_within(portion),
                consistency=queue.consistency,
            )
            counted += found.messages
            split_points += found.split_points if count.splits_at(counted) else ()
            if not (found.more and portion and counted < count.limit):
                newest = found.newest or (after if counted else None)
                return SpanCount(newest, counted, found.more, split_points if count.step else [])
            after = found.split_points[-1]

    async def fetch(
        self, queue: Queue, wanted: Sequence[Location], *, max_bytes: int, largest: int
    ) -> tuple[Sequence[tuple[int, Message]], bool]:
        """Messages by id, in the order asked; messages that do not exist are left out.

        The watermark does not limit a fetch. It reads a few messages at a time, so that ids of large messages cannot
        fill the memory before their bytes are counted.

        :param max_bytes: bytes of all messages; the first one comes in any case.
        :param largest: the most bytes of one body.
        :returns: partition numbers and messages, and whether ``max_bytes`` cut them.
        """
        inside = [location for location in wanted if location.partition <= queue.partitions]
        now, room, together = self._clock.now_ticks(), max_bytes, max(1, max_bytes // largest)
        found: list[tuple[int, Message]] = []
        for start in range(0, len(inside), together):
            asked = inside[start : start + together]
            messages = await self._messages.fetch(queue, asked, now_ticks=now)
            for (number, _), message in zip(asked, messages, strict=True):
                if message is None:
                    continue
                room -= message.size + ROW_BYTES
                if room < 0 and found:
                    return found, True
                found.append((number, message))
        return found, False

    async def put(self, queue: Queue, wanted: Sequence[Location], new: Overwrite) -> bool:
        """See :meth:`queuey.storage.MessageStore.put`; it wakes the readers that wait."""
        stored = self._messages.put(queue, wanted, new)
        late = await stored if self._settled == inf else await self._while_there(queue, stored)
        self._waiters.arrived(queue, wanted)
        return late

    def delete(self, queue: Queue, wanted: Sequence[Location]) -> Future[None]:
        """See :meth:`queuey.storage.MessageStore.delete`."""
        return self._messages.delete(queue, wanted)

    def read_ids(self, queue: Queue, number: int, span: Span, limit: int) -> Future[Page]:
        """A page of a partition without bodies, from behind the watermark too: with scheduled messages."""
        request = ReadRequest(queue.partition(number), span, limit, with_bodies=False)
        return self._messages.read(request, now_ticks=self._clock.now_ticks(), consistency=queue.consistency)

    async def delete_span(
        self, queue: Queue, number: int, span: Span, *, most: int, whole: bool = False
    ) -> SpanRemoval:
        """See :meth:`queuey.storage.MessageStore.delete_span`."""
        return await self._messages.delete_span(queue, number, span, most=most, whole=whole)


class _Count(NamedTuple):
    """How to count a span: in portions, with a check of the time between them."""

    limit: int
    step: int
    """Messages from one split point to the next; 0 means no split points."""
    until: float
    together: int

    def portion(self, counted: int) -> int:
        """Messages of the next portion; it ends at a split point if one is near."""
        left = self.limit - counted
        if not self.step:
            return min(self.together, left)
        if self.step <= self.together:
            return min(self.together - self.together % self.step, left)
        return min(self.together, self.step - counted % self.step, left)

    def step_within(self, portion: int) -> int:
        """Messages from one split point to the next within a portion."""
        return self.step if 0 < self.step <= self.together else portion

    def splits_at(self, counted: int) -> bool:
        """Whether split points of a portion that ends here are those of the count."""
        return 0 < self.step <= self.together or (self.step > 0 and counted > 0 and counted % self.step == 0)


def partition_for(queue: Queue, key: str | None) -> int:
    """The partition of a message that names none.

    It is its key's, or a random one without a key.

    The same key always gives the same partition, until the queue gains partitions.
    """
    if key is not None:
        return int(crc32c(key.encode())) % queue.partitions + 1
    return 1 if queue.partitions == 1 else int(random() * queue.partitions) + 1  # noqa: S311 - spreads, hides nothing
