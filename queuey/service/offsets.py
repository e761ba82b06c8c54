"""Offsets: how far groups have got in a queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from queuey.clock import Clock
from queuey.future import Future
from queuey.ids import MAX_ID, MessageId
from queuey.model import Offset, OffsetChange, OffsetMove, Queue, Span
from queuey.service.log import Log, QueueRead
from queuey.storage import OffsetStore


class End(Enum):
    """The two ends of a partition."""

    BEGINNING = "beginning"
    END = "end"


Target = End | MessageId | int
"""Where to reset offsets to: an end, the last finished message, or the ticks of the first moment to read."""


class Offsets:
    """The groups of all queues."""

    def __init__(self, store: OffsetStore, log: Log, clock: Clock) -> None:
        self._store = store
        self._log = log
        self._clock = clock

    async def of(self, queue: Queue, group: str) -> Mapping[int, Offset]:
        """The offset of a group in each partition, in order."""
        stored = await self._store.read_offsets(queue.uuid, group)
        return {number: stored.get(number, Offset()) for number in range(1, queue.partitions + 1)}

    def change(self, queue: Queue, group: str, change: OffsetChange) -> Future[Mapping[int, OffsetMove]]:
        """See :meth:`queuey.storage.OffsetStore.change_offsets`."""
        return self._store.change_offsets(queue.uuid, group, change)

    async def preview(self, queue: Queue, group: str, change: OffsetChange) -> Mapping[int, OffsetMove]:
        """What :meth:`change` would do now. It changes nothing."""
        return change.moves(await self._store.read_offsets(queue.uuid, group), self._clock.now_ticks())

    async def places(self, queue: Queue, numbers: Sequence[int], target: Target) -> dict[int, MessageId | None]:
        """The last message before ``target`` in each of these partitions.

        It is None if there is none.

        Messages that are not yet due lie after every target.
        """
        if isinstance(target, MessageId):
            return dict.fromkeys(numbers, target)
        if target is End.BEGINNING:
            return dict.fromkeys(numbers)
        upto = MAX_ID if isinstance(target, End) else MessageId.first_of(target).before()
        wanted = QueueRead(
            [(number, Span(upto=upto)) for number in numbers], limit=1, newest_first=True, with_bodies=False
        )
        found = await self._log.read(queue, wanted)
        return {number: page.messages[0].id if page.messages else None for number, page in found.pages}

    def groups(self, queue: Queue, *, start: str, limit: int) -> Future[Sequence[str]]:
        """Groups by name, starting with ``start``."""
        return self._store.list_groups(queue.uuid, start=start, limit=limit)

    def forget(self, queue: Queue, group: str) -> Future[None]:
        """Forget a group and its generations."""
        return self._store.forget_group(queue.uuid, group)
