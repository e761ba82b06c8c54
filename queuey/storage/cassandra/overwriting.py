"""Stores a body in Cassandra under an id that the caller chose.

It replaces any message there, whose key stays (docs/decisions/042).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from queuey.errors import OutcomeUnknown, QueueNotFound, StorageUnavailable
from queuey.ids import TICKS_PER_SECOND, MessageId
from queuey.model import Location, Overwrite, PartitionId, Queue
from queuey.storage.cassandra.appending import CassandraAppender
from queuey.storage.cassandra.buckets import Bucket, Mark
from queuey.storage.cassandra.rows import RowEncoder, texts_of
from queuey.storage.cassandra.server import CassandraServer
from queuey.storage.checksums import beside

__all__ = ["Overwriter"]

_TRIES = 3
"""Attempts of one overwrite; each carries a later date."""


class _Former(NamedTuple):
    """What is looked up of a message that is overwritten."""

    key: str | None


class Overwriter:
    """Overwrites messages by id."""

    def __init__(self, server: CassandraServer, appender: CassandraAppender) -> None:
        self._server = server
        self._session = server.session
        self._appender = appender

    async def put(self, queue: Queue, wanted: Sequence[Location], new: Overwrite) -> bool:
        """See :meth:`queuey.storage.MessageStore.put`.

        :raises OutcomeUnknown: some of it may be stored.
        """
        if queue.uuid in self._server.dropped:
            raise QueueNotFound
        watermark = self._server.watermark()
        keys = new.keys_over(wanted, await self._former(queue, wanted))
        for done, ((number, id_), key) in enumerate(zip(wanted, keys, strict=True)):
            place = queue.partition(number), Bucket.of(id_)
            self._server.counts.forget(place)
            try:
                await self._put_one(queue, queue.partition(number), id_, new._replace(key=key))
            except StorageUnavailable as error:
                if done:
                    raise OutcomeUnknown from error
                raise
            finally:
                self._server.counts.forget(place)
        return any(id_.ticks <= watermark for _, id_ in wanted)

    async def _former(self, queue: Queue, wanted: Sequence[Location]) -> list[_Former | None]:
        """What lives at each place."""
        level, now = self._session.to_read(queue.consistency), self._server.clock.now_ticks()
        asked = [
            self._session.ask("message_key", (queue.uuid, number, Bucket.of(id_).number, id_.uuid), level)
            for number, id_ in wanted
        ]
        found: list[_Former | None] = []
        for future in asked:
            alive = [key for key, expires in await future if expires > now]
            found.append(_Former(texts_of(alive)[0]) if alive else None)
        return found

    async def _put_one(self, queue: Queue, partition: PartitionId, id_: MessageId, new: Overwrite) -> None:
        """Write a row, and check that it is there.

        A deletion through a server whose clock is ahead may carry a later date and hide the row.

        :raises StorageUnavailable: nothing is stored.
        :raises OutcomeUnknown: the row may be stored.
        """
        session, times = self._session, self._server.times
        bucket, now = Bucket.of(id_), self._server.ids.watermark()
        write, read = session.to_write(queue.consistency), session.to_read(queue.consistency)
        await self._appender.mark(
            queue, partition, bucket, Mark.of(bucket.level, new.ttl_seconds, len(new.body) + len(new.headers or b""))
        )
        key = self._server.partition_key_of(partition, bucket)
        expires = max(now, id_.ticks) + new.ttl_seconds * TICKS_PER_SECOND
        for attempt in range(_TRIES):
            encoder = RowEncoder(now, times.put(attempt), over=True)
            row = encoder.row(key, id_, expires, new.body, beside(new.content_type, new.key, new.headers))
            try:
                await session.tell_encoded("message_insert", [row], key.routing_key, write)
            except StorageUnavailable as error:
                if attempt:
                    raise OutcomeUnknown from error  # an earlier attempt has written, hidden or not
                raise
            try:
                if id_.ticks <= now:
                    await session.tell("head_forget", (times.delete(), *partition), write)
                if await session.ask("message_find", (*partition, bucket.number, id_.uuid), read):
                    return
            except StorageUnavailable as error:
                raise OutcomeUnknown from error
        raise OutcomeUnknown
