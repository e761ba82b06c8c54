"""The Cassandra store is a store: the whole suite, on a real node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from queuey.clock import ManualClock
from queuey.ids import IdGenerator
from queuey.model import Location
from queuey.storage.cassandra.bucket_counts import COUNTED_AGAIN_SECONDS
from queuey.storage.cassandra.session import CassandraSession
from queuey.storage.contract import MessageStoreContract, MetadataStoreContract
from queuey.storage.contract.common import QueueLog, done, draft
from tests.support.cassandra_stores import CassandraStores, messages_of


class TestCassandraMessages(MessageStoreContract):
    histories = 5

    @pytest.fixture
    def stores(self, session: CassandraSession, clock: ManualClock, ids: IdGenerator) -> Iterator[CassandraStores]:
        stores = CassandraStores(session, clock, ids)
        yield stores
        stores.close()

    def test_an_old_bucket_is_counted_once_and_changes_of_other_servers_show_within_a_minute(
        self, log: QueueLog, session: CassandraSession, clock: ManualClock, ids: IdGenerator, stores: CassandraStores
    ) -> None:
        """``inspect`` states this bound. Deletions and overwrites by this server, and what expires, show at once."""
        bodies = (b"a", b"bb", b"ccc", b"dddd", b"eeeee")
        ids_there = [log.append(draft(body, ttl_seconds=2_000_000)).placed[0].id for body in bodies]
        log.append(draft(b"short", ttl_seconds=1_000_030))
        clock.advance(1_000_000)
        assert log.inspect(1)[0] == (6, 0, ids_there[0], log.read().messages[-1].id, 20)
        log.delete((1, ids_there[1]))
        assert log.inspect(1)[0][::4] == (5, 18)
        log.put((1, ids_there[2]), body=b"longer", ttl_seconds=2_000_000)
        assert log.inspect(1)[0][::4] == (5, 21)

        other = messages_of(session, clock, ids)
        done(other.delete(log.queue, [Location(1, ids_there[0])]))
        assert log.inspect(1)[0][::4] == (5, 21)
        log.add(b"new")
        assert log.inspect(1)[0][::4] == (6, 24)
        clock.advance(31)
        assert log.inspect(1)[0][::4] == (4, 18)
        done(other.delete(log.queue, [Location(1, ids_there[3])]))
        assert log.inspect(1)[0][::4] == (4, 18)
        clock.advance(COUNTED_AGAIN_SECONDS)
        assert log.inspect(1)[0][::4] == (3, 14)
        other.close()


class TestCassandraMetadata(MetadataStoreContract):
    histories = 4

    @pytest.fixture
    def stores(self, session: CassandraSession, clock: ManualClock, ids: IdGenerator) -> Iterator[CassandraStores]:
        for name in ("queues", "names", "removals", "app_keys"):
            table = f"{session.options.keyspace}.{name}"
            if session.driver.execute(f"select * from {table} limit 1").one():  # noqa: S608
                session.driver.execute(f"truncate {table}")
        stores = CassandraStores(session, clock, ids)
        yield stores
        stores.close()
