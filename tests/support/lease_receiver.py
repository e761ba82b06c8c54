"""Receivers of a lease group whose servers may die at any moment."""

from __future__ import annotations

import http.client
import random
import time
from typing import Any

import requests

from tests.support.client import authorization
from tests.support.lease_log import HandOut, LeaseLog
from tests.support.node import APPLICATION, Node
from tests.support.servers import FIRST_KEY

QUEUE, GROUP = "jobs", "workers"
AWAY = (requests.RequestException, http.client.HTTPException, OSError)
"""The server is away, or its answer did not come."""
VISIBILITY = 1.0


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
        if answer.status_code in (503, 504):
            raise requests.ConnectionError("the server stops or is full, or does not know the outcome")
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert isinstance(found, dict)
        return found

    def receive(self, **wanted: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.step(receive=wanted)["messages"]
        return found


def fill(node: Node, number: int, queue: str = QUEUE) -> list[str]:
    """Append messages, a hundred at a time; their ids."""
    ids: list[str] = []
    for start in range(0, number, 100):
        batch = {"messages": [{"body": str(at)} for at in range(start, min(start + 100, number))]}
        answer = node.call("POST", queue, json=batch)
        assert answer.status_code == 201, answer.text
        ids += [one["key"] for one in answer.json()["messages"]]
    return ids


class Worker:
    """Receives, and acknowledges with the next receive; now and then it does nothing until its leases are over."""

    def __init__(
        self,
        node: Node,
        log: LeaseLog,
        name: str,
        chance: random.Random,
        visibility: float = VISIBILITY,
        *,
        away: float = 0.05,
    ) -> None:
        """:param away: the share of steps before which it forgets what it has, and may stand still past its leases."""
        self._receiver, self._log, self._chance = Receiver(node, name), log, chance
        self._visibility, self._away = visibility, away
        self._held: list[HandOut] = []
        self._receipts: list[str] = []

    def step(self) -> None:
        if self._held and self._chance.random() < self._away:
            self._held, self._receipts = [], []
            time.sleep(self._visibility * self._chance.random() * 1.5)
        sent, wall, held, receipts = time.monotonic(), time.time(), self._held, self._receipts
        self._held, self._receipts = [], []
        self._log.gives_back(sent, held)
        try:
            found = self._receiver.step(
                acknowledge=receipts,
                receive={"max": self._chance.randint(1, 5), "visibility": self._visibility, "wait": 0.2},
            )
        except AWAY:
            time.sleep(0.02)
            return
        answered = time.monotonic()
        if held:
            stale = {*found["settled"]["stale"]}
            fresh = [one.message for one, receipt in zip(held, receipts, strict=True) if receipt not in stale]
            self._log.took_back(answered, fresh)
        for one in found["messages"]:
            lasts = float(one["visible_at"]) - wall
            handed = HandOut(one["message_id"], self._receiver.name, sent, answered, lasts, one["deliveries"])
            self._held.append(handed)
            self._receipts.append(one["receipt"])
        self._log.note(self._held)


def hand_out_the_rest(receiver: Receiver, log: LeaseLog) -> None:
    """Receive and acknowledge what is left, once all faults and leases are over."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        sent = time.monotonic()
        try:
            found = receiver.receive(max=100, visibility=100, wait=3)
            if not found:
                return
            answered = time.monotonic()
            log.note([HandOut(one["message_id"], "last", sent, answered, 0.0, one["deliveries"]) for one in found])
            receiver.step(acknowledge=[one["receipt"] for one in found])
        except AWAY:
            continue
    raise AssertionError("messages keep coming")
