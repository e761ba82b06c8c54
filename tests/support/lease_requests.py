"""The one operation of lease groups over HTTP, as tests ask for it."""

from __future__ import annotations

from typing import Any

import requests

from tests.support.client import Json, Server

GROUP = "workers"


def ask(server: Server, queue: str, group: str = GROUP, **body: Any) -> requests.Response:
    return server.call("POST", queue, "leases", group, json=body)


def step(server: Server, queue: str, group: str = GROUP, **body: Any) -> Json:
    answer = ask(server, queue, group, **body)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["status"] == "ok"
    assert isinstance(found, dict)
    return found


def receive(server: Server, queue: str, group: str = GROUP, **wanted: Any) -> list[Json]:
    messages = step(server, queue, group, receive=wanted)["messages"]
    assert isinstance(messages, list)
    return messages
