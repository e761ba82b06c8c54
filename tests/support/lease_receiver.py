"""A receiver of a lease group whose server may die at any moment."""

from __future__ import annotations

import http.client
from typing import Any

import requests

from tests.support.client import authorization
from tests.support.node import APPLICATION, Node
from tests.support.servers import FIRST_KEY

QUEUE, GROUP = "jobs", "workers"
AWAY = (requests.RequestException, http.client.HTTPException, OSError)
"""The server is away, or its answer did not come."""


class StaleResults(Exception):
    """The leases of what was to be appended had ended."""


class Receiver:
    """One receiver of a group, with a connection of its own."""

    def __init__(self, node: Node, name: str) -> None:
        self.node, self.name = node, name
        self.session = requests.Session()
        self.session.headers.update(authorization(FIRST_KEY))

    def step(self, **body: Any) -> dict[str, Any]:
        """:raises AssertionError: the server refused it; what it had not done it has not done."""
        url = f"{self.node.running.url}/v1/{APPLICATION}/{QUEUE}/leases/{GROUP}"
        answer = self.session.post(url, json={"receiver": self.name} | body, timeout=30)
        if answer.status_code == 409 and answer.json()["code"] == "StaleReceipt":
            raise StaleResults
        if answer.status_code == 503:
            raise requests.ConnectionError("the server stops or is full")
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert isinstance(found, dict)
        return found

    def receive(self, **wanted: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.step(receive=wanted)["messages"]
        return found
