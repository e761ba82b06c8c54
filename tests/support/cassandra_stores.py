"""The stores of one server over a session, without what watches the nodes' clocks."""

from __future__ import annotations

from queuey.clock import Clock
from queuey.ids import IdGenerator
from queuey.storage import Stores
from queuey.storage.cassandra import (
    CassandraLeases,
    CassandraMessages,
    CassandraMetadata,
    CassandraOffsets,
    CassandraServer,
    CassandraTasks,
    Timing,
)
from queuey.storage.cassandra.clock import ClockGuard
from queuey.storage.cassandra.links import Links
from queuey.storage.cassandra.session import CassandraSession
from queuey.storage.observing import Observer

_USUAL = Timing()


class CassandraStores(Stores):
    messages: CassandraMessages
    offsets: CassandraOffsets
    metadata: CassandraMetadata
    leases: CassandraLeases
    tasks: CassandraTasks

    def __init__(
        self,
        session: CassandraSession,
        clock: Clock,
        ids: IdGenerator,
        timing: Timing = _USUAL,
        guard: ClockGuard | None = None,
        *,
        observer: Observer | None = None,
        leases: type[CassandraLeases] = CassandraLeases,
        links: Links | None = None,
    ) -> None:
        server = CassandraServer(session, clock, ids, timing, guard, observer)
        offsets = CassandraOffsets(server)
        metadata = CassandraMetadata(session, clock, trusted_seconds=0.0, settle_seconds=0.0)
        messages = CassandraMessages(server, offsets)
        super().__init__(messages, offsets, metadata, leases(server, messages, links), CassandraTasks(server))


def messages_of(
    session: CassandraSession, clock: Clock, ids: IdGenerator, timing: Timing = _USUAL, guard: ClockGuard | None = None
) -> CassandraMessages:
    """The messages alone."""
    return CassandraStores(session, clock, ids, timing, guard).messages
