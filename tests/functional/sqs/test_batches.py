"""Batches: what fails as a whole, and what fails alone (leases.md, section 8)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.servers import eventually
from tests.support.sqs_clients import JSON, TimedSqs, bodies, refused

Make = Callable[..., str]
ID_RULE = "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters long."
KINDS = ("send_message", "delete_message", "change_message_visibility")


def entry(kind: str, id_: str) -> dict[str, Any]:
    more: dict[str, dict[str, Any]] = {
        "send_message": {"MessageBody": "m"},
        "delete_message": {"ReceiptHandle": "h"},
        "change_message_visibility": {"ReceiptHandle": "h", "VisibilityTimeout": 1},
    }
    return {"Id": id_, **more[kind]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("ids", "shape", "text"),
    [
        ([], "EmptyBatchRequest", "There should be at least one NAME in the request."),
        (
            [str(at) for at in range(11)],
            "TooManyEntriesInBatchRequest",
            "Maximum number of entries per request are 10. You have sent 11.",
        ),
        (["a", ""], "InvalidBatchEntryId", ID_RULE),
        (["a", "x" * 81], "InvalidBatchEntryId", ID_RULE),
        (["a", "b.c"], "InvalidBatchEntryId", ID_RULE),
        (["id_1", "id_2", "id_2", "id_1"], "BatchEntryIdsNotDistinct", "Id id_2 repeated."),
    ],
)
def test_what_fails_as_a_whole(
    timed: TimedSqs, timed_make: Make, kind: str, ids: list[str], shape: str, text: str
) -> None:
    url = timed_make()
    name = "".join(part.title() for part in kind.split("_")) + "BatchRequestEntry"

    said = refused(getattr(timed.client, f"{kind}_batch"), QueueUrl=url, Entries=[entry(kind, id_) for id_ in ids])

    assert said == (shape, text.replace("NAME", name))
    assert bodies(timed.client.receive_message(QueueUrl=url)) == []


def test_a_batch_may_have_a_mebibyte_together(timed: TimedSqs, timed_make: Make) -> None:
    """Whatever the queue allows one message: that fails alone."""
    client, url = timed.client, timed_make(MaximumMessageSize="1024")
    entries = [{"Id": str(at), "MessageBody": "m" * (1 << 19)} for at in range(2)]

    sent = client.send_message_batch(QueueUrl=url, Entries=[*entries[:1], {"Id": "small", "MessageBody": "m"}])
    whole = client.send_message_batch(QueueUrl=timed_make(), Entries=entries)
    entries[1]["MessageBody"] += "m"
    said = refused(client.send_message_batch, QueueUrl=url, Entries=entries)

    assert [one["Id"] for one in sent["Successful"]] == ["small"]
    assert [one["Code"] for one in sent["Failed"]] == ["InvalidParameterValue"]
    assert [one["Id"] for one in whole["Successful"]] == ["0", "1"]
    text = "Batch requests cannot be longer than 1048576 bytes. You have sent 1048577 bytes."
    assert said == ("BatchRequestTooLong", text)


def test_a_fault_of_one_entry_is_its_own(client: Any, make: Make) -> None:
    url = make()
    entries = [
        {"Id": "third", "MessageBody": "3"},
        {"Id": "bad", "MessageBody": "\x00"},
        {"Id": "late", "MessageBody": "4", "DelaySeconds": 901},
        {"Id": "empty", "MessageBody": ""},
        {"Id": "first", "MessageBody": "1"},
    ]

    answer = client.send_message_batch(QueueUrl=url, Entries=entries)

    assert [one["Id"] for one in answer["Successful"]] == ["third", "first"]
    assert [(one["Id"], one["Code"], one["SenderFault"]) for one in answer["Failed"]] == [
        ("bad", "InvalidMessageContents", True),
        ("late", "InvalidParameterValue", True),
        ("empty", "MissingParameter", True),
    ]
    assert sorted(bodies(client.receive_message(QueueUrl=url, MaxNumberOfMessages=10))) == ["1", "3"]


def test_all_entries_may_fail(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make()

    sent = client.send_message_batch(QueueUrl=url, Entries=[{"Id": "a", "MessageBody": "\x00"}])
    deleted = client.delete_message_batch(QueueUrl=url, Entries=[entry("delete_message", "a")])
    changed = client.change_message_visibility_batch(QueueUrl=url, Entries=[entry("change_message_visibility", "a")])

    assert (sent["Successful"], deleted["Successful"], changed["Successful"]) == ([], [], [])
    assert [one["Failed"][0]["Code"] for one in (sent, deleted, changed)] == [
        "InvalidMessageContents",
        "ReceiptHandleIsInvalid",
        "ReceiptHandleIsInvalid",
    ]


def test_ten_messages_are_sent_and_deleted(client: Any, make: Make) -> None:
    url = make()
    sent = client.send_message_batch(
        QueueUrl=url, Entries=[{"Id": str(at), "MessageBody": str(at)} for at in range(10)]
    )
    found = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    entries = [{"Id": one["Body"], "ReceiptHandle": one["ReceiptHandle"]} for one in found]

    deleted = client.delete_message_batch(QueueUrl=url, Entries=entries)
    again = client.delete_message_batch(QueueUrl=url, Entries=entries)

    assert [one["Id"] for one in sent["Successful"]] == [str(at) for at in range(10)]
    assert sent["Failed"] == deleted["Failed"] == again["Failed"] == []
    assert len({one["MessageId"] for one in sent["Successful"]}) == 10
    assert sorted(one["Id"] for one in deleted["Successful"]) == sorted(one["Id"] for one in again["Successful"])
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    eventually(
        lambda: (
            client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"] == dict.fromkeys(names, "0")
        )
    )


def test_zero_is_a_timeout_in_a_batch_too(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make()
    client.send_message(QueueUrl=url, MessageBody="m")
    (message,) = client.receive_message(QueueUrl=url)["Messages"]
    entries = [
        {"Id": "now", "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 0},
        {"Id": "never", "ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 43_201},
        {"Id": "missing", "ReceiptHandle": message["ReceiptHandle"]},
    ]

    answer = client.change_message_visibility_batch(QueueUrl=url, Entries=entries)

    assert [one["Id"] for one in answer["Successful"]] == ["now"]
    assert [(one["Id"], one["Code"]) for one in answer["Failed"]] == [
        ("never", "InvalidParameterValue"),
        ("missing", "MissingParameter"),
    ]
    assert bodies(client.receive_message(QueueUrl=url)) == ["m"]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"MessageDeduplicationId": "d"}, "The request must contain the parameter MessageGroupId."),
        (
            {"MessageGroupId": "g"},
            "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly",
        ),
    ],
)
def test_a_fifo_queue_refuses_the_whole_batch(timed: TimedSqs, timed_make: Make, wrong: Any, text: str) -> None:
    client, url = timed.client, timed_make(fifo=True)
    good = {"Id": "good", "MessageBody": "m", "MessageGroupId": "g", "MessageDeduplicationId": "d"}

    said = refused(client.send_message_batch, QueueUrl=url, Entries=[good, {"Id": "bad", "MessageBody": "m", **wrong}])

    assert said == ("ClientError", text)
    assert bodies(client.receive_message(QueueUrl=url)) == []


def test_a_batch_changes_the_timeouts_of_many_messages(timed: TimedSqs, timed_make: Make) -> None:
    """Of one that is named twice the last word counts."""
    client, url = timed.client, timed_make(VisibilityTimeout="30")
    for body in "abc":
        client.send_message(QueueUrl=url, MessageBody=body)
    found = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    handles = {message["Body"]: message["ReceiptHandle"] for message in found}
    asked = [("a", 100), ("b", 100), ("c", 100), ("b", 0)]
    entries = [
        {"Id": str(at), "ReceiptHandle": handles[body], "VisibilityTimeout": seconds}
        for at, (body, seconds) in enumerate(asked)
    ]

    answer = client.change_message_visibility_batch(QueueUrl=url, Entries=entries)
    at_once = bodies(client.receive_message(QueueUrl=url, MaxNumberOfMessages=10))
    timed.clock.advance(99)
    hidden = bodies(client.receive_message(QueueUrl=url, MaxNumberOfMessages=10))
    timed.clock.advance(1.1)
    later = bodies(client.receive_message(QueueUrl=url, MaxNumberOfMessages=10))

    assert [one["Id"] for one in answer["Successful"]] == ["0", "1", "2", "3"]
    assert (at_once, hidden, sorted(later)) == (["b"], ["b"], ["a", "c"])


@pytest.mark.parametrize(
    "body", ["", "m", "x" * 1024, "x" * 1025, "é" * 512, "é" * 513, "a\tb\r\n", "a\0", "\x7f", "\x1f", "\ufffe", "😀"]
)
def test_an_entry_with_nothing_but_a_body_is_as_a_message_of_its_own(
    timed: TimedSqs, timed_make: Make, body: str
) -> None:
    client, url = timed.client, timed_make(MaximumMessageSize="1024")
    entries = [{"Id": id_, "MessageBody": text} for id_, text in (("a", "first"), ("b", body))]

    found = client.send_message_batch(QueueUrl=url, Entries=entries)

    first, *others = found["Successful"]
    assert (first["Id"], len(others) + len(found.get("Failed", []))) == ("a", 1)
    try:
        alone = client.send_message(QueueUrl=url, MessageBody=body)
    except client.exceptions.ClientError as error:
        (failed,) = found["Failed"]
        said = error.response["Error"]
        assert (failed["Id"], failed["Code"], failed["Message"]) == ("b", said["Code"], said["Message"])
    else:
        (second,) = others
        assert second.keys() - {"Id"} == alone.keys() - {"ResponseMetadata"}
        assert second["MD5OfMessageBody"] == alone["MD5OfMessageBody"]
        assert bodies(client.receive_message(QueueUrl=url, MaxNumberOfMessages=10)) == ["first", body, body]


def test_a_plain_batch_gets_what_the_queue_gives(timed: TimedSqs, timed_make: Make) -> None:
    """Its delay, and the trace of the request."""
    client, url = timed.client, timed_make(DelaySeconds="5")
    entries = [{"Id": id_, "MessageBody": id_} for id_ in "ab"]
    trace = "Root=1-5759e988-bd862e3fe1be46a994272793"
    headers = {"Content-Type": JSON, "X-Amz-Target": "AmazonSQS.SendMessageBatch", "X-Amzn-Trace-Id": trace}
    asked = json.dumps({"QueueUrl": url, "Entries": entries}).encode()

    status, _, _ = timed.send(headers, asked)

    assert status == 200
    assert bodies(client.receive_message(QueueUrl=url, MaxNumberOfMessages=10)) == []
    timed.clock.advance(5)
    found = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["AWSTraceHeader"])["Messages"]
    assert [(one["Body"], one["Attributes"]["AWSTraceHeader"]) for one in found] == [("a", trace), ("b", trace)]
