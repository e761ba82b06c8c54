"""The Cassandra store is a store: the whole suite, on a real node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from queuey.clock import ManualClock
from queuey.ids import IdGenerator
from queuey.storage.cassandra.session import CassandraSession
from queuey.storage.contract import MessageStoreContract, MetadataStoreContract
from tests.support.cassandra_stores import CassandraStores


class TestCassandraMessages(MessageStoreContract):
    histories = 8

    @pytest.fixture
    def stores(self, session: CassandraSession, clock: ManualClock, ids: IdGenerator) -> Iterator[CassandraStores]:
        stores = CassandraStores(session, clock, ids)
        yield stores
        stores.close()


class TestCassandraMetadata(MetadataStoreContract):
    histories = 6

    @pytest.fixture
    def stores(self, session: CassandraSession, clock: ManualClock, ids: IdGenerator) -> Iterator[CassandraStores]:
        for table in ("queues", "names", "removals", "app_keys"):
            session.driver.execute(f"truncate {session.options.keyspace}.{table}")
        stores = CassandraStores(session, clock, ids)
        yield stores
        stores.close()
