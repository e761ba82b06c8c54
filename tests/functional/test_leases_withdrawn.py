"""Attempts that are known already, and requests whose receiver gave them up or has gone: they hand out nothing more."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import pytest
import requests

from tests.support.client import Json, Server, authorization, refused
from tests.support.live import own_server, until_waiting
from tests.support.servers import RunningServer, eventually

shipped_server = own_server

WAIT = {"wait": 60}


def ask(server: Server, queue: str | list[str], **body: Any) -> requests.Response:
    if isinstance(queue, str):
        return server.call("POST", queue, "leases", "g", json=body)
    return server.call("POST", params={"receive": "g"}, json={"queues": queue, **body})


def received(server: Server, queue: str | list[str], **body: Any) -> list[str]:
    answer = ask(server, queue, **body)
    assert answer.status_code == 200, answer.text
    messages: list[Json] = answer.json()["messages"]
    return [one["body"] for one in messages]


def is_known(answer: requests.Response) -> bool:
    """Whether the attempt was used for another request."""
    if answer.status_code == 200:
        return False
    refused(answer, 422)
    return bool(answer.json()["code"] == "KeyReused")


def test_an_attempt_that_is_withdrawn_hands_out_nothing_later(server: Server) -> None:
    queue = server.queue()
    server.add(queue, "a")

    for _ in range(2):
        assert ask(server, queue, attempt="early").json() == {"status": "ok"}
    assert is_known(ask(server, queue, attempt="early", receive=WAIT))
    assert received(server, queue, attempt="done", receive={}) == ["a"]
    assert is_known(ask(server, queue, attempt="done"))
    assert received(server, queue, attempt="done", receive={}) == ["a"]


@pytest.mark.parametrize("first", range(4))
def test_another_body_under_an_attempt_is_refused_whatever_it_asks_for(server: Server, first: int) -> None:
    """Whether it waits or not, and whether it settles something or not."""
    queue = server.queue()
    server.fill(queue, *"abcdefghi")
    (handed,) = ask(server, queue, receive={}).json()["messages"]
    settles = {"acknowledge": [handed["receipt"]]}
    asked: list[Json] = [{"receive": {}}, {"receive": WAIT}, {**settles, "receive": {}}, {**settles, "receive": WAIT}]

    known = ask(server, queue, attempt="one", **asked[first]).json()
    others = [is_known(ask(server, queue, attempt="one", **other)) for other in asked if other is not asked[first]]

    assert others == [True, True, True]
    assert ask(server, queue, attempt="one", **asked[first]).json() == known
    assert [one["body"] for one in known["messages"]] == ["b"]


def test_an_attempt_at_several_queues_is_withdrawn(server: Server) -> None:
    queues = [server.queue(), server.queue()]
    server.add(queues[1], "a")

    assert not is_known(ask(server, queues, attempt="early"))
    assert is_known(ask(server, queues, attempt="early", receive=WAIT))
    assert received(server, queues, attempt="done", receive={}) == ["a"]
    assert is_known(ask(server, queues, attempt="done"))
    assert received(server, queues, attempt="done", receive={}) == ["a"]


def test_a_receiver_whose_attempt_is_withdrawn_waits_no_more(shipped_server: RunningServer) -> None:
    with (
        ThreadPoolExecutor(2) as threads,
        Server(shipped_server) as server,
        Server(shipped_server) as one,
        Server(shipped_server) as other,
    ):
        queue = server.queue()
        withdrawn = threads.submit(ask, one, queue, attempt="gone", receive=WAIT)
        until_waiting(server, 1)
        waiting = threads.submit(received, other, queue, attempt="stays", receive=WAIT)
        until_waiting(server, 2)
        assert not is_known(ask(server, queue, attempt="gone")), "a look that found nothing is not remembered"
        assert is_known(withdrawn.result(30))
        assert is_known(ask(server, queue, attempt="gone", receive=WAIT))
        server.add(queue, "a")
        assert waiting.result(30) == ["a"]
        assert is_known(ask(server, queue, attempt="stays"))
        assert received(server, queue, attempt="stays", receive=WAIT) == ["a"]


@pytest.mark.parametrize("how", ["while it waits", "before it waits"])
def test_a_receiver_that_goes_away_waits_no_longer_and_gets_nothing(shipped_server: RunningServer, how: str) -> None:
    """What it would pop would be lost."""
    with Server(shipped_server) as server:
        queue = server.queue()
        path = f"/v1/{server.application}/{queue}/leases/g"
        body = json.dumps({"receive": {**WAIT, "pop": True}})
        headers = {"Content-Type": "application/json", **authorization(server.key)}
        until_waiting(server, 0)
        with closing(HTTPConnection("127.0.0.1", shipped_server.port, timeout=60)) as connection:
            connection.request("POST", path, body, headers)
            if how == "while it waits":
                until_waiting(server, 1)

        if how == "before it waits":  # its group shows that it was heard
            eventually(lambda: server.call("GET", queue, "leases", "g").status_code == 200)
        until_waiting(server, 0, seconds=30)
        server.add(queue, "a")

        assert received(server, queue, receive={}) == ["a"]
