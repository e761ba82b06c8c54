"""The Cassandra store is a store: the whole suite, on a real node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from queuey.clock import ManualClock
from queuey.ids import IdGenerator
from queuey.storage.cassandra.messages import CassandraMessages, Timing
from queuey.storage.cassandra.metadata import CassandraMetadata
from queuey.storage.cassandra.session import CassandraSession
from queuey.storage.contract import MessageStoreContract, MetadataStoreContract


class TestCassandraMessages(MessageStoreContract):
    histories = 8

    @pytest.fixture
    def store(self, session: CassandraSession, clock: ManualClock, ids: IdGenerator) -> Iterator[CassandraMessages]:
        store = CassandraMessages(session, clock, ids, timing=Timing(), guard=None)
        yield store
        store.close()


class TestCassandraMetadata(MetadataStoreContract):
    histories = 6

    @pytest.fixture
    def store(self, session: CassandraSession, clock: ManualClock) -> Iterator[CassandraMetadata]:
        for table in ("queues", "names", "removals", "app_keys"):
            session.driver.execute(f"truncate {session.options.keyspace}.{table}")
        store = CassandraMetadata(session, clock, trusted_seconds=0.0, settle_seconds=0.0)
        yield store
        store.close()
