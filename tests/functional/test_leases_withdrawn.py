"""Attempts that end, since their receiver gave them up: they hand out nothing later."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import requests

from tests.support.client import Json, Server, refused
from tests.support.live import own_server, until_waiting
from tests.support.servers import RunningServer

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
        assert is_known(ask(server, queue, attempt="gone"))
        assert is_known(withdrawn.result(30))
        assert is_known(ask(server, queue, attempt="gone", receive=WAIT))
        server.add(queue, "a")
        assert waiting.result(30) == ["a"]
        assert is_known(ask(server, queue, attempt="stays"))
        assert received(server, queue, attempt="stays", receive=WAIT) == ["a"]
