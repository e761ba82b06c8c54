"""A live reader's way through its partitions: page by page, each message once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from queuey.ids import ZERO_ID, MessageId
from queuey.model import Message, PartitionId, Queue, Span
from queuey.service.log import Log, QueueRead
from queuey.service.turns import Turns

PAGE_ROWS = 100
PAGE_BYTES = 32 << 10
"""Bytes of bodies in one page of a live reader; one message comes in any case."""
FEW = 4
"""Partitions that are read together whenever one of them has news."""
MOST_APART = 8
"""Partitions with positions of their own. Beyond that, one round reads all partitions and gives them a common
position."""


class Progress:
    """How far a reader has got.

    That is ``base``, except in partitions that have a position of their own.
    """

    __slots__ = ("apart", "base")

    def __init__(self, base: MessageId = ZERO_ID, apart: Mapping[PartitionId, MessageId] | None = None) -> None:
        self.base = base
        self.apart = dict(apart or {})

    def at(self, partition: PartitionId) -> MessageId:
        """The last id that was read in a partition."""
        return self.apart.get(partition, self.base)

    def set(self, partition: PartitionId, message_id: MessageId) -> None:
        """Note that one partition was read up to here."""
        self.apart[partition] = message_id

    def complete(self, upto: MessageId) -> None:
        """Note that all partitions were read up to here."""
        self.base = max(self.base, upto)
        self.apart = {partition: at for partition, at in self.apart.items() if at > self.base}


class Found(NamedTuple):
    """Messages of one partition, in order."""

    queue: Queue
    number: int
    messages: Sequence[Message]
    size: int


class Follower:
    """Reads in rounds: a round ends at the watermark that it began with."""

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
        """Queues that are followed, by name."""
        self.partitions: dict[PartitionId, Queue] = {}
        self.watermark = 0
        """The watermark of the last round."""
        self._log = log
        self._columns = with_bodies, skip_corrupt
        self._turns = Turns()
        self._left: list[PartitionId] = []
        self._upto = ZERO_ID
        self._whole = False

    def add(self, queue: Queue, numbers: Iterable[int]) -> None:
        """Follow these partitions of a queue, or take over its changed settings."""
        self.queues[queue.name] = queue
        self.partitions |= {queue.partition(number): queue for number in numbers if number <= queue.partitions}

    def begin_at_zero(self, partition: PartitionId) -> None:
        """Read a new partition from its beginning."""
        self.progress.set(partition, ZERO_ID)

    def drop(self, queue: Queue) -> None:
        """Stop following a queue."""
        del self.queues[queue.name]
        self.partitions = {partition: of for partition, of in self.partitions.items() if partition.queue != queue.uuid}
        self._left = [partition for partition in self._left if partition.queue != queue.uuid]
        apart = self.progress.apart
        self.progress.apart = {partition: at for partition, at in apart.items() if partition.queue != queue.uuid}

    def begin(self, news: Iterable[PartitionId] | None) -> None:
        """Begin a round.

        :param news: partitions that may have new messages; None reads all.
        :raises ClockUnsafe: see :meth:`Log.watermark`.
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
        """Whether the round may have something left to read."""
        return bool(self._left)

    def put_back(self, found: Found) -> None:
        """Read a page again, since it was not delivered."""
        partition = found.queue.partition(found.number)
        if partition not in self._left[-1:]:
            self._left.append(partition)

    async def read(self) -> Found | None:
        """The next page of the round, or None when it is over.

        The caller moves :attr:`progress` when it delivers the page.
        """
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
            if len(self.partitions) > 1:  # a single one continues from its last id, which needs no trusted watermark
                self.progress.complete(self._upto)
        return None
