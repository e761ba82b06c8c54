"""The servers, started once per run, and what a test sees of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from qdo.client import Client
from tests.support import on_cassandra, servers
from tests.support.alike import Everywhere
from tests.support.client import Server, new_name
from tests.support.commands import Ended, done, run_in
from tests.support.key_site import Site, serving
from tests.support.on_cassandra import Delayed
from tests.support.over_asyncio import CLIENTS
from tests.support.over_asyncio import make_client as client_of
from tests.support.servers import APPLICATIONS, RunningServer, eventually
from tests.support.services.fixtures import Keyspaces, Reached
from tests.support.stores import STORES
from tests.support.trusting import MAKES_TOKENS, TrustingServer, asking, published, settings, watched


@pytest.fixture(scope="session")
def shipped_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with servers.shipped(tmp_path_factory.mktemp("shipped")) as running:
        yield running


@pytest.fixture(scope="session")
def wsgi_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with servers.wsgi(tmp_path_factory.mktemp("wsgi")) as running:
        yield running


@pytest.fixture(scope="session")
def cassandra_server(
    tmp_path_factory: pytest.TempPathFactory, cassandra_node: Reached, keyspaces: Keyspaces
) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("cassandra")
    with keyspaces() as name, on_cassandra.served(folder, cassandra_node, name) as running:
        yield running


@pytest.fixture(scope="session")
def delayed(
    tmp_path_factory: pytest.TempPathFactory, cassandra_node: Reached, keyspaces: Keyspaces
) -> Iterator[Delayed]:
    """Two servers over one keyspace, without any setting about time; they make tokens."""
    with keyspaces() as name, ExitStack() as stack:
        on_cassandra.init(cassandra_node, name)
        text = on_cassandra.settings(cassandra_node, name, rest=f"{MAKES_TOKENS}\n[sqs]\nauth = open\n")
        several = [
            stack.enter_context(servers.shipped(tmp_path_factory.mktemp(each), settings=text, name=each))
            for each in ("delayed", "second-delayed")
        ]
        yield Delayed(several[0], several[1], on_cassandra.variables(cassandra_node, name))


@pytest.fixture
def delayed_server(delayed: Delayed) -> RunningServer:
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
def trusting_shipped_server(tmp_path_factory: pytest.TempPathFactory, key_site: Site) -> Iterator[TrustingServer]:
    folder = tmp_path_factory.mktemp("trusting-shipped")
    with watched(folder, lambda: servers.shipped(folder, settings=settings(folder, key_site))) as running:
        yield running


@pytest.fixture(scope="session")
def trusting_cassandra_server(
    tmp_path_factory: pytest.TempPathFactory, key_site: Site, cassandra_node: Reached, keyspaces: Keyspaces
) -> Iterator[TrustingServer]:
    folder = tmp_path_factory.mktemp("trusting-cassandra")
    with keyspaces() as name:
        trusting = settings(folder, key_site)
        with watched(folder, lambda: on_cassandra.served(folder, cassandra_node, name, rest=trusting)) as running:
            yield running


@pytest.fixture(params=STORES)
def trusting_server(request: pytest.FixtureRequest) -> TrustingServer:
    """As ``running``, of servers that trust issuers and their own tokens."""
    found = request.getfixturevalue(f"trusting_{request.param}_server")
    assert isinstance(found, TrustingServer)
    return found


@pytest.fixture(scope="session")
def operators() -> dict[str, str]:
    """The operator's key at each server that has one by now."""
    return {}


@pytest.fixture
def operator(trusting_server: TrustingServer, operators: dict[str, str]) -> str:
    """An operator's key, made beside the server and in force there."""
    running = trusting_server
    if running.url not in operators:
        environment = {"QUEUEY_CONFIG": str(running.watched.parent / "queuey.ini")}
        key = done(run_in(environment, None, "key", "new", "--operator", "root")).text.strip()
        with asking(running, f"Application {key}") as server:
            eventually(lambda: server.request("GET", "/v1").status_code == 200)
        operators[running.url] = key
    return operators[running.url]


@pytest.fixture(params=STORES)
def running(request: pytest.FixtureRequest) -> RunningServer:
    """The shipped server: each test that asks for it runs once per store."""
    found = request.getfixturevalue(f"{request.param}_server")
    assert isinstance(found, RunningServer)
    return found


