"""The Query protocol: forms and links in, XML out (leases.md, section 1.2)."""

from __future__ import annotations

import hashlib
import uuid
from base64 import b64encode
from collections.abc import Callable
from unittest.mock import patch
from urllib.parse import urlsplit

import pytest

from tests.support.client import new_name
from tests.support.sqs_clients import FORM, NAMESPACE, SqsServer, texts, tree

Make = Callable[..., str]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_queue_is_made_and_found(sqs: SqsServer, method: str) -> None:
    name = new_name()
    url = f"{sqs.url}/{sqs.accounts['queuey']}/{name}"

    made = sqs.query(
        method=method,
        Action="CreateQueue",
        Version="2012-11-05",
        QueueName=name,
        Attribute__1__Name="VisibilityTimeout",
        Attribute__1__Value="7",
        Tag__1__Key="team",
        Tag__1__Value="a",
    )
    asked = sqs.query(method=method, Action="GetQueueAttributes", QueueUrl=url, AttributeName__1="VisibilityTimeout")
    tags = sqs.query(urlsplit(url).path, method=method, Action="ListQueueTags")

    assert (made.status_code, made.headers["content-type"].split(";")[0]) == (200, "text/xml")
    root = tree(made)
    assert root.tag == f"{NAMESPACE}CreateQueueResponse"
    assert [child.tag.removeprefix(NAMESPACE) for child in root] == ["CreateQueueResult", "ResponseMetadata"]
    assert texts(made, "QueueUrl") == [url]
    assert texts(made, "RequestId") == [made.headers["x-amzn-requestid"]]
    assert (texts(asked, "Name"), texts(asked, "Value")) == (["VisibilityTimeout"], ["7"])
    assert (texts(tags, "Key"), texts(tags, "Value")) == (["team"], ["a"])


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_message_goes_round(sqs: SqsServer, make: Make, method: str) -> None:
    path = urlsplit(make()).path
    body = 'é "quoted" <&> \r\n\tend'

    sent = sqs.query(
        path,
        method=method,
        Action="SendMessage",
        MessageBody=body,
        MessageAttribute__1__Name="t",
        MessageAttribute__1__Value__DataType="Number.int",
        MessageAttribute__1__Value__StringValue="4",
        MessageAttribute__2__Name="b",
        MessageAttribute__2__Value__DataType="Binary",
        MessageAttribute__2__Value__BinaryValue=b64encode(b"\x00\xff").decode(),
    )
    found = sqs.query(
        path, method=method, Action="ReceiveMessage", AttributeName__1="All", MessageAttributeName__1="All"
    )
    (handle,) = texts(found, "ReceiptHandle")
    deleted = sqs.query(path, method=method, Action="DeleteMessage", ReceiptHandle=handle or "")

    sum_ = hashlib.md5(body.encode(), usedforsecurity=False).hexdigest()
    assert texts(sent, "MD5OfMessageBody") == texts(found, "MD5OfBody") == [sum_]
    assert texts(sent, "MessageId") == texts(found, "MessageId")
    assert texts(sent, "MD5OfMessageAttributes") == texts(found, "MD5OfMessageAttributes")
    assert texts(found, "Body") == [body]
    assert b"&quot;quoted&quot;" in found.content
    assert b"&#xD;" in found.content or b"&#13;" in found.content
    assert {"SentTimestamp", "SenderId", "t", "b"} <= {*texts(found, "Name")}
    assert (texts(found, "StringValue"), texts(found, "BinaryValue")) == (["4"], [b64encode(b"\x00\xff").decode()])
    assert [child.tag.removeprefix(NAMESPACE) for child in tree(deleted)] == ["ResponseMetadata"]


def test_nothing_to_give_has_no_message(sqs: SqsServer, make: Make) -> None:
    found = sqs.query(urlsplit(make()).path, Action="ReceiveMessage")

    assert (found.status_code, texts(found, "Message")) == (200, [])


def test_batches(sqs: SqsServer, make: Make) -> None:
    path = urlsplit(make()).path

    sent = sqs.query(
        path,
        Action="SendMessageBatch",
        SendMessageBatchRequestEntry__1__Id="a",
        SendMessageBatchRequestEntry__1__MessageBody="A",
        SendMessageBatchRequestEntry__2__Id="b",
        SendMessageBatchRequestEntry__2__MessageBody="\x00",
    )
    (handle,) = texts(sqs.query(path, Action="ReceiveMessage"), "ReceiptHandle")
    changed = sqs.query(
        path,
        Action="ChangeMessageVisibilityBatch",
        ChangeMessageVisibilityBatchRequestEntry__1__Id="c",
        ChangeMessageVisibilityBatchRequestEntry__1__ReceiptHandle=handle or "",
        ChangeMessageVisibilityBatchRequestEntry__1__VisibilityTimeout="9",
    )
    deleted = sqs.query(
        path,
        Action="DeleteMessageBatch",
        DeleteMessageBatchRequestEntry__1__Id="d",
        DeleteMessageBatchRequestEntry__1__ReceiptHandle=handle or "",
    )

    assert texts(sent, "Id") == ["a", "b"]
    assert texts(sent, "Code") == ["InvalidMessageContents"]
    assert len(list(tree(sent).iter(f"{NAMESPACE}SendMessageBatchResultEntry"))) == 1
    assert len(list(tree(sent).iter(f"{NAMESPACE}BatchResultErrorEntry"))) == 1
    assert len(list(tree(changed).iter(f"{NAMESPACE}ChangeMessageVisibilityBatchResultEntry"))) == 1
    assert len(list(tree(deleted).iter(f"{NAMESPACE}DeleteMessageBatchResultEntry"))) == 1


