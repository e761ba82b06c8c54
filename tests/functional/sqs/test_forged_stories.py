"""Messages with a header that only a dead letter should have, and that no server wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from qdo import Client, NewMessage
from queuey.future import run
from queuey.ids import MAX_TICKS, MessageId
from queuey.model import AppendRequest, Draft
from queuey.model.dead_letters import STORY_HEADER, Story, with_story
from tests.support.client import Server
from tests.support.sqs_clients import TimedSqs, bodies

Make = Callable[..., str]


def _name_of(url: str) -> str:
    return url.rsplit("/", 1)[1]


MANY = int("9" * 4300)
"""The sum of two of these has more digits than Python writes."""


@pytest.mark.parametrize("forged", [{"queue": "\ud800"}, {"deliveries": MANY, "earlier_deliveries": MANY}])
def test_a_story_that_no_server_wrote_is_none(client: Any, make: Make, v1: Server, forged: dict[str, Any]) -> None:
    """Whoever may append may write one. The message is received, and goes to the dead letters, as any other."""
    dead = make()
    arn = client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    url = make(VisibilityTimeout="0", RedrivePolicy=policy)
    story = Story("q", 1, "1f9f6640e56711f189bf02fc00000001", "sqs", 1, "so")._asdict() | forged
    with Client(v1.url, v1.application, v1.key) as sender:
        sender.append(_name_of(url), NewMessage("m", headers={STORY_HEADER: json.dumps(story).encode()}))

    first = client.receive_message(QueueUrl=url, AttributeNames=["All"])["Messages"]
    again = client.receive_message(QueueUrl=url, AttributeNames=["All"])
    (letter,) = client.receive_message(QueueUrl=dead, AttributeNames=["All"])["Messages"]

    assert [(one["Body"], one["Attributes"]["ApproximateReceiveCount"]) for one in first] == [("m", "1")]
    assert "Messages" not in again
    assert letter["Attributes"]["DeadLetterQueueSourceArn"].endswith(f":{_name_of(url)}")


def test_a_letter_lives_no_longer_than_its_queue_says(timed: TimedSqs, timed_make: Make) -> None:
    """Its age counts from the send, which a forged story puts into the future."""
    client, service, dead = timed.client, timed.service, timed_make(MessageRetentionPeriod="60", VisibilityTimeout="0")
    arn = client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    url = timed_make(VisibilityTimeout="0", RedrivePolicy=policy)
    queue = run(service.queues.find("queuey", _name_of(url)))
    assert queue is not None
    sent = MessageId.parse("1f9f6640e56711f189bf02fc00000001")._replace(ticks=MAX_TICKS)
    headers = with_story(None, Story("q", 1, sent.hex, "sqs", 1, "so"))
    run(service.log.append(AppendRequest(queue, [Draft(1, b"m", 1000, headers=headers)])))

    for _ in range(2):
        client.receive_message(QueueUrl=url)
    before = bodies(client.receive_message(QueueUrl=dead))
    timed.clock.advance(61)

    assert (before, bodies(client.receive_message(QueueUrl=dead))) == (["m"], [])
