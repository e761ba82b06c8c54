"""What a server knows of its queues after it was killed (leases.md, sections 9, 10 and 19)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.node import Node
from tests.support.sqs_clients import bodies, sqs_client
from tests.support.sqs_programs import new_key

ONCE = {"MessageBody": "m", "MessageGroupId": "g", "MessageDeduplicationId": "d"}


def _taken(client: Any, url: str) -> str:
    """Receive the one message of a queue; its handle."""
    (message,) = client.receive_message(QueueUrl=url, VisibilityTimeout=3600)["Messages"]
    return str(message["ReceiptHandle"])


def test_leases_deletions_and_ids_outlive_a_server_that_is_killed(tmp_path: Path) -> None:
    """A message stays with its receiver, a dead letter that was deleted stays away, and what was sent is not sent again."""
    key = new_key(tmp_path)
    with Node(tmp_path) as node:
        client = sqs_client(node.running.url, key)
        dead, leased = (client.create_queue(QueueName=name)["QueueUrl"] for name in ("dead", "leased"))
        fifo = client.create_queue(QueueName="q.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
        names = ["QueueArn"]
        arn = client.get_queue_attributes(QueueUrl=dead, AttributeNames=names)["Attributes"]["QueueArn"]
        policy = {"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})}
        source = client.create_queue(QueueName="source", Attributes=policy)["QueueUrl"]
        client.send_message(QueueUrl=source, MessageBody="poison")
        client.receive_message(QueueUrl=source, VisibilityTimeout=0)
        assert bodies(client.receive_message(QueueUrl=source)) == []
        client.delete_message(QueueUrl=dead, ReceiptHandle=_taken(client, dead))
        client.send_message(QueueUrl=leased, MessageBody="m")
        handle = _taken(client, leased)
        client.send_message(QueueUrl=fifo, **ONCE)
        client.delete_message(QueueUrl=fifo, ReceiptHandle=_taken(client, fifo))

        node.kill()
        node.start()

        client = sqs_client(node.running.url, key)
        client.send_message(QueueUrl=fifo, **ONCE)
        found = {url: bodies(client.receive_message(QueueUrl=url)) for url in (source, dead, leased, fifo)}
        assert found == {source: [], dead: [], leased: [], fifo: []}
        client.change_message_visibility(QueueUrl=leased, ReceiptHandle=handle, VisibilityTimeout=0)
        assert bodies(client.receive_message(QueueUrl=leased)) == ["m"]
