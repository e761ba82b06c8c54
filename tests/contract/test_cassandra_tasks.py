"""Tasks in Cassandra: the suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from queuey.clock import ManualClock
from queuey.ids import IdGenerator
from queuey.storage.cassandra.session import CassandraSession
from queuey.storage.contract import TaskStoreContract
from tests.support.cassandra_stores import CassandraStores
from tests.support.lease_servers import AT_ONCE, close


class TestCassandraTasks(TaskStoreContract):
    @pytest.fixture
    def stores(self, session: CassandraSession, clock: ManualClock, ids: IdGenerator) -> Iterator[CassandraStores]:
        stores = CassandraStores(session, clock, ids, AT_ONCE)
        yield stores
        close(stores)