def test_the_queue_of_a_parameter_wins_over_that_of_the_path(sqs: SqsServer, make: Make) -> None:
    of_path, of_parameter = make(), make()
    body = {"MessageBody": "m", "QueueUrl": of_parameter}

    assert sqs.query(urlsplit(of_path).path, Action="SendMessage", **body).status_code == 200

    assert texts(sqs.query(urlsplit(of_path).path, Action="ReceiveMessage"), "Body") == []
    assert texts(sqs.query(urlsplit(of_parameter).path, Action="ReceiveMessage"), "Body") == ["m"]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_action_that_names_its_queue_in_another_way_may_be_asked_for_at_any_queue_url(
    sqs: SqsServer, make: Make, method: str
) -> None:
    here, other = make(), make()
    path, name = urlsplit(here).path, other.rpartition("/")[2]
    arn = texts(sqs.query(urlsplit(other).path, Action="GetQueueAttributes", AttributeName="QueueArn"), "Value")[0]

    found = sqs.query(path, method=method, Action="GetQueueUrl", QueueName=name)
    moves = sqs.query(path, method=method, Action="ListMessageMoveTasks", SourceArn=str(arn))

    assert texts(found, "QueueUrl") == [other]
    assert moves.status_code == 200


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_queue_url_without_an_action_is_not_found(sqs: SqsServer, make: Make, method: str) -> None:
    headers = {"Content-Type": FORM} if method == "POST" else {}

    answer = sqs.send(method, urlsplit(make()).path, headers=headers)

    assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (404, "text/xml")
    assert b"UnknownOperationException" in answer.content


@pytest.mark.parametrize("action", ["SendPigeon", "CreateQueue", "ListQueues"])
def test_what_a_queue_url_is_not_for(sqs: SqsServer, make: Make, action: str) -> None:
    answer = sqs.query(urlsplit(make()).path, Action=action)

    assert answer.status_code == 400
    assert texts(answer, "Code") == ["InvalidAction"]
    assert texts(answer, "Message") == [f"The action {action} is not valid for this endpoint."]


def test_an_unknown_action(sqs: SqsServer) -> None:
    assert texts(sqs.query(Action="SendPigeon"), "Code") == ["InvalidAction"]


def test_a_refusal_is_xml(sqs: SqsServer) -> None:
    answer = sqs.query(Action="GetQueueUrl", QueueName="no-such-queue")

    assert answer.status_code == 400
    assert tree(answer).tag == f"{NAMESPACE}ErrorResponse"
    assert texts(answer, "Type") == ["Sender"]
    assert texts(answer, "Code") == ["AWS.SimpleQueueService.NonExistentQueue"]
    assert texts(answer, "Message") == ["The specified queue does not exist for this wsdl version."]
    assert uuid.UUID(texts(answer, "RequestId")[0] or "").version == 4


@pytest.mark.parametrize("body", [b"Action=%zz", b"&" * 3000, b"Action=SendPigeon", b"no action"])
def test_a_form_is_taken_apart_once_its_caller_is_known(sqs: SqsServer, body: bytes) -> None:
    headers = {"Content-Type": FORM}

    unsigned = sqs.send("POST", "/", body, key=None, headers=headers)
    with patch("botocore.auth.SigV4Auth.payload", lambda self, request: "0" * 64):
        changed = sqs.send("POST", "/", body, headers=headers)
    signed = sqs.send("POST", "/", body, headers=headers)

    assert texts(unsigned, "Code") == ["MissingAuthenticationToken"]
    assert texts(changed, "Code") == ["SignatureDoesNotMatch"]
    assert texts(signed, "Code")[0] in ("MalformedQueryString", "InvalidAction", "UnknownOperationException")


def test_of_two_actions_that_of_the_form_counts(sqs: SqsServer) -> None:
    headers = {"Content-Type": FORM}

    listed = sqs.send("POST", "/?Action=SendPigeon", b"Action=ListQueues", headers=headers)
    unknown = sqs.send("POST", "/?Action=ListQueues", b"Action=SendPigeon", headers=headers)
    in_link = sqs.send("POST", "/?Action=ListQueues&QueueNamePrefix=none-begins-so", b"MaxResults=1", headers=headers)

    assert (listed.status_code, in_link.status_code) == (200, 200)
    assert tree(in_link).tag == f"{NAMESPACE}ListQueuesResponse"
    assert (unknown.status_code, texts(unknown, "Code")) == (400, ["InvalidAction"])


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"QueueName": "q", "Colour": "blue"}, "InvalidParameterValue"),
        ({}, "MissingParameter"),
        ({"QueueName": "q", "Attribute.1.Name": "DelaySeconds"}, "MissingParameter"),
        ({"QueueName": "q", "Attribute.0.Name": "DelaySeconds"}, "InvalidParameterValue"),
        (
            {
                "QueueName": "q",
                "Attribute.1.Name": "DelaySeconds",
                "Attribute.1.Value": "1",
                "Attribute.2.Name": "DelaySeconds",
                "Attribute.2.Value": "2",
            },
            "InvalidParameterValue",
        ),
        ({"QueueName": "q", "Attribute.1.Name": "Colour", "Attribute.1.Value": "b"}, "InvalidAttributeName"),
    ],
)
def test_parameters_that_may_not_be(sqs: SqsServer, parameters: dict[str, str], code: str) -> None:
    answer = sqs.query(Action="CreateQueue", **parameters)

    assert (answer.status_code, texts(answer, "Code")) == (400, [code])


def test_the_answer_is_xml_whatever_is_accepted(sqs: SqsServer) -> None:
    answer = sqs.send("GET", "/?Action=ListQueues&MaxResults=1", headers={"Accept": "application/json"})

    assert answer.headers["content-type"].startswith("text/xml")
    assert tree(answer).tag == f"{NAMESPACE}ListQueuesResponse"
