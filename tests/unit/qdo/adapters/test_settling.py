"""Leases that another thread ends."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from qdo.adapters import settling
from qdo.adapters.settling import Settler
from qdo.client import Client, Delivery
from tests.support.scripted_server import Say, Script, refusal

SECONDS = 90
SETTLED = Say(200, b'{"status":"ok","settled":{"stale":[]}}')


@pytest.fixture
def client(script: Script) -> Iterator[Client]:
    with Client(script.url, "app", retries=0) as client:
        yield client


@pytest.fixture
def delivery(script: Script, client: Client) -> Delivery:
    """One whose lease is extended from now on, but not soon."""
    leased = {
        "message_id": "1f9f6640e56711f189bf02fc00000001",
        "timestamp": "1795236650.0128320",
        "partition": 1,
        "body": "x",
        "deliveries": 1,
        "failures": 0,
        "first_delivered": str(time.time()),
        "visible_at": str(time.time() + 36_000),
        "receipt": "r",
    }
    script.say(Say(200, json.dumps({"status": "ok", "messages": [leased]}).encode()))
    (found,) = client.receive("q", "g")
    found.keep()
    return found


def is_extended(client: Client) -> bool:
    return client._extender._leases.next_due() is not None


@pytest.mark.parametrize("refused", [refusal(403, "Forbidden"), refusal(400, "InvalidReceipt")])
def test_a_lease_that_cannot_be_settled_is_extended_no_more(
    script: Script, client: Client, delivery: Delivery, refused: Say
) -> None:
    """Or nobody would ever get the message."""
    settler = Settler(lambda: Client(script.url, "app", retries=0), "g")
    assert is_extended(client)
    script.say(refused)

    settler.reject(delivery, "bad")

    assert settler.flush(SECONDS)
    assert not is_extended(client)
    settler.close()


def test_a_client_that_cannot_be_made_is_made_later(
    script: Script, client: Client, delivery: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "MOST_PAUSE_SECONDS", 0.01)
    wrong = iter([OSError("no token"), OSError("no token")])

    def make() -> Client:
        if (error := next(wrong, None)) is not None:
            raise error
        return Client(script.url, "app", retries=0)

    settler = Settler(make, "g")
    script.say(SETTLED)

    settler.acknowledge(delivery)

    assert settler.flush(SECONDS)
    assert json.loads(script.asked[-1].body)["acknowledge"] == ["r"]
    settler.close()
