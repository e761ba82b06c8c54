"""A lease group with a breaker pauses itself when it makes too many dead letters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from queuey.model.lease_groups import UNTIL_RESUMED
from tests.support import servers
from tests.support.client import Json, Server, refused
from tests.support.lease_requests import step


def receive(server: Server, queue: str, **more: Any) -> list[Json]:
    messages: list[Json] = step(server, queue, "g", **({"receive": {"max": 9, "visibility": 600}} | more))["messages"]
    return messages


def reject(server: Server, queue: str, *messages: Json) -> None:
    done = step(server, queue, "g", reject=[{"receipt": one["receipt"]} for one in messages])
    assert done["settled"]["rejected"] == len(messages)


def settings_of(server: Server, queue: str) -> Json:
    found: Json = server.call("GET", queue, "leases", "g").json()["settings"]
    return found


def put(server: Server, queue: str, **settings: Any) -> Json:
    answer = server.call("PUT", queue, "leases", "g", json=settings)
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()["settings"]
    return found


def tripped(server: Server) -> float:
    lines = server.request("GET", "/metrics").text.splitlines()
    name = f'queuey_lease_breakers_tripped_total{{app="{server.application}"}}'
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


@pytest.fixture
def queue(server: Server) -> str:
    name = server.queue()
    server.fill(name, *map(str, range(12)))
    put(server, name, breaker={"dead": 3, "seconds": 600})
    return name


def test_one_dead_letter_too_many_pauses_the_group_until_it_is_resumed(server: Server, queue: str) -> None:
    before = tripped(server)
    messages = receive(server, queue)
    reject(server, queue, *messages[:3])
    assert settings_of(server, queue)["paused_until"] is None
    assert len(receive(server, queue)) == 3

    reject(server, queue, messages[3])
    settings = settings_of(server, queue)
    assert settings["paused_until"] == UNTIL_RESUMED
    assert settings["paused_reason"] == "breaker: more than 3 dead letters within 600 seconds"
    server.add(queue, "more")
    assert receive(server, queue) == []
    assert tripped(server) == before + 1

    put(server, queue, paused_until=0, paused_reason="")
    assert [one["body"] for one in receive(server, queue)] == ["more"]
    reject(server, queue, *messages[4:7])
    assert settings_of(server, queue)["paused_until"] == 0, "the count began anew"
    reject(server, queue, messages[7])
    assert settings_of(server, queue)["paused_until"] == UNTIL_RESUMED


def test_letters_together_count_one_by_one_and_those_of_others_do_not(server: Server, queue: str) -> None:
    other = server.queue()
    server.fill(other, *"abcd")
    server.call("PUT", other, "leases", "g", json={"dead_letter_queue": f"{queue}-dead", "breaker": {"dead": 9}})
    reject(server, other, *receive(server, other))
    messages = receive(server, queue)
    reject(server, queue, *messages[:3])
    assert settings_of(server, queue)["paused_until"] is None
    put(server, queue, breaker="none")
    reject(server, queue, *messages[3:])
    assert settings_of(server, queue)["paused_until"] is None
    assert put(server, queue, breaker={"dead": 1})["breaker"] == {"dead": 1, "seconds": 60.0}


def test_a_count_and_a_pause_outlive_a_server(tmp_path: Path) -> None:
    with servers.shipped(tmp_path) as running, Server(running) as server:
        queue = server.queue(lease_breaker='{"dead":3}')
        server.fill(queue, *map(str, range(9)))
        messages = receive(server, queue)
        reject(server, queue, *messages[:3])
    with servers.shipped(tmp_path) as running, Server(running) as server:
        reject(server, queue, messages[3])
        assert settings_of(server, queue)["paused_until"] == UNTIL_RESUMED
    with servers.shipped(tmp_path) as running, Server(running) as server:
        server.add(queue, "more")
        assert receive(server, queue) == []
        put(server, queue, paused_until=0)
    with servers.shipped(tmp_path) as running, Server(running) as server:
        reject(server, queue, *messages[4:7])
        assert settings_of(server, queue)["paused_until"] == 0, "letters from before the pause do not count again"
        reject(server, queue, messages[7])
        assert settings_of(server, queue)["paused_until"] == UNTIL_RESUMED


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (5, "breaker"),
        ("off", "breaker"),
        ({"dead": 0}, "breaker.dead"),
        ({"dead": 1001}, "breaker.dead"),
        ({"seconds": 0}, "breaker.seconds"),
        ({"seconds": 3601}, "breaker.seconds"),
        ({"colour": 1}, "breaker.colour"),
        (None, "breaker"),
    ],
)
def test_a_wrong_breaker_is_named(server: Server, wrong: Any, field: str) -> None:
    refused(server.call("PUT", server.queue(), "leases", "g", json={"breaker": wrong}), 400, field)
