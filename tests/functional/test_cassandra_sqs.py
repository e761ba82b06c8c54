"""SQS clients of two servers over one keyspace."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from botocore.credentials import Credentials

from queuey.security.access_keys import account_of
from tests.support.client import Server, new_name
from tests.support.live import until_waiting
from tests.support.servers import eventually
from tests.support.sqs_clients import bodies, code_of, sqs_client
from tests.support.sqs_programs import repeating_client

WAIT = {"WaitTimeSeconds": 20, "MaxNumberOfMessages": 10}


def client_of(server: Server) -> Any:
    return sqs_client(server.url, Credentials(server.application, "any"))


def test_a_wait_at_one_server_ends_with_what_the_other_is_sent(first: Server, second: Server) -> None:
    here, there = client_of(first), client_of(second)
    url = here.create_queue(QueueName=new_name())["QueueUrl"]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(there.receive_message, QueueUrl=url, **WAIT)
        until_waiting(second, 1)
        here.send_message(QueueUrl=url, MessageBody="m")
        (message,) = waiting.result(60)["Messages"]
        waiting = pool.submit(here.receive_message, QueueUrl=url, **WAIT)
        until_waiting(first, 1)
        change = {"ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 0}
        there.change_message_visibility(QueueUrl=url, **change)
        found = waiting.result(60)

    assert message["Body"] == "m"
    assert bodies(found) == ["m"]


def test_a_receive_that_is_sent_again_to_the_other_server_gets_the_same(first: Server, second: Server) -> None:
    here, there = client_of(first), client_of(second)
    url = here.create_queue(QueueName=f"{new_name()}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    here.send_message(QueueUrl=url, MessageBody="m", MessageGroupId="g", MessageDeduplicationId="d")
    asked = {"QueueUrl": url, "ReceiveRequestAttemptId": "attempt", **WAIT}

    (once,) = eventually(lambda: here.receive_message(**asked).get("Messages"), seconds=60)
    (twice,) = there.receive_message(**asked)["Messages"]
    there.delete_message(QueueUrl=url, ReceiptHandle=twice["ReceiptHandle"])

    assert once["ReceiptHandle"] == twice["ReceiptHandle"]
    assert bodies(here.receive_message(**asked | {"WaitTimeSeconds": 0})) == []


def test_messages_that_one_server_moves_are_received_from_the_other(first: Server, second: Server) -> None:
    # Clients that repeat what a busy node did not answer in time: what they ask may be done twice.
    here, there = [repeating_client(one.url, Credentials(one.application, "any")) for one in (first, second)]
    dead = new_name()
    url = here.create_queue(QueueName=dead)["QueueUrl"]
    arn = here.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    sources = [
        here.create_queue(QueueName=new_name(), Attributes={"RedrivePolicy": policy, "VisibilityTimeout": "0"})
        for _ in range(2)
    ]
    urls = [made["QueueUrl"] for made in sources]
    for source in urls:
        client_of(first).send_message(QueueUrl=source, MessageBody=source)
        asked = {"QueueUrl": source, "WaitTimeSeconds": 20}
        assert bodies(here.receive_message(**asked)) == [source]
    held = {"AttributeNames": ["ApproximateNumberOfMessages"], "QueueUrl": url}

    def are_dead() -> bool:
        for source in urls:
            here.receive_message(QueueUrl=source)
        return bool(here.get_queue_attributes(**held)["Attributes"]["ApproximateNumberOfMessages"] == "2")

    eventually(are_dead, seconds=60)

    there.start_message_move_task(SourceArn=arn)

    def is_over() -> bool:
        return bool(here.list_message_move_tasks(SourceArn=arn)["Results"][0]["Status"] == "COMPLETED")

    eventually(is_over, seconds=60)
    found = [there.receive_message(QueueUrl=source, **WAIT) for source in urls]
    assert [bodies(one) for one in found] == [[source] for source in urls]
    assert bodies(there.receive_message(QueueUrl=url)) == []


def test_a_name_that_no_queue_can_have_is_that_of_no_queue(first: Server) -> None:
    """Also one that is longer than a key of Cassandra may be, in the URL of another account's queue or in an ARN."""
    client = client_of(first)
    url = client.create_queue(QueueName=new_name())["QueueUrl"]
    arn = client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    long = "n" * 70_000
    other = f"http://any/{account_of('other')}/{long}"

    assert code_of(client.start_message_move_task, SourceArn=f"{arn}{long}") == "ResourceNotFoundException"
    assert code_of(client.receive_message, QueueUrl=f"{url}{long}").endswith("NonExistentQueue")
    assert code_of(client.receive_message, QueueUrl=other) == "AccessDenied"
