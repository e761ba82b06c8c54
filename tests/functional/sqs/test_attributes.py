"""Attributes of queues: defaults, bounds, kinds, and Amazon's words for what is wrong (leases.md, section 5)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.client import new_name
from tests.support.sqs_clients import SqsServer, TimedSqs, code_of, refused

BOUNDS = {
    "DelaySeconds": (0, 900, "0"),
    "MaximumMessageSize": (1024, 1_048_576, "1048576"),
    "MessageRetentionPeriod": (60, 1_209_600, "345600"),
    "ReceiveMessageWaitTimeSeconds": (0, 20, "0"),
    "VisibilityTimeout": (0, 43_200, "30"),
}
READ_ONLY = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesDelayed",
    "ApproximateNumberOfMessagesNotVisible",
    "CreatedTimestamp",
    "LastModifiedTimestamp",
    "QueueArn",
)
ALL = {*BOUNDS, *READ_ONLY, "SqsManagedSseEnabled"}
OF_FIFO = {"ContentBasedDeduplication", "DeduplicationScope", "FifoQueue", "FifoThroughputLimit"}


def attributes(client: Any, url: str, *names: str) -> dict[str, str]:
    found: dict[str, str] = client.get_queue_attributes(QueueUrl=url, AttributeNames=[*(names or ("All",))]).get(
        "Attributes", {}
    )
    return found


def test_all_attributes_of_a_fresh_queue(sqs: SqsServer, client: Any, make: Callable[..., str]) -> None:
    url = make()

    found = attributes(client, url)

    assert found.keys() == ALL
    assert {name: found[name] for name in BOUNDS} == {name: default for name, (_, _, default) in BOUNDS.items()}
    assert found["SqsManagedSseEnabled"] == "true"
    assert found["QueueArn"] == f"arn:aws:sqs:eu-west-1:{sqs.accounts['queuey']}:{url.rsplit('/', 1)[1]}"
    assert len(found["CreatedTimestamp"]) == len(found["LastModifiedTimestamp"]) == len("1800000000")


def test_messages_that_are_deleted_or_received_while_they_are_counted(
    timed: TimedSqs, timed_make: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, url = timed.client, timed_make()
    for body in "abc":
        client.send_message(QueueUrl=url, MessageBody=body)
    handles = [client.receive_message(QueueUrl=url)["Messages"][0]["ReceiptHandle"] for _ in range(2)]
    held = timed.service.leases.held

    def later(*given: Any, **named: Any) -> Any:
        client.delete_message(QueueUrl=url, ReceiptHandle=handles[0])
        client.receive_message(QueueUrl=url)
        return held(*given, **named)

    monkeypatch.setattr(timed.service.leases, "held", later)
    found = attributes(client, url, "ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")

    assert [*found.values()] == ["1", "1"]


def test_all_attributes_of_a_fresh_fifo_queue(client: Any, make: Callable[..., str]) -> None:
    found = attributes(client, make(fifo=True))

    assert found.keys() == ALL | OF_FIFO
    assert {name: found[name] for name in OF_FIFO} == {
        "ContentBasedDeduplication": "false",
        "DeduplicationScope": "queue",
        "FifoQueue": "true",
        "FifoThroughputLimit": "perQueue",
    }


def test_six_reads_after_a_creation_are_equal(client: Any) -> None:
    """Terraform reads until it has seen the same so often."""
    policy = json.dumps({"redrivePermission": "denyAll"})
    given = {"VisibilityTimeout": "7", "KmsMasterKeyId": "alias/aws/sqs", "RedriveAllowPolicy": policy}
    url = client.create_queue(QueueName=new_name(), Attributes=given)["QueueUrl"]

    found = [attributes(client, url) for _ in range(6)]

    assert all(one == found[0] for one in found)
    assert given.items() <= found[0].items()


def test_attributes_by_name(client: Any, make: Callable[..., str]) -> None:
    url = make(DelaySeconds="5")

    assert attributes(client, url, "DelaySeconds", "Policy", "RedrivePolicy") == {"DelaySeconds": "5"}
    assert "Attributes" not in client.get_queue_attributes(QueueUrl=url)
    said = refused(client.get_queue_attributes, QueueUrl=url, AttributeNames=["Colour"])
    assert said == ("InvalidAttributeName", "Unknown Attribute Colour.")
    assert refused(client.get_queue_attributes, QueueUrl=url, AttributeNames=["All", "Colour"]) == said


@pytest.mark.parametrize("name", BOUNDS)
def test_numbers_have_bounds(timed: TimedSqs, timed_make: Callable[..., str], name: str) -> None:
    client, url = timed.client, timed_make()
    least, most, default = BOUNDS[name]

    for wrong in (least - 1, most + 1, "many", "", "1.5", " 1"):
        said = refused(client.set_queue_attributes, QueueUrl=url, Attributes={name: str(wrong)})
        assert said == ("InvalidAttributeValue", f"Invalid value for the parameter {name}.")
        assert refused(client.create_queue, QueueName=new_name(), Attributes={name: str(wrong)}) == said
    assert attributes(client, url, name) == {name: default}
    for right in (least, most):
        client.set_queue_attributes(QueueUrl=url, Attributes={name: str(right)})
        assert attributes(client, url, name) == {name: str(right)}


@pytest.mark.parametrize("name", [*READ_ONLY, "Colour", ""])
def test_what_cannot_be_set(timed: TimedSqs, timed_make: Callable[..., str], name: str) -> None:
    given = {name: "1"}

    said = refused(timed.client.set_queue_attributes, QueueUrl=timed_make(), Attributes=given)

    assert said == ("InvalidAttributeName", f"Unknown Attribute {name}.")
    assert refused(timed.client.create_queue, QueueName=new_name(), Attributes=given) == said


@pytest.mark.parametrize("text", ["True", "TRUE", "true"])
def test_a_flag_is_taken_in_any_case(timed: TimedSqs, text: str) -> None:
    name = new_name() + ".fifo"
    given = {"FifoQueue": text, "ContentBasedDeduplication": text}

    url = timed.client.create_queue(QueueName=name, Attributes=given)["QueueUrl"]

    assert attributes(timed.client, url, *given) == dict.fromkeys(given, "true")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ContentBasedDeduplication", "Unknown Attribute ContentBasedDeduplication."),
        ("DeduplicationScope", "You can specify the DeduplicationScope only when FifoQueue is set to true."),
        ("FifoThroughputLimit", "You can specify the FifoThroughputLimit only when FifoQueue is set to true."),
    ],
)
def test_a_standard_queue_has_no_attributes_of_fifo_queues(
    timed: TimedSqs, timed_make: Callable[..., str], name: str, text: str
) -> None:
    value = {"ContentBasedDeduplication": "true", "DeduplicationScope": "queue"}.get(name, "perQueue")

    said = refused(timed.client.set_queue_attributes, QueueUrl=timed_make(), Attributes={name: value})

    assert said == ("InvalidAttributeName", text)
    assert refused(timed.client.create_queue, QueueName=new_name(), Attributes={name: value}) == said


def test_the_type_of_a_queue_never_changes(timed: TimedSqs, timed_make: Callable[..., str]) -> None:
    change = timed.client.set_queue_attributes

    said = refused(change, QueueUrl=timed_make(fifo=True), Attributes={"FifoQueue": "false"})

    reason = "Reason: Modifying queue type is not supported."
    assert said == ("InvalidAttributeValue", f"Invalid value for the parameter FifoQueue. {reason}")
    said = refused(change, QueueUrl=timed_make(), Attributes={"FifoQueue": "true"})
    assert said == ("InvalidAttributeName", "Unknown Attribute FifoQueue.")
    said = refused(timed.client.create_queue, QueueName=new_name(), Attributes={"FifoQueue": "false"})
    assert said == ("InvalidAttributeName", "Unknown Attribute FifoQueue.")


def test_high_throughput_needs_the_scope_of_groups(timed: TimedSqs, timed_make: Callable[..., str]) -> None:
    url, change = timed_make(fifo=True), timed.client.set_queue_attributes
    mode = {"FifoThroughputLimit": "perMessageGroupId"}

    assert code_of(change, QueueUrl=url, Attributes=mode) == "InvalidAttributeValue"
    change(QueueUrl=url, Attributes={**mode, "DeduplicationScope": "messageGroup"})

    assert attributes(timed.client, url, *mode) == mode


def test_the_time_of_the_last_change(timed: TimedSqs, timed_make: Callable[..., str]) -> None:
    url = timed_make()
    before = attributes(timed.client, url)
    timed.clock.advance(10)

    timed.client.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "1"})

    after = attributes(timed.client, url)
    assert after["CreatedTimestamp"] == before["CreatedTimestamp"] == before["LastModifiedTimestamp"]
    assert int(after["LastModifiedTimestamp"]) == int(before["LastModifiedTimestamp"]) + 10


def test_messages_are_counted_by_what_can_be_done_with_them(client: Any, make: Callable[..., str]) -> None:
    url = make()
    for body in "abc":
        client.send_message(QueueUrl=url, MessageBody=body)
    client.send_message(QueueUrl=url, MessageBody="later", DelaySeconds=900)
    client.receive_message(QueueUrl=url)

    found = attributes(client, url, *READ_ONLY[:3])

    assert [found[name] for name in READ_ONLY[:3]] == ["2", "1", "1"]


def test_a_queue_that_is_made_again_may_write_its_policies_otherwise(
    sqs: SqsServer, client: Any, make: Callable[..., str]
) -> None:
    dead = attributes(client, make(), "QueueArn")["QueueArn"]
    principal = {"AWS": [sqs.accounts["other"]]}
    statement = {"Sid": "s", "Effect": "Allow", "Principal": principal, "Action": ["SQS:SendMessage"], "Resource": "*"}
    policies: dict[str, dict[str, Any]] = {
        "Policy": {"Version": "2012-10-17", "Statement": [statement]},
        "RedrivePolicy": {"deadLetterTargetArn": dead, "maxReceiveCount": 3},
        "RedriveAllowPolicy": {"redrivePermission": "byQueue", "sourceQueueArns": [dead]},
    }

    def made(indent: int | None, **changed: Any) -> str:
        given = {name: dict(reversed((policy | changed.get(name, {})).items())) for name, policy in policies.items()}
        texts = {name: json.dumps(policy, indent=indent) for name, policy in given.items()}
        return str(client.create_queue(QueueName=name, Attributes=texts)["QueueUrl"])

    name = new_name()
    assert made(None) == made(2) == made(None, RedrivePolicy={"maxReceiveCount": "3"})
    assert code_of(made, indent=None, RedrivePolicy={"maxReceiveCount": 4}) == "QueueAlreadyExists"
    assert code_of(made, indent=None, Policy={"Version": "2008-10-17"}) == "QueueAlreadyExists"


def test_an_empty_policy_is_none(client: Any, make: Callable[..., str]) -> None:
    dead = attributes(client, make(), "QueueArn")["QueueArn"]
    url = make(RedrivePolicy=json.dumps({"deadLetterTargetArn": dead, "maxReceiveCount": 3}))

    client.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": "", "Policy": ""})

    assert attributes(client, url, "RedrivePolicy", "Policy") == {}


@pytest.mark.parametrize(
    "policy",
    [
        "no json",
        "[]",
        "{}",
        '{"deadLetterTargetArn": "arn", "maxReceiveCount": 3}',
        '{"maxReceiveCount": 3}',
        '{"deadLetterTargetArn": "DEAD"}',
        '{"deadLetterTargetArn": "DEAD", "maxReceiveCount": 0}',
        '{"deadLetterTargetArn": "DEAD", "maxReceiveCount": 1001}',
        '{"deadLetterTargetArn": "DEAD", "maxReceiveCount": true}',
        '{"deadLetterTargetArn": "DEAD", "maxReceiveCount": 3, "more": 1}',
        '{"deadLetterTargetArn": "SELF", "maxReceiveCount": 3}',
        '{"deadLetterTargetArn": "FIFO", "maxReceiveCount": 3}',
        '{"deadLetterTargetArn": "DEADx", "maxReceiveCount": 3}',
        '{"deadLetterTargetArn": "DEAD", "maxReceiveCount": 3' + " " * 8192 + "}",
    ],
)
def test_redrive_policies_that_may_not_be(timed: TimedSqs, timed_make: Callable[..., str], policy: str) -> None:
    url, dead, fifo = timed_make(), timed_make(), timed_make(fifo=True)
    for word, place in (("SELF", url), ("DEAD", dead), ("FIFO", fifo)):
        policy = policy.replace(word, attributes(timed.client, place, "QueueArn")["QueueArn"])

    given = {"RedrivePolicy": policy}

    assert code_of(timed.client.set_queue_attributes, QueueUrl=url, Attributes=given) == "InvalidParameterValue"
    assert attributes(timed.client, url, "RedrivePolicy") == {}


def test_an_account_that_means_two_applications_is_still_that_of_each(
    timed: TimedSqs, timed_make: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timed.service.keys, "application_of_account", lambda _: None)
    dead = attributes(timed.client, timed_make(), "QueueArn")["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": dead, "maxReceiveCount": 1})

    url = timed_make(RedrivePolicy=policy)

    assert attributes(timed.client, url, "RedrivePolicy") == {"RedrivePolicy": policy}
    timed.client.start_message_move_task(SourceArn=dead)


def test_a_dead_letter_queue_says_whose_it_is(timed: TimedSqs, timed_make: Callable[..., str]) -> None:
    client, first, second = timed.client, timed_make(), timed_make()
    arn = attributes(client, first, "QueueArn")["QueueArn"]
    allow = json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": [arn]})
    dead = timed_make(RedriveAllowPolicy=allow)
    policy = json.dumps(
        {"deadLetterTargetArn": attributes(client, dead, "QueueArn")["QueueArn"], "maxReceiveCount": "3"}
    )

    client.set_queue_attributes(QueueUrl=first, Attributes={"RedrivePolicy": policy})

    assert attributes(client, first, "RedrivePolicy") == {"RedrivePolicy": policy}
    refused_second = code_of(client.set_queue_attributes, QueueUrl=second, Attributes={"RedrivePolicy": policy})
    assert refused_second == "InvalidParameterValue"


@pytest.mark.parametrize(
    "policy",
    [
        "{}",
        '{"redrivePermission": "perhaps"}',
        '{"redrivePermission": "byQueue"}',
        '{"redrivePermission": "allowAll", "sourceQueueArns": ["arn:aws:sqs:r:123456789012:q"]}',
        '{"redrivePermission": "byQueue", "sourceQueueArns": ["q"]}',
        json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": ["arn:aws:sqs:r:123456789012:q"] * 11}),
    ],
)
def test_allow_policies_that_may_not_be(timed: TimedSqs, timed_make: Callable[..., str], policy: str) -> None:
    given = {"RedriveAllowPolicy": policy}

    assert (
        code_of(timed.client.set_queue_attributes, QueueUrl=timed_make(), Attributes=given) == "InvalidParameterValue"
    )


def test_a_longer_timeout_counts_for_later_receives(timed: TimedSqs, timed_make: Callable[..., str]) -> None:
    client, url = timed.client, timed_make(VisibilityTimeout="10")
    client.send_message(QueueUrl=url, MessageBody="m")
    client.receive_message(QueueUrl=url)
    client.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "100"})

    timed.clock.advance(10.1)
    again = client.receive_message(QueueUrl=url).get("Messages", [])
    timed.clock.advance(99)
    early = client.receive_message(QueueUrl=url).get("Messages", [])
    timed.clock.advance(1.1)
    late = client.receive_message(QueueUrl=url).get("Messages", [])

    assert [len(again), len(early), len(late)] == [1, 0, 1]


def test_a_delay_of_the_queue_is_that_of_later_messages(timed: TimedSqs, timed_make: Callable[..., str]) -> None:
    client, url = timed.client, timed_make(DelaySeconds="10")
    client.send_message(QueueUrl=url, MessageBody="by the queue")
    client.send_message(QueueUrl=url, MessageBody="at once", DelaySeconds=0)
    client.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "900"})

    first = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    timed.clock.advance(10)
    second = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]

    assert [message["Body"] for message in (*first, *second)] == ["at once", "by the queue"]


def test_one_kind_of_encryption_excludes_the_other(timed: TimedSqs, timed_make: Callable[..., str]) -> None:
    client, url, names = timed.client, timed_make(), ("KmsMasterKeyId", "SqsManagedSseEnabled")

    client.set_queue_attributes(QueueUrl=url, Attributes={"KmsMasterKeyId": "key"})
    by_key = attributes(client, url, *names)
    client.set_queue_attributes(QueueUrl=url, Attributes={"SqsManagedSseEnabled": "true"})
    managed = attributes(client, url, *names)

    assert by_key == {"KmsMasterKeyId": "key", "SqsManagedSseEnabled": "false"}
    assert managed == {"SqsManagedSseEnabled": "true"}
    both = {"KmsMasterKeyId": "key", "SqsManagedSseEnabled": "true"}
    assert code_of(client.set_queue_attributes, QueueUrl=url, Attributes=both) == "InvalidAttributeValue"


@pytest.mark.parametrize(("text", "kept"), [("300", {}), ("", {}), ("60", {"KmsDataKeyReusePeriodSeconds": "60"})])
def test_the_usual_period_of_a_key_counts_as_none(timed: TimedSqs, text: str, kept: dict[str, str]) -> None:
    name, client = new_name(), timed.client
    given = {"KmsDataKeyReusePeriodSeconds": text}
    url = client.create_queue(QueueName=name)["QueueUrl"]

    client.set_queue_attributes(QueueUrl=url, Attributes=given)

    assert attributes(client, url, *given) == kept
    assert client.create_queue(QueueName=name, Attributes=given)["QueueUrl"] == url
