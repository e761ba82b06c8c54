"""What clients find on the wire in JSON, and what crashes them if it is missing (leases.md, sections 1.1, 12 and 19)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.client import new_name
from tests.support.sqs_clients import JSON, SqsServer, sqs_client


def test_an_answer_is_json_with_the_id_of_its_request(sqs: SqsServer) -> None:
    answer = sqs.json("CreateQueue", {"QueueName": new_name()})

    assert (answer.status_code, answer.headers["content-type"]) == (200, JSON)
    assert str(uuid.UUID(answer.headers["x-amzn-requestid"])) == answer.headers["x-amzn-requestid"]


def test_boto3_finds_the_id_of_its_request(client: Any) -> None:
    assert uuid.UUID(client.list_queues()["ResponseMetadata"]["RequestId"]).version == 4


def test_a_refusal_has_both_names_of_the_error(sqs: SqsServer) -> None:
    answer = sqs.json("GetQueueUrl", {"QueueName": "no-such-queue"})

    assert (answer.status_code, answer.headers["content-type"]) == (400, JSON)
    assert answer.headers["x-amzn-query-error"] == "AWS.SimpleQueueService.NonExistentQueue;Sender"
    assert uuid.UUID(answer.headers["x-amzn-requestid"]).version == 4
    said = {"__type": "com.amazonaws.sqs#QueueDoesNotExist", "message": "The specified queue does not exist."}
    assert answer.json() == said


def test_boto3_raises_the_class_of_the_shape(client: Any) -> None:
    with pytest.raises(client.exceptions.QueueDoesNotExist) as caught:
        client.get_queue_url(QueueName="no-such-queue")

    said = caught.value.response["Error"]
    assert said["Code"] == "AWS.SimpleQueueService.NonExistentQueue"
    assert said["QueryErrorCode"] == "QueueDoesNotExist"
    assert said["Type"] == "Sender"


def test_empty_lists_are_left_out(sqs: SqsServer, make: Callable[..., str]) -> None:
    url = make()
    asked = {"QueueUrl": url}

    assert sqs.json("ReceiveMessage", asked).content == b"{}"
    assert sqs.json("ListQueueTags", asked).content == b"{}"
    assert sqs.json("GetQueueAttributes", asked).content == b"{}"
    assert sqs.json("GetQueueAttributes", {**asked, "AttributeNames": []}).content == b"{}"
    assert sqs.json("ListQueues", {"QueueNamePrefix": "none-begins-so"}).content == b"{}"
    assert sqs.json("ListDeadLetterSourceQueues", asked).json() == {"queueUrls": []}


def test_actions_without_output_answer_an_empty_object(sqs: SqsServer, make: Callable[..., str]) -> None:
    asked = {"QueueUrl": make()}

    assert sqs.json("TagQueue", {**asked, "Tags": {"a": "b"}}).content == b"{}"
    assert sqs.json("DeleteQueue", asked).content == b"{}"


def test_a_message_travels_as_older_sdks_ask_for_it(sqs: SqsServer, make: Callable[..., str]) -> None:
    """Kombu signs each receive as JSON, without ``x-amzn-query-mode``, and names the queue by the path as well."""
    url = make()
    sqs.json("SendMessage", {"QueueUrl": url, "MessageBody": "é"})

    asked = {"QueueUrl": url, "MaxNumberOfMessages": 10, "AttributeNames": [], "MessageAttributeNames": []}
    answer = sqs.json("ReceiveMessage", asked)

    (message,) = answer.json()["Messages"]
    assert message.keys() == {"MessageId", "ReceiptHandle", "MD5OfBody", "Body"}
    assert message["Body"] == "é"


def test_json_may_arrive_at_the_url_of_a_queue(sqs: SqsServer, make: Callable[..., str]) -> None:
    url = make()
    body = json.dumps({"QueueUrl": url, "MessageBody": "there"}).encode()

    sent = sqs.send(
        "POST", urlsplit(url).path, body, headers={"Content-Type": JSON, "X-Amz-Target": "AmazonSQS.SendMessage"}
    )

    assert (sent.status_code, sent.headers["content-type"]) == (200, JSON)
    assert sqs.json("ReceiveMessage", {"QueueUrl": url}).json()["Messages"][0]["Body"] == "there"


@pytest.mark.parametrize("body", [b"", b"{}"])
def test_an_action_may_have_no_parameters(sqs: SqsServer, body: bytes) -> None:
    answer = sqs.send("POST", "/", body, headers={"Content-Type": JSON, "X-Amz-Target": "AmazonSQS.ListQueues"})

    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        (b"{", "SerializationException"),
        (b"[]", "SerializationException"),
        (b'{"QueueName": 1}', "SerializationException"),
        (b"\xff", "SerializationException"),
        (b"{}", "MissingRequiredParameterException"),
        (b'{"QueueName": "q", "Unknown": 1}', "InvalidParameterValueException"),
    ],
)
def test_a_body_that_is_no_request(sqs: SqsServer, body: bytes, shape: str) -> None:
    answer = sqs.send("POST", "/", body, headers={"Content-Type": JSON, "X-Amz-Target": "AmazonSQS.GetQueueUrl"})

    assert answer.status_code == 400
    assert answer.json()["__type"] == f"com.amazonaws.sqs#{shape}"
    assert answer.headers["x-amzn-query-error"].endswith(";Sender")


def test_an_action_that_is_none(sqs: SqsServer) -> None:
    answer = sqs.json("SendPigeon")

    assert answer.status_code in (400, 404)
    assert answer.json()["__type"] == "com.amazonaws.sqs#UnknownOperationException"


def test_the_trace_of_a_header_is_that_of_the_message(sqs: SqsServer, make: Callable[..., str]) -> None:
    url = make()
    sqs.json("SendMessage", {"QueueUrl": url, "MessageBody": "m"}, {"X-Amzn-Trace-Id": "Root=1-2-3"})

    asked = {"QueueUrl": url, "AttributeNames": ["AWSTraceHeader"]}
    (message,) = sqs.json("ReceiveMessage", asked).json()["Messages"]

    assert message["Attributes"] == {"AWSTraceHeader": "Root=1-2-3"}


def test_boto3_reaches_the_endpoint_whatever_host_a_queue_url_has(sqs: SqsServer) -> None:
    """With an explicit endpoint no SDK connects to the host of a queue's URL, so nothing may depend on it."""
    client = sqs_client(sqs.url, sqs.keys["queuey"])
    name = new_name()
    client.create_queue(QueueName=name)

    url = f"https://queue.invalid/{sqs.accounts['queuey']}/{name}"

    assert client.send_message(QueueUrl=url, MessageBody="m")["MessageId"]
