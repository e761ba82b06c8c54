"""Lease groups in Cassandra: the suite, several servers, answers that get lost, and what a dead server leaves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from queuey.clock import ManualClock
from queuey.ids import IdGenerator
from queuey.storage.cassandra import Timing
from queuey.storage.cassandra.session import CassandraSession
from queuey.storage.contract import LeaseStoreContract
from tests.support.cassandra_stores import CassandraStores

AT_ONCE = Timing(read_delay_seconds=0.0)
"""For one writer: nobody else's messages arrive late."""


class TestCassandraLeases(LeaseStoreContract):
    histories = 4

    @pytest.fixture
    def stores(self, session: CassandraSession, clock: ManualClock, ids: IdGenerator) -> Iterator[CassandraStores]:
        stores = CassandraStores(session, clock, ids, AT_ONCE)
        yield stores
        stores.close()
