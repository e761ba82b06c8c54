"""Servers that hand messages out over one keyspace, with a clock that the test moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from queuey.clock import ManualClock
from queuey.ids import IdGenerator
from queuey.storage.cassandra import Timing
from queuey.storage.cassandra.session import CassandraSession
from queuey.storage.contract.common import QueueLog
from queuey.storage.contract.lease_receiver import Receiver
from tests.support.cassandra_stores import CassandraStores

AT_ONCE = Timing(read_delay_seconds=0.0)
"""For tests that append through one server: nobody else's messages arrive late."""


def close(stores: CassandraStores) -> None:
    stores.close()
    stores.leases.close()


class LeaseServer:
    """One server of several, with one clock for all."""

    def __init__(self, session: CassandraSession, clock: Any, ids: IdGenerator, **how: Any) -> None:
        self.clock = clock
        self.stores = CassandraStores(session, clock, ids, **{"timing": AT_ONCE} | how)
        self.leases = self.stores.leases
        self.log = QueueLog(self.stores.messages, clock)

    def jobs(self, other: LeaseServer | None = None, **settings: Any) -> Receiver:
        """A group, or the group of another server."""
        if other is not None:
            self.log.queue = other.log.queue
        return Receiver(self.leases, self.log, **settings)


@dataclass
class LeaseServers:
    """They are made as they are asked for, and closed in the end."""

    session: CassandraSession
    clock: ManualClock
    ids: IdGenerator

    def __post_init__(self) -> None:
        self.made: list[LeaseServer] = []

    def another(self, **how: Any) -> LeaseServer:
        given: dict[str, Any] = {"session": self.session, "clock": self.clock, "ids": self.ids} | how
        self.made.append(LeaseServer(**given))
        return self.made[-1]

    def close(self) -> None:
        for server in self.made:
            close(server.stores)


def rows_of(session: CassandraSession, log: QueueLog, where: str = "") -> int:
    """Rows of the states of a queue's group."""
    text = f"select kind from {session.options.keyspace}.lease_states where queue = %s and name = 'workers' {where}"  # noqa: S608
    return sum(kind is not None for (kind,) in session.driver.execute(text, (log.queue.uuid,)))