@pytest.fixture
def server(running: RunningServer) -> Iterator[Server]:
    """A server as the application ``queuey`` sees it."""
    with Server(running) as seen:
        yield seen


@pytest.fixture
def seen(shipped_server: RunningServer) -> Iterator[Server]:
    """The shipped server alone, for tests of what is in front of it: clients, commands and workers."""
    with Server(shipped_server) as found:
        yield found


@pytest.fixture(params=CLIENTS)
def client(seen: Server, request: pytest.FixtureRequest) -> Iterator[Client]:
    """Each client of the project, in turn."""
    with client_of(request.param, seen.url, seen.application, seen.key) as found:
        yield found


@pytest.fixture
def queue(client: Client) -> str:
    return client.create_queue(new_name(), partitions=3).name


@pytest.fixture
def make_client(seen: Server) -> Callable[[], Client]:
    """As a worker takes it."""
    return lambda: Client(seen.url, seen.application, seen.key)


@pytest.fixture
def environment(seen: Server) -> dict[str, str]:
    """Variables by which a command finds the shipped server."""
    assert seen.key is not None
    return {"QUEUEY_URL": seen.url, "QUEUEY_APPLICATION": seen.application, "QUEUEY_KEY": seen.key}


@pytest.fixture
def queuey(environment: dict[str, str]) -> Callable[..., Ended]:
    """Runs a command to its end."""
    return lambda *arguments, **given: run_in(environment, None, *arguments, **given)


@pytest.fixture
def careful_server(running: RunningServer, request: pytest.FixtureRequest) -> Iterator[Server]:
    """As ``server``, for a reader that reads while a write is under way: over Cassandra that needs the read delay (G3)."""
    has_no_delay = running.name.startswith("cassandra")
    with Server(request.getfixturevalue("delayed_server") if has_no_delay else running) as seen:
        yield seen


@pytest.fixture
def other(running: RunningServer) -> Iterator[Server]:
    """The same server as another application sees it, on its own path."""
    with Server(running, "other") as seen:
        yield seen


@pytest.fixture
def anonymous(running: RunningServer) -> Iterator[Server]:
    """The same server, the path of ``queuey``, no credentials."""
    with Server(running, key=None) as seen:
        yield seen


@pytest.fixture(scope="session")
def next_fresh() -> Callable[[], str]:
    """Names of applications that have no queue yet."""
    names = iter([name for name in APPLICATIONS if name.startswith("fresh-")])
    return lambda: next(names)


@pytest.fixture(scope="module")
def application(shipped_server: RunningServer, next_fresh: Callable[[], str]) -> Iterator[Server]:
    """An application of one file, which has no queue at first."""
    with Server(shipped_server, next_fresh()) as found:
        yield found


@pytest.fixture
def fresh(running: RunningServer, next_fresh: Callable[[], str]) -> Iterator[Server]:
    """A server as an application without any queue sees it."""
    with Server(running, next_fresh()) as seen:
        yield seen


@pytest.fixture(scope="session")
def all_servers(
    shipped_server: RunningServer, wsgi_server: RunningServer, cassandra_server: RunningServer
) -> list[RunningServer]:
    return [shipped_server, wsgi_server, cassandra_server]


@pytest.fixture
def everywhere(all_servers: list[RunningServer]) -> Iterator[Everywhere]:
    """All servers at once: what is sent to one is sent to the others, and the answers must be one."""
    with ExitStack() as stack:
        yield Everywhere([stack.enter_context(Server(running, "mirror")) for running in all_servers])


@pytest.fixture(scope="module")
def filled(all_servers: list[RunningServer]) -> str:
    """A queue of ``everywhere`` that is only read: three messages in its first partition, one in its second."""
    with ExitStack() as stack:
        everywhere = Everywhere([stack.enter_context(Server(running, "mirror")) for running in all_servers])
        name = everywhere.queue(partitions=2)
        everywhere.fill(name, "a", "ü", "c")
        everywhere.fill(name, "in 2", partition=2)
        return name


@pytest.fixture
def everywhere_fresh(all_servers: list[RunningServer], next_fresh: Callable[[], str]) -> Iterator[Everywhere]:
    """As ``everywhere``, for an application that has no queue at any server."""
    application = next_fresh()
    with ExitStack() as stack:
        yield Everywhere([stack.enter_context(Server(running, application)) for running in all_servers])
