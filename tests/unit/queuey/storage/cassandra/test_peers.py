"""Notices of new messages, as one server polls them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast
from uuid import UUID

from queuey.clock import ManualClock
from queuey.future import Future
from queuey.model import Consistency
from queuey.storage.cassandra.peers import CassandraPeers
from queuey.storage.cassandra.session import CassandraSession

OTHER = UUID(int=2)
NEWEST = 5


class Notices:
    """A session with the rows of another server's notices."""

    def __init__(self) -> None:
        self.at: list[int] = []

    def to_read(self, consistency: Consistency) -> int:
        return 0

    def ask(self, name: str, values: Sequence[Any], level: int) -> Future[Any]:
        slice_, after = values
        found = [(at, OTHER, NEWEST, None) for at in self.at if at // 100_000_000 == slice_ and at > after]
        return Future.of(found)


def test_a_clock_that_was_ahead_for_a_while_hides_no_notice() -> None:
    clock, notices = ManualClock(), Notices()
    peers = CassandraPeers(cast("CassandraSession", notices), clock, 0.25)
    clock.step(3600)
    assert peers.poll().result() == []
    clock.advance(1)
    notices.at.append(clock.now_ticks() - 3600 * 10_000_000)
    clock.advance(4)
    clock.step(-3600)

    assert [notice.newest_ticks for notice in peers.poll().result()] == [NEWEST]
    assert peers.poll().result() == []
