"""Messages: bodies, attributes, their sums and sizes (leases.md, sections 6 and 7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.client import Server
from tests.support.sqs_clients import SqsServer, TimedSqs, bodies, code_of, refused

Make = Callable[..., str]
TRACE = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
TRACEPARENT = "00-5759e988bd862e3fe1be46a994272793-53995c3f42cd8ad8-01"


def text(value: str, kind: str = "String") -> dict[str, Any]:
    return {"DataType": kind, "StringValue": value}


def binary(value: bytes, kind: str = "Binary") -> dict[str, Any]:
    return {"DataType": kind, "BinaryValue": value}


VECTORS = [
    ({"Foo": text("Bar")}, "ae7155c6026991b6d54b11589678bf9c"),
    ({"MyAttribute": text("foobar")}, "adb59cd4678ea5a855436b949cd07ab6"),
    (
        {"General": text("Kenobi"), "Hello": text("There"), "Help.Me": text("Me")},
        "4c360f3fdafd970e05fae2f149d997f5",
    ),
    ({"binaryAttribute": binary(b"Hello binary world!")}, "31a92b15d92f8db860eda32aceb656c3"),
    (
        {"b": binary(b"\x00\x01\xff", "Binary.gif"), "a.n": text("42", "Number.int"), "Z": text("é")},
        "67b82fc77b9a18171220fb6b141f3763",
    ),
]


@pytest.mark.parametrize(("given", "sum_"), VECTORS)
def test_attributes_come_back_with_the_sum_that_clients_check(
    client: Any, make: Make, given: dict[str, Any], sum_: str
) -> None:
    url = make()

    sent = client.send_message(QueueUrl=url, MessageBody="hello", MessageAttributes=given)
    (message,) = client.receive_message(QueueUrl=url, MessageAttributeNames=["All"])["Messages"]

    assert sent["MD5OfMessageBody"] == message["MD5OfBody"] == "5d41402abc4b2a76b9719d911017c592"
    assert sent["MD5OfMessageAttributes"] == message["MD5OfMessageAttributes"] == sum_
    assert message["MessageAttributes"] == given
    assert message["MessageId"] == sent["MessageId"]


def test_a_batch_has_the_sums_as_well(client: Any, make: Make) -> None:
    entries = [{"Id": str(at), "MessageBody": "hello", "MessageAttributes": one} for at, (one, _) in enumerate(VECTORS)]

    sent = client.send_message_batch(QueueUrl=make(), Entries=entries)

    assert [one["MD5OfMessageAttributes"] for one in sent["Successful"]] == [sum_ for _, sum_ in VECTORS]
    assert {one["MD5OfMessageBody"] for one in sent["Successful"]} == {"5d41402abc4b2a76b9719d911017c592"}


def test_the_sum_of_nothing_is_never_sent(client: Any, make: Make) -> None:
    url = make()

    sent = client.send_message(QueueUrl=url, MessageBody="m", MessageAttributes={})
    (message,) = client.receive_message(QueueUrl=url, MessageAttributeNames=["All"])["Messages"]

    assert sent.keys() == {"MD5OfMessageBody", "MessageId", "ResponseMetadata"}
    assert message.keys() == {"MessageId", "ReceiptHandle", "MD5OfBody", "Body"}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["All"], {"General", "Hello", "Help.Me"}),
        ([".*"], {"General", "Hello", "Help.Me"}),
        (["*"], {"General", "Hello", "Help.Me"}),
        (["Hel.*"], {"Hello", "Help.Me"}),
        (["Help.*", "General"], {"Help.Me", "General"}),
        (["Hello", "Unknown"], {"Hello"}),
        (["hello"], set()),
        (["Unknown"], set()),
        ([], set()),
    ],
)
def test_a_receive_chooses_attributes(timed: TimedSqs, timed_make: Make, names: list[str], expected: set[str]) -> None:
    url = timed_make()
    timed.client.send_message(QueueUrl=url, MessageBody="m", MessageAttributes=VECTORS[2][0])

    (message,) = timed.client.receive_message(QueueUrl=url, MessageAttributeNames=names)["Messages"]

    assert message.get("MessageAttributes", {}).keys() == expected
    assert ("MD5OfMessageAttributes" in message) == bool(expected)
    if expected == {"Hello", "Help.Me"}:
        assert message["MD5OfMessageAttributes"] == "83fee93c1bcd8b9a5a923ffacdc636c7"


def test_the_trace_is_a_system_attribute_with_a_sum_of_its_own(client: Any, make: Make) -> None:
    url = make()

    sent = client.send_message(
        QueueUrl=url,
        MessageBody="m",
        MessageAttributes=VECTORS[0][0],
        MessageSystemAttributes={"AWSTraceHeader": text(TRACE)},
    )
    (message,) = client.receive_message(QueueUrl=url, MessageSystemAttributeNames=["AWSTraceHeader"])["Messages"]

    assert sent["MD5OfMessageSystemAttributes"] == "5ae4d5d7636402d80f4eb6d213245a88"
    assert sent["MD5OfMessageAttributes"] == VECTORS[0][1]
    assert message["Attributes"] == {"AWSTraceHeader": TRACE}


def test_a_trace_comes_as_a_whole_and_a_request_s_own_is_bounded(client: Any, sqs: SqsServer, make: Make) -> None:
    """The sum of what its sender gave is that of what receivers get."""
    url, long = make(), f"{TRACE};Data={'x' * 5000}"
    client.send_message(QueueUrl=url, MessageBody="given", MessageSystemAttributes={"AWSTraceHeader": text(long)})
    sqs.json("SendMessage", {"QueueUrl": url, "MessageBody": "of the request"}, {"X-Amzn-Trace-Id": long})

    found = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["AWSTraceHeader"])["Messages"]

    assert [one["Attributes"]["AWSTraceHeader"] for one in found] == [long, long[:1024]]


def test_a_trace_is_a_header_for_workers_and_no_attribute_for_receivers(client: Any, make: Make, v1: Server) -> None:
    url = make()
    attributes = {"kind": text("order")}
    client.send_message(
        QueueUrl=url,
        MessageBody="m",
        MessageAttributes=attributes,
        MessageSystemAttributes={"AWSTraceHeader": text(TRACE)},
    )
    client.send_message(QueueUrl=url, MessageBody="m", MessageSystemAttributes={"AWSTraceHeader": text("Root=1-2-3")})

    stored = v1.call("GET", url.rsplit("/", 1)[1]).json()["messages"]
    received = client.receive_message(
        QueueUrl=url,
        MaxNumberOfMessages=10,
        MessageAttributeNames=["All"],
        MessageSystemAttributeNames=["AWSTraceHeader"],
    )["Messages"]

    assert [one["headers"].get("traceparent") for one in stored] == [TRACEPARENT, None]
    shown = {one["Attributes"]["AWSTraceHeader"]: one.get("MessageAttributes") for one in received}
    assert shown == {TRACE: attributes, "Root=1-2-3": None}


@pytest.mark.parametrize(
    "given", [{"AWSTraceHeader": binary(b"x")}, {"AWSTraceHeader": text("1", "Number")}, {"Other": text("x")}]
)
def test_no_other_system_attribute_can_be_sent(timed: TimedSqs, timed_make: Make, given: dict[str, Any]) -> None:
    send = timed.client.send_message

    assert (
        code_of(send, QueueUrl=timed_make(), MessageBody="m", MessageSystemAttributes=given) == "InvalidParameterValue"
    )


def test_system_attributes_of_a_message(sqs: SqsServer, client: Any, make: Make) -> None:
    url = make()
    client.send_message(QueueUrl=url, MessageBody="m")

    (message,) = client.receive_message(QueueUrl=url, AttributeNames=["All"], VisibilityTimeout=0)["Messages"]
    (again,) = client.receive_message(QueueUrl=url, MessageSystemAttributeNames=["All"], AttributeNames=["SenderId"])[
        "Messages"
    ]

    found = message["Attributes"]
    names = {"SenderId", "SentTimestamp", "ApproximateReceiveCount", "ApproximateFirstReceiveTimestamp"}
    assert found.keys() == again["Attributes"].keys() == names
    assert found["SenderId"] == sqs.accounts["queuey"]
    assert len(found["SentTimestamp"]) == len(found["ApproximateFirstReceiveTimestamp"]) == len("1800000000000")
    assert found["ApproximateReceiveCount"] == "1"
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"
    assert again["ReceiptHandle"] != message["ReceiptHandle"]


def test_an_unknown_system_attribute_is_refused(timed: TimedSqs, timed_make: Make) -> None:
    said = refused(timed.client.receive_message, QueueUrl=timed_make(), AttributeNames=["Colour"])

    assert said == ("InvalidAttributeName", "Unknown Attribute Colour.")


@pytest.mark.parametrize("body", ["\t\n\r ", "é\ud7ff\ue000\ufffd\U00010000\U0010ffff", "a\r\nb", "\"<&>'", "x" * 1000])
def test_bodies_that_may_be(client: Any, make: Make, body: str) -> None:
    url = make()

    client.send_message(QueueUrl=url, MessageBody=body, MessageAttributes={"a": text(body)})
    (message,) = client.receive_message(QueueUrl=url, MessageAttributeNames=["a"])["Messages"]

    assert (message["Body"], message["MessageAttributes"]["a"]["StringValue"]) == (body, body)


@pytest.mark.parametrize("body", ["\x00", "a\x0bb", "\x1f", "\ufffe", "\uffff"])
def test_characters_that_no_message_may_have(timed: TimedSqs, timed_make: Make, body: str) -> None:
    url = timed_make()
    send = timed.client.send_message

    assert refused(send, QueueUrl=url, MessageBody=body)[0] == "InvalidMessageContents"
    assert code_of(send, QueueUrl=url, MessageBody="m", MessageAttributes={"a": text(body)}) in (
        "InvalidMessageContents",
        "InvalidParameterValue",
    )


def test_an_empty_body_is_a_missing_one(client: Any, make: Make) -> None:
    url = make()

    assert code_of(client.send_message, QueueUrl=url, MessageBody="") == "MissingParameter"
    said = refused(client.send_message, QueueUrl=url, MessageBody="")[1]
    assert said == "The request must contain the parameter MessageBody."


def test_sizes_count_bodies_and_attributes(timed: TimedSqs, timed_make: Make) -> None:
    url = timed_make(MaximumMessageSize="1024")
    attribute = {"né": text("value", "String.x")}
    size = len("né".encode()) - 1 + len("String.x") + len("value")
    attribute = {"ne": attribute["né"]}
    send = timed.client.send_message

    send(QueueUrl=url, MessageBody="é" * 512)
    send(QueueUrl=url, MessageBody="x" * (1024 - size), MessageAttributes=attribute)
    trace = {"AWSTraceHeader": text(TRACE)}
    send(QueueUrl=url, MessageBody="x" * 1024, MessageSystemAttributes=trace)

    reason = "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes."
    assert refused(send, QueueUrl=url, MessageBody="é" * 512 + "x")[1] == reason
    assert refused(send, QueueUrl=url, MessageBody="x" * (1025 - size), MessageAttributes=attribute)[1] == reason


def test_a_message_may_have_a_mebibyte(client: Any, make: Make) -> None:
    url, body = make(), "m" * (1 << 20)

    client.send_message(QueueUrl=url, MessageBody=body)

    assert bodies(client.receive_message(QueueUrl=url)) == [body]
    assert code_of(client.send_message, QueueUrl=url, MessageBody=body + "m") == "InvalidParameterValue"


def test_ten_attributes_and_no_more(timed: TimedSqs, timed_make: Make) -> None:
    url, send = timed_make(), timed.client.send_message

    send(QueueUrl=url, MessageBody="m", MessageAttributes={f"a{at}": text("v") for at in range(10)})

    eleven = {f"a{at}": text("v") for at in range(11)}
    assert code_of(send, QueueUrl=url, MessageBody="m", MessageAttributes=eleven) == "InvalidParameterValue"


@pytest.mark.parametrize("name", ["a", "A-b_c.d9", "x" * 128])
def test_names_of_attributes_that_may_be(timed: TimedSqs, timed_make: Make, name: str) -> None:
    timed.client.send_message(QueueUrl=timed_make(), MessageBody="m", MessageAttributes={name: text("v")})


@pytest.mark.parametrize(
    "name", ["", "x" * 257, "a b", ".a", "a.", "a/b", "AWS.a", "aws.a", "Amazon.a", "amazon.a", "a\n"]
)
def test_names_of_attributes_that_may_not_be(timed: TimedSqs, timed_make: Make, name: str) -> None:
    send, given = timed.client.send_message, {name: text("v")}

    assert code_of(send, QueueUrl=timed_make(), MessageBody="m", MessageAttributes=given) == "InvalidParameterValue"


@pytest.mark.parametrize(
    "value",
    [
        text("v", "String.label"),
        text("v", "String." + "x" * 249),
        text("-1.5e10", "Number"),
        text("0", "Number"),
        text("9" * 38, "Number"),
        binary(b"\xff", "Binary.png"),
    ],
)
def test_values_that_may_be(timed: TimedSqs, timed_make: Make, value: dict[str, Any]) -> None:
    url = timed_make()
    timed.client.send_message(QueueUrl=url, MessageBody="m", MessageAttributes={"a": value})

    (message,) = timed.client.receive_message(QueueUrl=url, MessageAttributeNames=["a"])["Messages"]

    assert message["MessageAttributes"] == {"a": value}


@pytest.mark.parametrize(
    "value",
    [
        text("v", "Text"),
        text("v", "string"),
        text("v", ""),
        text("v", "String." + "x" * 250),
        text("", "String"),
        text("", "Number"),
        binary(b""),
        text("one", "Number"),
        text("1e999", "Number"),
        text("9" * 39, "Number"),
        {"DataType": "String"},
        {"DataType": "Binary", "StringValue": "v"},
        {"DataType": "String", "StringValue": "v", "BinaryValue": b"v"},
        {"DataType": "Binary", "StringValue": "v", "BinaryValue": b"v"},
        {"DataType": "String", "StringListValues": ["v"]},
        {"DataType": "Binary", "BinaryListValues": [b"v"]},
    ],
)
def test_values_that_may_not_be(timed: TimedSqs, timed_make: Make, value: dict[str, Any]) -> None:
    send, given = timed.client.send_message, {"a": value}

    assert code_of(send, QueueUrl=timed_make(), MessageBody="m", MessageAttributes=given) == "InvalidParameterValue"


def test_an_empty_value_has_a_text_of_its_own(timed: TimedSqs, timed_make: Make) -> None:
    given = {"a": text("")}

    said = refused(timed.client.send_message, QueueUrl=timed_make(), MessageBody="m", MessageAttributes=given)

    assert said[1] == "Message (user) attribute 'a' must contain a non-empty value of type 'String'."


def test_a_message_may_be_delayed(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make()
    client.send_message(QueueUrl=url, MessageBody="later", DelaySeconds=900)

    timed.clock.advance(899)
    early = bodies(client.receive_message(QueueUrl=url))
    timed.clock.advance(1)
    (message,) = client.receive_message(QueueUrl=url, AttributeNames=["All"])["Messages"]

    assert early == []
    found = message["Attributes"]
    assert int(found["ApproximateFirstReceiveTimestamp"]) - int(found["SentTimestamp"]) == 900_000


def test_a_delay_has_bounds(timed: TimedSqs, timed_make: Make) -> None:
    said = refused(timed.client.send_message, QueueUrl=timed_make(), MessageBody="m", DelaySeconds=901)

    reason = "Reason: DelaySeconds must be >= 0 and <= 900."
    assert said == ("ClientError", f"Value 901 for parameter DelaySeconds is invalid. {reason}")


def test_retention_counts_from_the_send_and_ends_leases_too(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make(MessageRetentionPeriod="60")
    client.send_message(QueueUrl=url, MessageBody="m")
    timed.clock.advance(50)
    (message,) = client.receive_message(QueueUrl=url, VisibilityTimeout=5)["Messages"]
    timed.clock.advance(11)

    assert bodies(client.receive_message(QueueUrl=url)) == []
    client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    found = client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert [value for name, value in found.items() if name.startswith("ApproximateNumber")] == ["0", "0", "0"]


def test_retention_of_a_delayed_message_counts_from_the_send_too(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make(MessageRetentionPeriod="60")
    client.send_message(QueueUrl=url, MessageBody="m", DelaySeconds=40)
    timed.clock.advance(59)
    found = bodies(client.receive_message(QueueUrl=url, VisibilityTimeout=0))
    timed.clock.advance(1.1)

    assert (found, bodies(client.receive_message(QueueUrl=url))) == (["m"], [])
