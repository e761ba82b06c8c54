"""Servers that hand messages out over one keyspace, with a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from queuey.clock import ManualClock
from queuey.errors import OutcomeUnknown, StorageUnavailable
from queuey.future import LoopInbox
from queuey.ids import IdGenerator
from queuey.model import AppendRequest, Draft
from queuey.model.lease_steps import GroupStep
from queuey.storage.cassandra import Timing, lease_carrying
from queuey.storage.cassandra.session import CassandraSession
from queuey.storage.contract import LeaseHistory
from queuey.storage.contract.common import QueueLog, draft
from queuey.storage.contract.lease_receiver import Receiver, settle_of
from tests.support.cassandra_stores import CassandraStores
from tests.support.servers import eventually
from tests.support.turning_loop import in_turn, turning_loop

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


class SharedHistory(LeaseHistory):
    """A restart goes on at another server. A server whose clock is stepped refuses, so no clock is."""

    def __init__(self, servers: Sequence[LeaseServer], reopen: Callable[[], None]) -> None:
        """:param servers: the first one is used."""
        super().__init__(lambda: servers[0].stores, servers[0].clock, partial(self._go_on, reopen))
        self._servers = [*servers]

    def _go_on(self, reopen: Callable[[], None]) -> None:
        """An overwrite may be dated ahead. Its server waits for so long, and the clock of the test does not go on meanwhile."""
        self.clock.advance(2.0)
        reopen()

    def step_clock(self, seconds: int = 0) -> None:
        """No rule here."""

    def deleted(self) -> None:
        """No server hands out what it read before, as after a second: the clock of the test does not count it."""
        for server in self._servers:
            server.leases._server.changed.note([self.queue.partition(number) for number in (1, 2)])


@dataclass
class LeaseServers:
    """They are made as they are asked for, and closed in the end."""

    session: CassandraSession
    clock: ManualClock
    ids: IdGenerator
    inbox: LoopInbox
    """Of the loop that carries out what they do."""

    def __post_init__(self) -> None:
        self.made: list[LeaseServer] = []

    def another(self, **how: Any) -> LeaseServer:
        given: dict[str, Any] = {"session": self.session, "clock": self.clock, "ids": self.ids} | how
        self.made.append(LeaseServer(**given))
        self.made[-1].leases.use_loop(self.inbox)
        return self.made[-1]

    def close(self) -> None:
        for server in self.made:
            in_turn(self.inbox, partial(server.leases.use_loop, None))
            close(server.stores)


@contextmanager
def servers_over(session: CassandraSession) -> Iterator[LeaseServers]:
    """Servers with one clock, on one event loop."""
    clock = ManualClock()
    with turning_loop() as inbox:
        in_turn(inbox, lambda: session.cluster.loop.use(inbox))
        servers = LeaseServers(session, clock, IdGenerator(clock), inbox)
        try:
            yield servers
        finally:
            in_turn(inbox, lambda: session.cluster.loop.use(None))
            servers.close()


@contextmanager
def one_transaction(server: LeaseServer, group: GroupStep) -> Iterator[None]:
    """Steps of a group that begin in this block share a transaction, which begins at its end."""
    line = server.leases._line(group.queue.uuid, group.name)
    assert eventually(lambda: line.is_idle, seconds=30)
    line._is_served = True
    yield
    line._begin()


def rows_of(session: CassandraSession, log: QueueLog, where: str = "") -> int:
    """Rows of the states of a queue's group."""
    text = f"select kind from {session.options.keyspace}.lease_states where queue = %s and name = 'workers' {where}"  # noqa: S608
    return sum(kind is not None for (kind,) in session.driver.execute(text, (log.queue.uuid,)))


def refuses(*_: object) -> Any:
    """In place of a call that a server does not get to."""
    raise StorageUnavailable


def leave_a_parcel(
    dies: LeaseServer, results: QueueLog, monkeypatch: pytest.MonkeyPatch, *drafts: Draft, **settings: Any
) -> None:
    """Settle the only message, and die before what this appends is appended."""
    dies.log.add(b"0")
    here = dies.jobs(**settings)
    (handed,) = here.receive()
    monkeypatch.setattr(lease_carrying, "CARRIED_AGAIN_SECONDS", ())
    for name in ("append", "carry", "carry_last"):
        monkeypatch.setattr(dies.leases._means.carrier, name, refuses)
    with pytest.raises(OutcomeUnknown):
        here.step({1: [settle_of(handed)]}, appends=[AppendRequest(results.queue, drafts or [draft(b"result")])])
    assert results.bodies() == []
