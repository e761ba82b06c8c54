"""What a consumer of kombu makes of a queue that was deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from qdo.adapters.kombu import receiving
from qdo.adapters.kombu.options import TransportOptions
from qdo.adapters.kombu.receiving import LeaseReceiver
from qdo.client import Client, Delivery
from queuey.errors import Forbidden, QueueyError
from tests.support.client_answers import HEX, MADE, UNAVAILABLE
from tests.support.scripted_server import Say, Script, refusal

GONE = refusal(404, "QueueNotFound")
NO_QUEUES = Say(200, b'{"queues": []}')
MESSAGE = {
    "message_id": HEX,
    "partition": 1,
    "body": "",
    "receipt": "r",
    "deliveries": 1,
    "failures": 0,
    "first_delivered": "1",
    "visible_at": "31",
}
ONE = Say(200, json.dumps({"messages": [MESSAGE]}).encode())


class Receiving:
    """A receiver whose thread is the test's, until it has failed or got a message."""

    def __init__(self, client: Client) -> None:
        self.failed: list[QueueyError] = []
        self.took: list[Delivery] = []
        self.receiver = LeaseReceiver(
            client, TransportOptions(), lambda what: what(client), lambda: 1, self._take, self.failed.append
        )

    def _take(self, message: Delivery) -> None:
        self.took.append(message)
        self.receiver._is_closed = True

    def run(self) -> None:
        self.receiver._queues = ["jobs"]
        self.receiver._run()


@pytest.fixture
def receiving_now(script: Script, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiving]:
    monkeypatch.setattr(receiving, "FIRST_PAUSE_SECONDS", 0.0)
    with Client(script.url, "app", retries=0) as client:
        yield Receiving(client)


@pytest.mark.timeout(60)
def test_a_queue_that_may_not_be_made_again_ends_the_receiver_once(script: Script, receiving_now: Receiving) -> None:
    script.say(GONE, NO_QUEUES, refusal(403, "Forbidden"))

    receiving_now.run()

    assert [type(error) for error in receiving_now.failed] == [Forbidden]
    assert script.answers == []


@pytest.mark.timeout(60)
def test_a_queue_that_cannot_be_made_for_a_while_is_made_later(script: Script, receiving_now: Receiving) -> None:
    script.say(GONE, UNAVAILABLE, GONE, NO_QUEUES, MADE, ONE)

    receiving_now.run()

    assert receiving_now.failed == []
    assert len(receiving_now.took) == 1
