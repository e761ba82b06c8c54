"""Removing an application key ends the tokens that it made, on every server of the store, within a second or so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from queuey.security.app_keys import digest_of, label_of
from tests.support import servers
from tests.support.client import Server, new_name
from tests.support.commands import done, run_in
from tests.support.on_cassandra import Delayed
from tests.support.servers import RunningServer, eventually
from tests.support.trusting import MAKES_TOKENS, asking

JOE = "bid:joe@example.org"


@dataclass(frozen=True)
class Rotating:
    """Servers on one store, and what commands need to find it."""

    several: tuple[RunningServer, ...]
    variables: dict[str, str]


@pytest.fixture
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rotating]:
    folder = tmp_path_factory.mktemp("rotating")
    with servers.shipped(folder, settings=MAKES_TOKENS) as running:
        yield Rotating((running,), {"QUEUEY_DATA": str(folder / "data")})


@pytest.fixture
def shared(delayed: Delayed) -> Rotating:
    return Rotating((delayed.first, delayed.second), delayed.variables)


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
