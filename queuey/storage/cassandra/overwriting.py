"""Stores a body in Cassandra under an id that the caller chose.

It replaces any message there, whose key stays (docs/decisions/042).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from queuey.errors import OutcomeUnknown, QueueNotFound, StorageUnavailable
from queuey.ids import TICKS_PER_SECOND
from queuey.model import Location, Overwrite, Queue
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
    expires: int
    date: int
    """Of its row, see :class:`~queuey.storage.cassandra.clock.WriteTimes`."""


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
        watermark, now = self._server.watermark(), self._server.clock.now_ticks()
        former = await self._former(queue, wanted)
        keys = new.keys_over(wanted, [there if there is not None and there.expires > now else None for there in former])
        for done, (place, key, there) in enumerate(zip(wanted, keys, former, strict=True)):
            counted = queue.partition(place.partition), Bucket.of(place.id)
            self._server.counts.forget(counted)
            try:
                await self._put_one(queue, place, new._replace(key=key), there.date if there else 0)
            except StorageUnavailable as error:
                if done:
                    raise OutcomeUnknown from error
                raise
            finally:
                self._server.counts.forget(counted)
        return any(id_.ticks <= watermark for _, id_ in wanted)

    async def _former(self, queue: Queue, wanted: Sequence[Location]) -> list[_Former | None]:
        """What lies at each place."""
        level = self._session.to_read(queue.consistency)
        asked = [
            self._session.ask("message_key", (queue.uuid, number, Bucket.of(id_).number, id_.uuid), level)
            for number, id_ in wanted
        ]
        found = [await future for future in asked]
        return [_Former(texts_of([rows[0][0]])[0], *rows[0][1:]) if rows else None for rows in found]

    async def _put_one(self, queue: Queue, place: Location, new: Overwrite, over: int) -> None:
        """Write a row, and check that it is there.

        A deletion through a server whose clock is ahead may carry a later date and hide the row.

        :param over: the date of the row that is there, or 0.
        :raises StorageUnavailable: nothing is stored.
        :raises OutcomeUnknown: the row may be stored.
        """
        session, times, id_ = self._session, self._server.times, place.id
        partition, bucket, now = queue.partition(place.partition), Bucket.of(id_), self._server.ids.watermark()
        write, read = session.to_write(queue.consistency), session.to_read(queue.consistency)
        await self._appender.mark(
            queue, partition, bucket, Mark.of(bucket.level, new.ttl_seconds, len(new.body) + len(new.headers or b""))
        )
        key = self._server.partition_key_of(partition, bucket)
        expires = max(now, id_.ticks) + new.ttl_seconds * TICKS_PER_SECOND
        over = max(over, self._server.deletions.date(partition, id_))
        for attempt in range(_TRIES):
            try:
                self._server.check_clock()  # a date is remembered, and dates later overwrites
                date = times.put(attempt, over=over)
                self._server.check_clock()
                row = RowEncoder(now, date, over=True).row(
                    key, id_, expires, new.body, beside(new.content_type, new.key, new.headers)
                )
                await session.tell_encoded("message_insert", [row], key.routing_key, write)
            except StorageUnavailable as error:
                if attempt:
                    raise OutcomeUnknown from error  # an earlier attempt has written, hidden or not
                raise
            try:
                if id_.ticks <= now:
                    await session.tell("head_forget", (times.delete(), *partition), write)
                if await session.ask("message_find", (*partition, bucket.number, id_.uuid), read):
                    if left := times.seconds_ahead(date):
                        await session.pause(left)  # from then on, a deletion that begins at any server beats it
                    return
            except StorageUnavailable as error:
                raise OutcomeUnknown from error
        raise OutcomeUnknown
