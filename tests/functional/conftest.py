"""The two doors, started once per run, and what a test sees of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.functional import servers
from tests.functional.client import Server
from tests.functional.servers import APPLICATIONS, Door
from tests.functional.twice import Both


@pytest.fixture(scope="session")
def shipped_door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with servers.shipped(tmp_path_factory.mktemp("shipped")) as door:
        yield door


@pytest.fixture(scope="session")
def pyramid_door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with servers.pyramid(tmp_path_factory.mktemp("pyramid")) as door:
        yield door


@pytest.fixture(params=["shipped", "pyramid"])
def door(request: pytest.FixtureRequest) -> Door:
    """Each test that asks for a door runs once per door."""
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


@pytest.fixture
def both(shipped_door: Door, pyramid_door: Door) -> Iterator[Both]:
    """Both doors at once: what is sent to one is sent to the other, and the answers must be one."""
    with ExitStack() as stack:
        pair = [stack.enter_context(Server(door, "mirror")) for door in (shipped_door, pyramid_door)]
        yield Both(*pair)


@pytest.fixture
def both_fresh(shipped_door: Door, pyramid_door: Door, next_fresh: Callable[[], str]) -> Iterator[Both]:
    """As ``both``, for an application that has no queue at either door."""
    application = next_fresh()
    with ExitStack() as stack:
        pair = [stack.enter_context(Server(door, application)) for door in (shipped_door, pyramid_door)]
        yield Both(*pair)
