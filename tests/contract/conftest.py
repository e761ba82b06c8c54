"""What suites on the embedded store share, and those on a real Cassandra."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from queuey.storage.cassandra.cluster import Options
from queuey.storage.cassandra.schema import make_tables
from queuey.storage.cassandra.session import CassandraSession
from queuey.storage.sqlite.upkeep import Upkeep
from tests.support.services.fixtures import TIMEOUT_SECONDS, Reached


@pytest.fixture(scope="module")
def session(cassandra_node: Reached, module_keyspace: str) -> Iterator[CassandraSession]:
    """Tables of their own for a module's tests."""
    node = cassandra_node
    options = Options(
        timeout_seconds=TIMEOUT_SECONDS, hosts=node.contact_points, port=node.port, keyspace=module_keyspace
    )
    make_tables(options, "1")
    session = CassandraSession(options)
    yield session
    session.close()


@pytest.fixture
def only_the_test_tidies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The upkeep does not put messages together, nor give room back: now and then it would be there first, or at the same time."""
    monkeypatch.setattr(Upkeep, "_tidy", lambda _self: False)
