"""Deletes messages in Cassandra, and notes where the remaining ones begin."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import inf
from typing import Any

from queuey.errors import OutcomeUnknown, QueueyError
from queuey.future import Future
from queuey.ids import MessageId, tail_from_low
from queuey.model import Consistency, Location, PartitionId, Queue, ReadRequest, Span, SpanRemoval
from queuey.storage.cassandra.bucket_scan import Walk
from queuey.storage.cassandra.buckets import Bucket
from queuey.storage.cassandra.pages import read_page
from queuey.storage.cassandra.server import CassandraServer

__all__ = ["Deleter", "failures_of"]

_DELETES_PER_HEAD = 1000
"""Deletes in a partition before its head is searched for: readers step over about as many tombstones at most."""
_SEARCH_SECONDS = 60.0
"""Between two searches for the head of a partition in whose reads nodes meet too many tombstones."""
_COUNTED = 10_000
"""Partitions whose deletes are counted; beyond that the count starts over."""
_FIRST_TAIL = tail_from_low(0x8080808080808080)
"""The tail of the lowest valid UUID of a tick."""


class Deleter:
    """Deletes by id.

    Two threads may lose a count, which costs readers a few tombstones.
    """

    def __init__(self, server: CassandraServer) -> None:
        self._server = server
        self._session = server.session
        self._deleted: dict[PartitionId, int] = defaultdict(int)
        self._searched: dict[PartitionId, float] = {}

    async def delete(self, queue: Queue, wanted: Sequence[Location], *, withdraws: bool = False) -> None:
        """
        :param withdraws: they are this server's own, so its clock need not be right.
        :raises ClockUnsafe: a deletion might be dated before the message, or hide one that comes later; nothing was deleted.
        :raises StorageUnavailable: nothing was deleted.
        :raises OutcomeUnknown: some messages may be deleted.
        """
        level, time = self._session.to_write(queue.consistency), self._server.times.delete()
        if not withdraws:
            self._server.check_clock()
        groups: dict[tuple[PartitionId, Bucket], list[Any]] = defaultdict(list)
        for number, id_ in dict.fromkeys(wanted):
            at = queue.partition(number), Bucket.of(id_)
            groups[at].append((time, *at[0], at[1].number, id_.uuid))
            if not withdraws:  # nobody knows the id of what is withdrawn, so nobody overwrites it
                self._server.deletions.note(at[0], [id_], time)
        for place in groups:
            self._server.counts.forget(place)
        failures = await failures_of(
            [self._session.tell_together("message_delete", rows, level) for rows in groups.values()]
        )
        for place in groups:
            self._server.counts.forget(place)
        if failures:
            unknown = len(failures) < len(groups) or any(isinstance(one, OutcomeUnknown) for one in failures)
            raise OutcomeUnknown if unknown else failures[0]
        for (partition, _), rows in groups.items():
            self._count_deleted(queue, partition, len(rows))

    async def delete_span(self, queue: Queue, number: int, span: Span, most: int) -> SpanRemoval:
        """See :meth:`queuey.storage.MessageStore.delete_span`.

        Behind the watermark no message appears any more, so a span that ends there is deleted by range: one tombstone
        in each bucket. A tombstone is dated later than now, and in front of the watermark it would hide messages that
        are appended in the meantime: there, messages are deleted one by one.
        """
        partition, consistency = queue.partition(number), queue.consistency
        is_settled = span.upto <= MessageId.last_of(self._server.watermark())
        request = ReadRequest(partition, span, most, with_bodies=False)
        page = await read_page(self._session, request, 0, self._session.to_read(consistency))
        end = page.messages[-1].id if page.more else span.upto
        if is_settled and page.messages:
            await self._delete_range(queue, partition, Span(span.after, end))
            self._count_deleted(queue, partition, len(page.messages))
        elif page.messages:
            await self.delete(queue, [Location(number, message.id) for message in page.messages])
        return SpanRemoval(len(page.messages), end)

    async def _delete_range(self, queue: Queue, partition: PartitionId, span: Span) -> None:
        level, time = self._session.to_write(queue.consistency), self._server.times.delete()
        self._server.check_clock()
        self._server.deletions.note(partition, [None], time)
        read = self._session.to_read_all(queue.consistency)
        walk = Walk(self._session, partition, span, read, newest_first=False)
        buckets: list[Bucket] = []
        while (found := await walk.next()) is not None:
            buckets.append(found[0])
        for bucket in buckets:
            self._server.counts.forget((partition, bucket))
        failures = await failures_of(
            [
                self._session.tell(
                    "messages_delete", (time, *partition, bucket.number, span.after.uuid, span.upto.uuid), level
                )
                for bucket in buckets
            ]
        )
        for bucket in buckets:
            self._server.counts.forget((partition, bucket))
        if failures:
            raise failures[0]

    def _count_deleted(self, queue: Queue, partition: PartitionId, count: int) -> None:
        """Search for the partition's head every :data:`_DELETES_PER_HEAD` deletes.

        So readers step over few tombstones.
        """
        self._deleted[partition] += count
        if self._deleted[partition] >= _DELETES_PER_HEAD:
            del self._deleted[partition]
            self._server.underway.start(self._raise_head(partition, queue.consistency))
        elif len(self._deleted) > _COUNTED:
            self._deleted.clear()

    def search_head(self, partition: PartitionId, consistency: Consistency) -> None:
        """Search for a partition's head, if that was not done a moment ago. Messages that expire leave tombstones as well."""
        now = self._server.clock.elapsed()
        if now - self._searched.get(partition, -inf) < _SEARCH_SECONDS:
            return
        if len(self._searched) > _COUNTED:
            self._searched.clear()
        self._searched[partition] = now
        self._server.underway.start(self._raise_head(partition, consistency))

    async def _raise_head(self, partition: PartitionId, consistency: Consistency) -> None:
        """Note where the first live message is.

        The note carries the time at which the search began. A put below the head clears the note with a later time, so
        the order in which the two arrive does not matter.
        """
        watermark, time = self._server.watermark(), self._server.times.append()
        upto = MessageId(watermark, _FIRST_TAIL)
        request = ReadRequest(partition, Span(upto=upto), 1, with_bodies=False)
        page = await read_page(self._session, request, 0, self._session.to_read_all(consistency))
        head = page.messages[0].id if page.messages else upto
        await self._session.tell("head_raise", (time, head.uuid, *partition), self._session.to_write(consistency))


async def failures_of(sent: Sequence[Future[Any]]) -> list[QueueyError]:
    """Wait for all of them, and collect the errors."""
    failures = []
    for future in sent:
        try:
            await future
        except QueueyError as error:
            failures.append(error)
    return failures
