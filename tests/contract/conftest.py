"""What suites on the embedded store share, and those on a real Cassandra."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from queuey.clock import ManualClock
from queuey.ids import IdGenerator
from queuey.storage.cassandra.cluster import Options
from queuey.storage.cassandra.schema import make_tables
from queuey.storage.cassandra.session import CassandraSession
from queuey.storage.sqlite import SqliteStores
from queuey.storage.sqlite.upkeep import Upkeep
from tests.support.lease_servers import LeaseServer, LeaseServers, servers_over
from tests.support.opened_leases import Opened
from tests.support.services.fixtures import TIMEOUT_SECONDS, Keyspaces, Reached
from tests.support.turning_loop import turning_loop
from tests.support.unsure_sessions import Unsure


@pytest.fixture(scope="session")
def tables(cassandra_node: Reached, keyspaces: Keyspaces) -> Iterator[Options]:
    """A keyspace for all these tests: they differ by queue, those of metadata empty its tables."""
    node = cassandra_node
    with keyspaces() as name:
        options = Options(timeout_seconds=TIMEOUT_SECONDS, hosts=node.contact_points, port=node.port, keyspace=name)
        make_tables(options, "1")
        yield options


@pytest.fixture(scope="package")
def session(tables: Options) -> Iterator[CassandraSession]:
    session = CassandraSession(tables)
    yield session
    session.close()


@pytest.fixture
def unsure(session: CassandraSession) -> Iterator[Unsure]:
    unsure = Unsure(session.options)
    yield unsure
    unsure.close()


@pytest.fixture
def lease_servers(session: CassandraSession) -> Iterator[LeaseServers]:
    """Servers over one keyspace, with one clock and on one event loop."""
    with servers_over(session) as servers:
        yield servers


@pytest.fixture
def first(lease_servers: LeaseServers) -> LeaseServer:
    return lease_servers.another()


@pytest.fixture
def second(lease_servers: LeaseServers) -> LeaseServer:
    return lease_servers.another()


@pytest.fixture
def only_the_test_tidies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The upkeep does not put messages together, nor give room back: now and then it would be there first, or at the same time."""
    monkeypatch.setattr(Upkeep, "_tidy", lambda _self: False)


@pytest.fixture
def reopen(tmp_path: Path, clock: ManualClock) -> Iterator[Callable[[], SqliteStores]]:
    """Close the store, if it is open, and open it as a new process would: with a generator that knows nothing."""
    opened: list[SqliteStores] = []

    def reopen() -> SqliteStores:
        for stores in opened:
            stores.close()
        opened.append(SqliteStores(tmp_path / "queuey.db", clock, IdGenerator(clock)))
        return opened[-1]

    yield reopen
    for stores in opened:
        stores.close()


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """Leases in a file, opened by a loop whose turns the test makes."""
    with turning_loop() as inbox:
        opened = Opened(tmp_path / "queuey.db", ManualClock(), inbox)
        yield opened
        opened.stores.close()
