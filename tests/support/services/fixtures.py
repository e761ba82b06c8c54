"""pytest fixtures: one Cassandra node and one ZooKeeper server for a whole run, shared by its workers.

The first test that asks for one starts it, which takes 5 s; with pytest-xdist all workers use the same. It ends with
the last worker, or when they are killed. ``SERVICES_CASSANDRA=127.0.0.1:9042`` and ``SERVICES_ZOOKEEPER=127.0.0.1:2181``
in the environment name services that run already, for instance those of ``python -m tests.support.services up``.

Tests that pause or kill nodes take ``cassandra_cluster``, or make a service of their own: ``with
Cassandra(tmp_path / "cassandra") as cassandra``.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.support.services.cassandra import Cassandra, session
from tests.support.services.service import Service
from tests.support.services.shared import shared
from tests.support.services.zookeeper import ZooKeeper

TIMEOUT_SECONDS = 60.0
"""How long a store may wait for the shared node: longer than a busy machine takes."""
HEAP_MB = 768
"""Of the shared node: the keyspaces of a whole run have some 350 tables."""
Keyspaces = Callable[[], AbstractContextManager[str]]


@dataclass(frozen=True)
class Reached:
    """A service that a test may use and must leave running."""

    address: str
    port: int
    goes_on: bool = True
    """After the run."""

    @property
    def contact_points(self) -> list[str]:
        return [self.address]

    @property
    def hosts(self) -> str:
        """As ZooKeeper's clients take it."""
        return f"{self.address}:{self.port}"


@pytest.fixture(scope="session")
def cassandra_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reached]:
    """One Cassandra node, which acknowledges what is on disk (commit log: batch), and takes its time for it."""
    with _reached(
        "cassandra", tmp_path_factory, partial(Cassandra, brittle=True, patient=True, heap_mb=HEAP_MB)
    ) as reached:
        yield reached


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reached]:
    """One ZooKeeper server."""
    with _reached("zookeeper", tmp_path_factory, ZooKeeper) as reached:
        yield reached


@pytest.fixture(scope="session")
def three_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cassandra]:
    """Use ``cassandra_cluster``."""
    with Cassandra(tmp_path_factory.mktemp("three") / "cassandra", nodes=3, proxied=True) as cassandra:
        yield cassandra


@pytest.fixture
def cassandra_cluster(three_nodes: Cassandra) -> Iterator[Cassandra]:
    """Three Cassandra nodes, each behind a proxy: to be broken by a test, and mended afterwards.

    Each worker has its own. They take half a minute to start and 2 GB, so these tests are marked ``long``.
    """
    yield three_nodes
    three_nodes.mend()


@pytest.fixture(scope="session")
def keyspaces(cassandra_node: Reached) -> Keyspaces:
    """``with keyspaces() as name``: a name that no other test has.

    A keyspace with its tables takes a second of a processor, and as much to drop: share one where tests can be told
    apart by queue. What was made is dropped of a node that goes on after the run; of another it goes with the node.
    """

    @contextmanager
    def keyspace() -> Iterator[str]:
        name = f"t_{secrets.token_hex(6)}"
        try:
            yield name
        finally:
            if cassandra_node.goes_on:
                drop(cassandra_node, name)

    return keyspace


@pytest.fixture
def keyspace(keyspaces: Keyspaces) -> Iterator[str]:
    """The name of a keyspace for one test."""
    with keyspaces() as name:
        yield name


@pytest.fixture(scope="module")
def module_keyspace(keyspaces: Keyspaces) -> Iterator[str]:
    """The name of a keyspace for all tests of a module."""
    with keyspaces() as name:
        yield name


def drop(reached: Reached, keyspace: str) -> None:
    """Remove a keyspace, if somebody made it.

    By a connection of its own: an idle one has threads, which draw random numbers while hypothesis looks that nobody does.
    """
    with session(reached.address, reached.port) as node:
        node.execute(f"DROP KEYSPACE IF EXISTS {keyspace}", timeout=60)


@contextmanager
def _reached(kind: str, folders: pytest.TempPathFactory, make: Callable[[Path], Service]) -> Iterator[Reached]:
    named = os.environ.get(f"SERVICES_{kind.upper()}")
    if named:
        address, _, port = named.partition(":")
        yield Reached(address, int(port))
        return
    with shared(_folder_of_the_run(folders) / kind, make) as service:
        yield Reached(service.reached_at[0], service.port, goes_on=False)


def _folder_of_the_run(folders: pytest.TempPathFactory) -> Path:
    """With pytest-xdist each worker has a folder of its own below that of the run."""
    mine = folders.getbasetemp()
    return mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine
