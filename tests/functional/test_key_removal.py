"""Removing an application key ends the tokens that it made, on every server of the store, within a second or so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import pytest

from queuey.security.app_keys import digest_of, label_of
from tests.support import on_cassandra, servers
from tests.support.client import Server, new_name
from tests.support.commands import done, run_in
from tests.support.servers import RunningServer, eventually
from tests.support.services.fixtures import Keyspaces, Reached
from tests.support.trusting import TOKEN_KEY, asking

JOE = "bid:joe@example.org"
TOKENS = f"[tokens]\nkeys = {TOKEN_KEY}\n"


@dataclass(frozen=True)
class Rotating:
    """Servers on one store, and what commands need to find it."""

    several: tuple[RunningServer, ...]
    variables: dict[str, str]


@pytest.fixture
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rotating]:
    folder = tmp_path_factory.mktemp("rotating")
    with servers.shipped(folder, settings=TOKENS) as running:
        yield Rotating((running,), {"QUEUEY_DATA": str(folder / "data")})


@pytest.fixture
def shared(
    tmp_path_factory: pytest.TempPathFactory, cassandra_node: Reached, keyspaces: Keyspaces
) -> Iterator[Rotating]:
    with keyspaces() as name, ExitStack() as stack:
        on_cassandra.init(cassandra_node, name)
        text = on_cassandra.settings(cassandra_node, name, rest=TOKENS)
        several = tuple(
            stack.enter_context(servers.shipped(tmp_path_factory.mktemp(each), settings=text, name=each))
            for each in ("rotating", "second-rotating")
        )
        yield Rotating(several, on_cassandra.variables(cassandra_node, name))


def key_of(rotating: Rotating) -> str:
    return done(run_in(rotating.variables, None, "key", "new", "app")).text.strip()


def token(server: Server, **fields: str) -> str:
    answer = server.request("POST", "/tokens/app", data=fields)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


def statuses(rotating: Rotating, texts: list[str], queue: str) -> list[set[int]]:
    """What each token gets, from all servers."""
    found = []
    for text in texts:
        seen = set()
        for running in rotating.several:
            with asking(running, f"Bearer {text}", "app") as caller:
                seen.add(caller.get(queue).status_code)
        found.append(seen)
    return found


def make_queue(running: RunningServer, key: str, queue: str) -> bool:
    """Whether a key is in force by now, and the queue is there."""
    with Server(running, "app", key) as server:
        return server.create(queue, principles=f"{JOE},app:app").status_code == 201


@pytest.mark.parametrize("way", ["embedded", "shared"])
def test_tokens_end_with_the_key_that_they_were_got_with(request: pytest.FixtureRequest, way: str) -> None:
    """A rotation with two live keys: what the former one bought goes with it, what the new one bought stays."""
    rotating: Rotating = request.getfixturevalue(way)
    former, new = key_of(rotating), key_of(rotating)
    texts, queue = list[str](), new_name()
    for key in (former, new):
        eventually(partial(make_queue, rotating.several[0], key, queue))
        with Server(rotating.several[0], "app", key) as server:
            texts += [token(server), token(server, principal=JOE, verbs="read")]
    eventually(lambda: statuses(rotating, texts, queue) == [{200}] * 4)

    done(run_in(rotating.variables, None, "key", "rm", "app", label_of(digest_of(former)), "--yes"))

    eventually(lambda: statuses(rotating, texts, queue) == [{401}, {401}, {200}, {200}])
