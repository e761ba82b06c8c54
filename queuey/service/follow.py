"""A live reader's way through the partitions of its queues: page after page, each message once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from queuey.ids import ZERO_ID, MessageId
from queuey.model import Message, PartitionId, Queue, Span
from queuey.service.log import Log, QueueRead
from queuey.service.turns import Turns

PAGE_ROWS = 100
PAGE_BYTES = 32 << 10
"""Bodies of one page of a live reader; one message comes in any case."""
FEW = 4
"""Partitions that are read together whenever one of them has news."""
MOST_APART = 8
"""Partitions whose positions are told one by one, before all are read once to have one position for all."""


class Progress:
    """How far a reader has got: everywhere up to ``base``, but for some partitions apart from it."""

    __slots__ = ("apart", "base")

    def __init__(self, base: MessageId = ZERO_ID, apart: Mapping[PartitionId, MessageId] | None = None) -> None:
        self.base = base
        self.apart = dict(apart or {})

    def at(self, partition: PartitionId) -> MessageId:
        """The last id that was read of a partition."""
        return self.apart.get(partition, self.base)

    def set(self, partition: PartitionId, message_id: MessageId) -> None:
        """One partition was read up to here."""
        self.apart[partition] = message_id

    def complete(self, upto: MessageId) -> None:
        """All partitions were read up to here."""
        self.base = max(self.base, upto)
        self.apart = {partition: at for partition, at in self.apart.items() if at > self.base}


class Found(NamedTuple):
    """Messages of one partition, in order."""

    queue: Queue
    number: int
    messages: Sequence[Message]
    size: int


class Follower:
    """Reads in rounds: a round ends where the watermark was when it began."""

    __slots__ = (
        "_columns",
        "_left",
        "_log",
        "_turns",
        "_upto",
        "_whole",
        "partitions",
        "progress",
        "queues",
        "watermark",
    )

    def __init__(self, log: Log, progress: Progress, *, with_bodies: bool = True, skip_corrupt: bool = False) -> None:
        self.progress = progress
        self.queues: dict[str, Queue] = {}
        """What is followed, by name."""
        self.partitions: dict[PartitionId, Queue] = {}
        self.watermark = 0
        """Of the last round."""
        self._log = log
        self._columns = with_bodies, skip_corrupt
        self._turns = Turns()
        self._left: list[PartitionId] = []
        self._upto = ZERO_ID
        self._whole = False

    def add(self, queue: Queue, numbers: Iterable[int]) -> None:
        """Follow these partitions of a queue, or take over its settings."""
        self.queues[queue.name] = queue
        self.partitions |= {queue.partition(number): queue for number in numbers if number <= queue.partitions}

    def begin_at_zero(self, partition: PartitionId) -> None:
        """A partition is new: all of it is still to be read."""
        self.progress.set(partition, ZERO_ID)

    def drop(self, queue: Queue) -> None:
        """Follow a queue no longer."""
        del self.queues[queue.name]
        self.partitions = {partition: of for partition, of in self.partitions.items() if partition.queue != queue.uuid}
        self._left = [partition for partition in self._left if partition.queue != queue.uuid]
        apart = self.progress.apart
        self.progress.apart = {partition: at for partition, at in apart.items() if partition.queue != queue.uuid}

    def begin(self, news: Iterable[PartitionId] | None) -> None:
        """Begin a round.

        :param news: where something may have come; None looks everywhere.
        :raises ClockUnsafe: as of :meth:`Log.watermark`.
        """
        some = None if news is None else [partition for partition in news if partition in self.partitions]
        if some == [] or not self.partitions:
            return
        self.watermark = self._log.watermark(next(iter(self.partitions.values())))
        self._upto = MessageId.last_of(self.watermark)
        self._whole = some is None or len(self.partitions) <= FEW or len(self.progress.apart) > MOST_APART
        self._left = list(self.partitions) if self._whole or some is None else some

    @property
    def reads(self) -> bool:
        """Whether something of the round may be left to read."""
        return bool(self._left)

    def put_back(self, found: Found) -> None:
        """A page was not handed on: it is read again."""
        partition = found.queue.partition(found.number)
        if partition not in self._left[-1:]:
            self._left.append(partition)

    async def read(self) -> Found | None:
        """The next page of the round, or None when it is over. :attr:`progress` is moved by who hands the page on."""
        with_bodies, skip_corrupt = self._columns
        while self._left:
            partition = self._left[-1]
            queue = self.partitions[partition]
            span = Span(self.progress.at(partition), self._upto)
            request = QueueRead(
                [(partition.number, span)],
                PAGE_ROWS,
                max_bytes=PAGE_BYTES,
                with_bodies=with_bodies,
                skip_corrupt=skip_corrupt,
            )
            answer = await self._log.read(queue, request, self._turns)
            ((_, page),) = answer.pages
            if not page.more and self._left and self._left[-1] == partition:
                self._left.pop()
            if page.messages:
                return Found(queue, partition.number, page.messages, answer.size)
        if self._whole:
            self._whole = False
            if len(self.partitions) > 1:  # one alone keeps the last id it has, which needs no watermark to be right
                self.progress.complete(self._upto)
        return None
