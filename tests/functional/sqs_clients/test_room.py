"""Receives and the room that a server has for answers."""

from __future__ import annotations

from pathlib import Path

from tests.support.node import Node
from tests.support.sqs_programs import new_key, repeating_client


def test_a_receive_takes_the_room_that_there_is(tmp_path: Path) -> None:
    """With 1 MiB for all calls there is none for ten large messages; the receive is not refused, and gets fewer."""
    key = new_key(tmp_path)
    with Node(tmp_path, settings="[limits]\nmax_in_flight_mb = 1\n") as node:
        sqs = repeating_client(node.running.url, key, retries={"total_max_attempts": 1})
        url = sqs.create_queue(QueueName="q")["QueueUrl"]
        sent = {f"{number}{'x' * 20_000}" for number in range(5)}
        for body in sent:
            sqs.send_message(QueueUrl=url, MessageBody=body)
        got: set[str] = set()
        while found := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            got |= {message["Body"] for message in found}
    assert got == sent
