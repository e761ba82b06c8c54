"""Tasks in Cassandra: the suite, and messages that go once they are settled."""

from __future__ import annotations

import random
from collections.abc import Iterator
from uuid import uuid4

import pytest

from queuey.clock import ManualClock
from queuey.ids import IdGenerator
from queuey.service import Service
from queuey.settings import load_settings
from queuey.storage.cassandra.session import CassandraSession
from queuey.storage.contract import TaskStoreContract
from tests.support.cassandra_stores import CassandraStores
from tests.support.lease_servers import AT_ONCE, close
from tests.support.retaining import GROUPS, RetainedHistory


class TestCassandraTasks(TaskStoreContract):
    @pytest.fixture
    def stores(self, session: CassandraSession, clock: ManualClock, ids: IdGenerator) -> Iterator[CassandraStores]:
        stores = CassandraStores(session, clock, ids, AT_ONCE)
        yield stores
        close(stores)

    def test_nothing_goes_that_some_group_has_not_settled(self, stores: CassandraStores, clock: ManualClock) -> None:
        service = Service(load_settings(None, {}, {}), stores, clock=clock, waiters_by_hand=True)
        history = RetainedHistory(service, f"jobs-{uuid4().hex}", random.Random(1), clock.advance)
        history.run(25, most=40)
        history.finish(*GROUPS)
        assert not history.there()
