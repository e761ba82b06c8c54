"""How the servers of one Cassandra notify each other of new messages.

They use rows that live for a minute. Time is cut into slices, each a Cassandra partition, so that a poll reads new rows
and nothing else. A row counts from the moment its server sent it. If it was not acknowledged soon after, some servers
may miss it, and its notice is published again. So a poll reads only as far back as an acknowledged row can be late.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from struct import Struct
from uuid import UUID, uuid4

from queuey.clock import Clock
from queuey.errors import StorageUnavailable
from queuey.future import Future, start
from queuey.ids import TICKS_PER_SECOND
from queuey.model import Consistency, PartitionId
from queuey.storage import AppendNotice, Peers, ServerBeat
from queuey.storage.cassandra.link_channel import Contact
from queuey.storage.cassandra.session import CassandraSession

SLICE_SECONDS = 10
_SLICE_TICKS = SLICE_SECONDS * TICKS_PER_SECOND
LIVES_SECONDS = 60
"""The TTL of a row: long enough for each server to have polled, and no longer."""
LATE_SECONDS = 1.0
"""A notice whose row took longer is published again."""
_MOST_BACK_TICKS = 30 * TICKS_PER_SECOND
"""A server that has not polled for longer reads all of its queues anyway."""
_SEEN = 10_000
"""Rows that are known to be received already."""
_PARTITION = Struct(">16sB")


class CassandraPeers(Peers):
    """One server's view of the notices."""

    def __init__(
        self, session: CassandraSession, clock: Clock, clock_error_seconds: float, contact: Contact | None = None
    ) -> None:
        """:param contact: how other servers reach this one; None if they cannot."""
        self._session = session
        self._clock = clock
        self._server = uuid4() if contact is None else contact.server
        self._reached_at = (None, None, None) if contact is None else contact[1:]
        self._back_ticks = round((LATE_SECONDS + 2 * clock_error_seconds) * TICKS_PER_SECOND)
        self._heard_ticks = clock.now_ticks()
        self._seen: OrderedDict[tuple[UUID, int], None] = OrderedDict()

    def publish(self, notice: AppendNotice) -> Future[None]:
        return start(self._publish(notice))

    async def _publish(self, notice: AppendNotice) -> None:
        at, sent = self._clock.now_ticks(), self._clock.elapsed()
        partitions = (
            None if notice.partitions is None else b"".join([_PARTITION.pack(q.bytes, n) for q, n in notice.partitions])
        )
        row = (at // _SLICE_TICKS, at, self._server, notice.newest_ticks, partitions, LIVES_SECONDS)
        await self._session.tell("notice_publish", row, self._session.to_write(Consistency.STRONG))
        if self._clock.elapsed() - sent > LATE_SECONDS:
            raise StorageUnavailable("a notice of new messages took too long to reach all servers")

    def poll(self) -> Future[Sequence[AppendNotice]]:
        return start(self._poll())

    async def _poll(self) -> Sequence[AppendNotice]:
        now = self._clock.now_ticks()
        since = now - self._heard_ticks
        # A clock that was set back says nothing of when this server has polled last.
        heard = self._heard_ticks if 0 <= since <= _MOST_BACK_TICKS else now - _MOST_BACK_TICKS
        after, upto = heard - self._back_ticks, now + self._back_ticks
        level = self._session.to_read(Consistency.STRONG)
        slices = range(after // _SLICE_TICKS, upto // _SLICE_TICKS + 1)
        asked = [self._session.ask("notice_poll", (number, after), level) for number in slices]
        rows = [row for future in asked for row in await future]
        self._heard_ticks = now
        return [
            AppendNotice(_partitions(partitions), newest)
            for at, server, newest, partitions in rows
            if self._is_new(server, at)
        ]

    def beat(self, beat: ServerBeat) -> Future[None]:
        return start(self._beat(beat))

    async def _beat(self, beat: ServerBeat) -> None:
        row = (self._server, *self._reached_at, self._session.options.data_centre, *beat, LIVES_SECONDS)
        await self._session.tell("server_beat", row, self._session.to_write(Consistency.WEAK))

    def servers(self) -> Future[Sequence[ServerBeat]]:
        return start(self._servers())

    async def _servers(self) -> Sequence[ServerBeat]:
        rows = await self._session.ask("server_list", (), self._session.to_read(Consistency.WEAK))
        return sorted(ServerBeat(*row) for row in rows)

    def _is_new(self, server: UUID, at: int) -> bool:
        if server == self._server or (server, at) in self._seen:
            return False
        self._seen[server, at] = None
        while len(self._seen) > _SEEN:
            self._seen.popitem(last=False)
        return True


def _partitions(packed: bytes | None) -> tuple[PartitionId, ...] | None:
    if packed is None:
        return None
    return tuple(PartitionId(UUID(bytes=queue), number) for queue, number in _PARTITION.iter_unpack(packed))
