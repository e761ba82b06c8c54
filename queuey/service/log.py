"""Messages: appending to queues and reading spans of them."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf
from random import random
from typing import NamedTuple, TypeVar

from google_crc32c import value as crc32c

from queuey.clock import Clock
from queuey.errors import OutcomeUnknown, QueueNotFound, StorageUnavailable
from queuey.ids import MessageId
from queuey.model import Appended, AppendRequest, Message, Page, Placed, Queue, Span, Survey
from queuey.monitor import Monitor
from queuey.promise import Promise
from queuey.service.live import Live
from queuey.service.queues import Queues
from queuey.storage import MessageStore

T = TypeVar("T")

PlacedId = tuple[int, MessageId]
"""A partition number and an id."""


class ReadRequest(NamedTuple):
    """What a reader asks of one queue."""

    spans: Sequence[tuple[int, Span]]
    """Partition numbers and what is wanted of each, in the order of the answer."""
    limit: int
    """Messages per partition."""
    newest_first: bool = False
    max_bytes: int = 4 << 20
    """Bodies in the whole answer; one message comes in any case."""
    with_bodies: bool = True
    skip_corrupt: bool = False


class PartitionPage(NamedTuple):
    """What one partition gave."""

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

    def __init__(self, messages: MessageStore, queues: Queues, clock: Clock, monitor: Monitor, live: Live) -> None:
        self._messages = messages
        self._live = live
        self._queues = queues
        self._clock = clock
        self._monitor = monitor
        self._settled = messages.settled_seconds
        delay = messages.read_delay_seconds
        self.least_ttl_seconds = ceil(delay) + 1 if delay else 1
        """A message that lives no longer could expire before any reader may see it (G8)."""
        self.reads_elsewhere = messages.reads_elsewhere
        """See :attr:`queuey.storage.MessageStore.reads_elsewhere`."""

    async def append(self, request: AppendRequest) -> Appended:
        """See :meth:`queuey.storage.MessageStore.append`; readers that wait hear of it."""
        stored = self._messages.append(request)
        appended = await stored if self._settled == inf else await self._while_there(request.queue, stored)
        if not appended.repeated:
            self._live.arrived(request.queue, appended.placed)
        return appended

    async def _while_there(self, queue: Queue, written: Promise[T]) -> T:
        """What was written, if its queue was there all the time.

        :raises QueueNotFound: it is gone; what was written is never read.
        :raises OutcomeUnknown: nobody can say.
        """
        began = self._clock.elapsed()
        outcome = await written
        if self._clock.elapsed() - began < self._settled:
            return outcome
        try:
            there = await self._queues.is_there(queue)
        except StorageUnavailable as error:
            raise OutcomeUnknown from error
        if not there:
            raise QueueNotFound
        return outcome

    def watermark(self, queue: Queue) -> int:
        """Ticks up to which the queue is complete for readers."""
        return self._messages.watermark(queue.consistency)

    async def read(self, queue: Queue, request: ReadRequest) -> ReadAnswer:
        """One page of each partition asked for, none past the watermark (G3, G5).

        :raises CorruptMessage: unless ``skip_corrupt``.
        """
        watermark = self.watermark(queue)
        end, now = MessageId.last_of(watermark), self._clock.now_ticks()
        pages: list[PartitionPage] = []
        room, total = request.max_bytes, 0
        for number, (after, upto) in request.spans:
            if not 1 <= number <= queue.partitions:
                continue
            if pages and room <= 0:
                pages.append(PartitionPage(number, Page([], True)))
                continue
            page = await self._messages.read(
                queue.partition(number),
                Span(after, min(upto, end)),
                limit=request.limit,
                now_ticks=now,
                newest_first=request.newest_first,
                max_bytes=max(room, 0),
                with_bodies=request.with_bodies,
                skip_corrupt=request.skip_corrupt,
                consistency=queue.consistency,
            )
            size = page.size
            room -= size
            total += size
            pages.append(PartitionPage(number, page))
        return ReadAnswer(pages, watermark, total)

    async def survey(
        self, queue: Queue, spans: Sequence[tuple[int, Span]], *, limit: int, every: int
    ) -> tuple[int, Sequence[tuple[int, Survey]]]:
        """What lies in spans, none past the watermark: the watermark, and by partition what was found.

        See :meth:`queuey.storage.MessageStore.survey`.
        """
        watermark = self.watermark(queue)
        end, now = MessageId.last_of(watermark), self._clock.now_ticks()
        asked = [
            (
                number,
                self._messages.survey(
                    queue.partition(number),
                    Span(after, min(upto, end)),
                    now_ticks=now,
                    limit=limit,
                    every=every,
                    consistency=queue.consistency,
                ),
            )
            for number, (after, upto) in spans
            if 1 <= number <= queue.partitions
        ]
        return watermark, [(number, await survey) for number, survey in asked]

    async def fetch(self, queue: Queue, wanted: Sequence[PlacedId]) -> Sequence[Message | None]:
        """Messages by id, in the order asked; None for those not there. Not bound by the watermark."""
        inside = [(number, message_id) for number, message_id in wanted if number <= queue.partitions]
        found = iter(await self._messages.fetch(queue, inside, now_ticks=self._clock.now_ticks()))
        return [next(found) if number <= queue.partitions else None for number, _ in wanted]

    async def put(
        self,
        queue: Queue,
        wanted: Sequence[PlacedId],
        *,
        body: bytes,
        content_type: str | None,
        key: str | None,
        ttl_seconds: int,
    ) -> bool:
        """See :meth:`queuey.storage.MessageStore.put`; readers that wait hear of it."""
        stored = self._messages.put(
            queue, wanted, body=body, content_type=content_type, key=key, ttl_seconds=ttl_seconds
        )
        late = await stored if self._settled == inf else await self._while_there(queue, stored)
        self._live.arrived(queue, [Placed(id_, number) for number, id_ in wanted])
        return late

    def delete(self, queue: Queue, wanted: Sequence[PlacedId]) -> Promise[None]:
        """See :meth:`queuey.storage.MessageStore.delete`."""
        return self._messages.delete(queue, wanted)


def partition_for(queue: Queue, key: str | None) -> int:
    """The partition of a message that names none: the same for the same key, else any.

    The key's partition changes when the queue gains partitions.
    """
    if key is not None:
        return int(crc32c(key.encode())) % queue.partitions + 1
    return 1 if queue.partitions == 1 else int(random() * queue.partitions) + 1  # noqa: S311 - spreads, hides nothing
