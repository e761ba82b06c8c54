"""One server whose console the tests visit, and the visitors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import servers
from tests.support.client import Server
from tests.support.commands import done, run_in
from tests.support.servers import APPLICATIONS, eventually
from tests.support.visitors import OpenConsole, Visitor, signed_in

TOKEN_KEY = "c0501e" * 8


@pytest.fixture(scope="session")
def open_console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenConsole]:
    folder = tmp_path_factory.mktemp("console")
    with servers.shipped(folder, settings=f"[tokens]\nkeys = {TOKEN_KEY}\n", name="console") as running:
        yield OpenConsole(running, folder)


@pytest.fixture(scope="session")
def operator_key(open_console: OpenConsole) -> str:
    """Made beside the server, and in force there."""
    key = done(run_in(open_console.environment, None, "key", "new", "--operator", "root")).text.strip()
    with Server(open_console.running, key=key) as server:
        eventually(lambda: server.request("GET", "/v1").status_code == 200)
    return key


@pytest.fixture
def v1(open_console: OpenConsole) -> Iterator[Server]:
    """The same server as the application ``queuey`` sees it in v1."""
    with Server(open_console.running) as server:
        yield server


@pytest.fixture
def stranger(open_console: OpenConsole) -> Iterator[Visitor]:
    """Nobody is signed in."""
    with Visitor(open_console.url) as visitor:
        yield visitor


@pytest.fixture
def owner(open_console: OpenConsole) -> Iterator[Visitor]:
    with signed_in(open_console.url, APPLICATIONS["queuey"][0]) as visitor:
        yield visitor


@pytest.fixture
def neighbour(open_console: OpenConsole) -> Iterator[Visitor]:
    """Another application."""
    with signed_in(open_console.url, APPLICATIONS["other"][0]) as visitor:
        yield visitor


@pytest.fixture
def operator(open_console: OpenConsole, operator_key: str) -> Iterator[Visitor]:
    with signed_in(open_console.url, operator_key) as visitor:
        yield visitor
