"""The doors, started once per run, and what a test sees of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.support import on_cassandra, servers
from tests.support.alike import Everywhere
from tests.support.client import Server
from tests.support.commands import done, run_in
from tests.support.key_site import Site, serving
from tests.support.on_cassandra import Delayed
from tests.support.servers import APPLICATIONS, Door, eventually
from tests.support.services.fixtures import Keyspaces, Reached
from tests.support.stores import STORES
from tests.support.trusting import TrustingDoor, asking, published, settings, watched


@pytest.fixture(scope="session")
def shipped_door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with servers.shipped(tmp_path_factory.mktemp("shipped")) as door:
        yield door


@pytest.fixture(scope="session")
def wsgi_door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with servers.wsgi(tmp_path_factory.mktemp("wsgi")) as door:
        yield door


@pytest.fixture(scope="session")
def cassandra_door(
    tmp_path_factory: pytest.TempPathFactory, cassandra_node: Reached, keyspaces: Keyspaces
) -> Iterator[Door]:
    folder = tmp_path_factory.mktemp("cassandra")
    with keyspaces() as name, on_cassandra.served(folder, cassandra_node, name) as door:
        yield door


@pytest.fixture(scope="session")
def delayed(
    tmp_path_factory: pytest.TempPathFactory, cassandra_node: Reached, keyspaces: Keyspaces
) -> Iterator[Delayed]:
    """Two servers over one keyspace, without any setting about time."""
    with keyspaces() as name, ExitStack() as stack:
        on_cassandra.init(cassandra_node, name)
        text = on_cassandra.settings(cassandra_node, name)
        doors = [
            stack.enter_context(servers.shipped(tmp_path_factory.mktemp(each), settings=text, name=each))
            for each in ("delayed", "second-delayed")
        ]
        yield Delayed(doors[0], doors[1], on_cassandra.variables(cassandra_node, name))


@pytest.fixture
def delayed_door(delayed: Delayed) -> Door:
    return delayed.first


@pytest.fixture
def first(delayed: Delayed) -> Iterator[Server]:
    """One of the two servers with a read delay, as the application ``queuey`` sees it."""
    with Server(delayed.first) as seen:
        yield seen


@pytest.fixture
def second(delayed: Delayed) -> Iterator[Server]:
    """The other of them."""
    with Server(delayed.second) as seen:
        yield seen


@pytest.fixture(scope="session")
def key_site() -> Iterator[Site]:
    """Where an issuer publishes its keys; also an address at which no request must ever make a server ask."""
    with serving(Site(body=published())) as site:
        yield site


@pytest.fixture(scope="session")
def trusting_shipped_door(tmp_path_factory: pytest.TempPathFactory, key_site: Site) -> Iterator[TrustingDoor]:
    folder = tmp_path_factory.mktemp("trusting-shipped")
    with watched(folder, lambda: servers.shipped(folder, settings=settings(folder, key_site))) as door:
        yield door


@pytest.fixture(scope="session")
def trusting_cassandra_door(
    tmp_path_factory: pytest.TempPathFactory, key_site: Site, cassandra_node: Reached, keyspaces: Keyspaces
) -> Iterator[TrustingDoor]:
    folder = tmp_path_factory.mktemp("trusting-cassandra")
    with keyspaces() as name:
        trusting = settings(folder, key_site)
        with watched(folder, lambda: on_cassandra.served(folder, cassandra_node, name, rest=trusting)) as door:
            yield door


@pytest.fixture(params=STORES)
def trusting_door(request: pytest.FixtureRequest) -> TrustingDoor:
    """As ``door``, of servers that trust issuers and their own tokens."""
    found = request.getfixturevalue(f"trusting_{request.param}_door")
    assert isinstance(found, TrustingDoor)
    return found


@pytest.fixture(scope="session")
def operators() -> dict[str, str]:
    """The operator's key at each server that has one by now."""
    return {}


@pytest.fixture
def operator(trusting_door: TrustingDoor, operators: dict[str, str]) -> str:
    """An operator's key, made beside the server and in force there."""
    door = trusting_door
    if door.url not in operators:
        environment = {"QUEUEY_CONFIG": str(door.watched.parent / "queuey.ini")}
        key = done(run_in(environment, None, "key", "new", "--operator", "root")).text.strip()
        with asking(door, f"Application {key}") as server:
            eventually(lambda: server.request("GET", "/v1").status_code == 200)
        operators[door.url] = key
    return operators[door.url]


@pytest.fixture(params=STORES)
def door(request: pytest.FixtureRequest) -> Door:
    """The shipped server: each test that asks for it runs once per store."""
    found = request.getfixturevalue(f"{request.param}_door")
    assert isinstance(found, Door)
    return found


@pytest.fixture
def server(door: Door) -> Iterator[Server]:
    """A door as the application ``queuey`` sees it."""
    with Server(door) as seen:
        yield seen


@pytest.fixture
def other(door: Door) -> Iterator[Server]:
    """The same door as another application sees it, on its own path."""
    with Server(door, "other") as seen:
        yield seen


@pytest.fixture
def anonymous(door: Door) -> Iterator[Server]:
    """The same door, the path of ``queuey``, no credentials."""
    with Server(door, key=None) as seen:
        yield seen


@pytest.fixture(scope="session")
def next_fresh() -> Callable[[], str]:
    """Names of applications that have no queue yet."""
    names = iter([name for name in APPLICATIONS if name.startswith("fresh-")])
    return lambda: next(names)


@pytest.fixture
def fresh(door: Door, next_fresh: Callable[[], str]) -> Iterator[Server]:
    """A door as an application without any queue sees it."""
    with Server(door, next_fresh()) as seen:
        yield seen


@pytest.fixture(scope="session")
def all_doors(shipped_door: Door, wsgi_door: Door, cassandra_door: Door) -> list[Door]:
    return [shipped_door, wsgi_door, cassandra_door]


@pytest.fixture
def everywhere(all_doors: list[Door]) -> Iterator[Everywhere]:
    """All doors at once: what is sent to one is sent to the others, and the answers must be one."""
    with ExitStack() as stack:
        yield Everywhere([stack.enter_context(Server(door, "mirror")) for door in all_doors])


@pytest.fixture
def everywhere_fresh(all_doors: list[Door], next_fresh: Callable[[], str]) -> Iterator[Everywhere]:
    """As ``everywhere``, for an application that has no queue at any door."""
    application = next_fresh()
    with ExitStack() as stack:
        yield Everywhere([stack.enter_context(Server(door, application)) for door in all_doors])
