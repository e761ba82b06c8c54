"""The same messages for SQS clients and for v1, headers and attributes included."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from typing import Any

import pytest

from qdo import Client, NewMessage
from qdo.client import Settle
from queuey.future import run
from queuey.ids import ZERO_ID, MessageId
from queuey.model.lease_steps import GroupStep, LeaseStep
from queuey.service.queues import QueueSettings
from tests.support.client import Server, new_name
from tests.support.sqs_clients import TimedSqs, bodies, code_of, refused

Make = Callable[..., str]


def name_of(url: str) -> str:
    return url.rsplit("/", 1)[1]


def test_what_sqs_sends_v1_reads_with_its_attributes_as_headers(client: Any, make: Make, v1: Server) -> None:
    url = make(fifo=True)
    attributes = {
        "plain": {"DataType": "String", "StringValue": "é"},
        "number": {"DataType": "Number.int", "StringValue": "42"},
        "raw": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    client.send_message(
        QueueUrl=url,
        MessageBody="hello é",
        MessageGroupId="group",
        MessageDeduplicationId="d",
        MessageAttributes=attributes,
    )

    with Client(v1.url, v1.application, v1.key) as reader:
        (message,) = reader.read(name_of(url)).messages

    assert message.text == "hello é"
    assert message.key == "group"
    headers = dict(message.headers)
    assert {name: headers[name] for name in attributes} == {
        "plain": "é".encode(),
        "number": b"42",
        "raw": b"\x00\xff",
    }


def test_what_v1_sends_sqs_receives_with_its_headers_as_attributes(client: Any, v1: Server) -> None:
    name = new_name()
    v1.create(name)
    with Client(v1.url, v1.application, v1.key) as sender:
        sender.append(name, NewMessage("hello é", key="k", headers={"plain": b"text", "raw": b"\x00\xff"}))
    url = client.get_queue_url(QueueName=name)["QueueUrl"]

    (message,) = client.receive_message(QueueUrl=url, AttributeNames=["All"], MessageAttributeNames=["All"])["Messages"]

    assert message["Body"] == "hello é"
    assert message["MessageAttributes"] == {
        "plain": {"DataType": "String", "StringValue": "text"},
        "raw": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    assert message["Attributes"]["MessageGroupId"] == "k"
    client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert bodies(client.receive_message(QueueUrl=url)) == []


def test_a_body_that_sqs_cannot_say_comes_in_base64(client: Any, v1: Server) -> None:
    name = new_name()
    v1.create(name)
    v1.post(name, b"\x00\xff")
    url = client.get_queue_url(QueueName=name)["QueueUrl"]

    (body,) = bodies(client.receive_message(QueueUrl=url))

    assert b64decode(body) == b"\x00\xff"


def test_sqs_clients_are_the_lease_group_sqs(client: Any, make: Make, v1: Server) -> None:
    """A message that a v1 receiver of the group has is hidden from SQS clients; other groups get it all the same."""
    url = make()
    client.send_message(QueueUrl=url, MessageBody="m")

    taken = v1.call("POST", name_of(url), "leases", "sqs", json={"receive": {"max": 1}})
    other = v1.call("POST", name_of(url), "leases", "other", json={"receive": {"max": 1}})

    assert len(taken.json()["messages"]) == len(other.json()["messages"]) == 1
    assert bodies(client.receive_message(QueueUrl=url)) == []


def test_a_lease_of_v1_has_the_attributes_as_headers_and_settles_for_sqs(client: Any, make: Make, v1: Server) -> None:
    url = make()
    client.send_message(
        QueueUrl=url, MessageBody="m", MessageAttributes={"a": {"DataType": "String", "StringValue": "é"}}
    )

    with Client(v1.url, v1.application, v1.key) as receiver:
        (taken,) = receiver.receive(name_of(url), "sqs")
        receiver.settle(name_of(url), "sqs", Settle(acknowledge=[taken]))

    assert (taken.text, taken.headers) == ("m", {"a": "é".encode()})
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    assert found == dict.fromkeys(names, "0")


def test_a_fifo_queue_takes_messages_of_v1_by_their_keys(client: Any, make: Make, v1: Server) -> None:
    url = make(fifo=True)
    client.send_message(QueueUrl=url, MessageBody="1", MessageGroupId="g", MessageDeduplicationId="d")
    with Client(v1.url, v1.application, v1.key) as sender:
        for body, key in (("2", "g"), ("3", "h"), ("4", None)):
            sender.append(name_of(url), NewMessage(body, key=key))

    (first,) = client.receive_message(QueueUrl=url, AttributeNames=["All"])["Messages"]
    others = client.receive_message(QueueUrl=url, AttributeNames=["All"], MaxNumberOfMessages=10)["Messages"]

    assert first["Body"] == "1"
    assert [(one["Body"], one["Attributes"].get("MessageGroupId")) for one in others] == [("3", "h"), ("4", None)]


def test_queues_of_v1_are_listed_and_have_attributes(client: Any, v1: Server) -> None:
    name = new_name()
    v1.create(name, partitions=3)

    (url,) = client.list_queues(QueueNamePrefix=name)["QueueUrls"]
    found = client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]

    assert found["VisibilityTimeout"] == "30"
    assert "FifoQueue" not in found


def test_v1_sees_the_queue_that_sqs_made(client: Any, make: Make, v1: Server) -> None:
    url = make(fifo=True)

    found = v1.call("GET", name_of(url), params={"info": "true"}).json()

    assert found["queue_name"] == name_of(url)
    assert found["retention"] == "acknowledged"
    assert json.dumps(found)


def test_nobody_moves_messages_that_they_may_not_receive(client: Any, make: Make, v1: Server) -> None:
    """As with a redrive of v1: its owner would read them where they go."""
    dead = make()
    arn = client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    make(RedrivePolicy=json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1}))
    other = client.get_queue_attributes(QueueUrl=make(), AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    client.send_message(QueueUrl=dead, MessageBody="for other alone")
    v1.call("PUT", name_of(dead), data={"principles": "app:other"})

    for destination in ({}, {"DestinationArn": other}):
        assert code_of(client.start_message_move_task, SourceArn=arn, **destination) == "AccessDenied"
    assert client.list_message_move_tasks(SourceArn=arn).get("Results", []) == []

    v1.call("PUT", name_of(dead), data={"principles": "app:other,app:queuey"})
    assert client.start_message_move_task(SourceArn=arn, DestinationArn=other)["TaskHandle"]


def test_another_application_sees_nothing_of_it(other_client: Any, make: Make) -> None:
    name = name_of(make())

    assert "QueueUrls" not in other_client.list_queues(QueueNamePrefix=name)


def test_what_another_group_has_settled_stays_for_sqs_clients_that_have_not_come_yet(
    timed: TimedSqs, timed_make: Make
) -> None:
    client, url = timed.client, timed_make()
    client.send_message(QueueUrl=url, MessageBody="m")
    service = timed.service
    queue = run(service.queues.find("queuey", name_of(url)))
    assert queue is not None
    theirs = service.leases.new_group(service.leases.default_settings, ZERO_ID)
    all_of_it = {1: MessageId.last_of(service.clock.now_ticks())}
    timed.clock.advance(1)

    service.stores.leases.step(LeaseStep([GroupStep(queue, "theirs", theirs, passes=all_of_it)])).result()
    service.retained.note(queue)
    run(service.retained.turn())

    assert bodies(client.receive_message(QueueUrl=url)) == ["m"]


def test_what_rest_has_set_stays_until_attributes_are_set(timed: TimedSqs) -> None:
    """Of the queue, what its lease groups begin with and how long dead letters live; and of the group of SQS clients."""
    client, service, name = timed.client, timed.service, new_name()
    leases = {"max_failures": 7, "dead_letter_queue": "rest-dead", "order": "key", "visibility": 100.0}
    made = run(service.queues.create("queuey", name, QueueSettings(leases=leases)))
    group = service.leases.new_group(made.leases.settings(service.leases.default_settings), ZERO_ID)
    run(service.leases.keep(made, "sqs", group, None))
    url = client.get_queue_url(QueueName=name)["QueueUrl"]

    client.tag_queue(QueueUrl=url, Tags={"a": "b"})
    client.send_message(QueueUrl=url, MessageBody="m", MessageGroupId="g")
    client.add_permission(QueueUrl=url, Label="l", AWSAccountIds=["123456789012"], Actions=["SendMessage"])
    client.purge_queue(QueueUrl=url)

    found = run(service.queues.find("queuey", name))
    assert found is not None
    assert found.leases == made.leases
    kept = service.leases.find(found, "sqs").wait()
    assert kept is not None
    assert kept.settings == group.settings
    client.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "0"})
    changed = service.leases.find(found, "sqs").wait()
    assert changed is not None
    settings = changed.settings
    assert (settings.max_failures, settings.order, settings.visibility, settings.fair) == (0, "none", 30.0, True)


@pytest.mark.parametrize("is_made_by", ["REST", "SQS clients"])
def test_a_dead_letter_queue_that_rest_names_is_made_whatever_sqs_clients_change(
    timed: TimedSqs, timed_make: Callable[..., str], is_made_by: str
) -> None:
    client, service, dead = timed.client, timed.service, new_name()
    if is_made_by == "REST":
        name = new_name()
        run(service.queues.create("queuey", name, QueueSettings()))
    else:
        name = timed_make().rsplit("/", 1)[1]
    made = run(service.queues.find("queuey", name))
    assert made is not None
    leases = {"max_failures": 1, "dead_letter_queue": dead, "visibility": 0.0}
    made = run(service.queues.update(made, QueueSettings(leases=leases)))
    group = service.leases.new_group(made.leases.settings(service.leases.default_settings), ZERO_ID)
    run(service.leases.keep(made, "sqs", group, service.leases.find(made, "sqs").wait()))
    url = client.get_queue_url(QueueName=name)["QueueUrl"]
    client.tag_queue(QueueUrl=url, Tags={"a": "b"})
    client.send_message(QueueUrl=url, MessageBody="m")

    for _ in range(2):
        client.receive_message(QueueUrl=url)

    there = client.get_queue_url(QueueName=dead)["QueueUrl"]
    assert bodies(client.receive_message(QueueUrl=there)) == ["m"]


def test_attributes_that_are_set_again_count_again(timed: TimedSqs) -> None:
    client, service, name = timed.client, timed.service, new_name()
    made = run(service.queues.create("queuey", name, QueueSettings()))
    url = client.get_queue_url(QueueName=name)["QueueUrl"]
    client.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "45"})
    run(service.queues.update(made, QueueSettings(leases={"visibility": 100.0})))

    client.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "45"})

    found = run(service.queues.find("queuey", name))
    assert found is not None
    assert found.leases.settings(service.leases.default_settings).visibility == 45.0


def test_the_visibility_that_rest_has_set_is_that_of_a_receive(timed: TimedSqs, timed_make: Make) -> None:
    client, service, url = timed.client, timed.service, timed_make()
    queue = run(service.queues.find("queuey", name_of(url)))
    assert queue is not None
    group = service.leases.find(queue, "sqs").wait()
    assert group is not None
    run(service.leases.keep(queue, "sqs", group._replace(settings=group.settings._replace(visibility=100.0)), group))
    client.send_message(QueueUrl=url, MessageBody="m")

    found = [bodies(client.receive_message(QueueUrl=url))]
    for seconds in (98, 3):
        timed.clock.advance(seconds)
        found.append(bodies(client.receive_message(QueueUrl=url)))

    assert found == [["m"], [], ["m"]]


def test_a_handle_of_another_lease_group_is_none(client: Any, make: Make, v1: Server) -> None:
    """Also one of a former group of this name, which v1 has let forget its leases: a delete that is answered deletes."""
    url = make()
    client.send_message(QueueUrl=url, MessageBody="m")
    (message,) = client.receive_message(QueueUrl=url)["Messages"]
    taken = v1.call("POST", name_of(url), "leases", "other", json={"receive": {"max": 1}}).json()["messages"][0]
    v1.call("DELETE", name_of(url), "leases", "sqs")

    for already in (False, True):
        if already:
            (again,) = client.receive_message(QueueUrl=url)["Messages"]
        for handle in (message["ReceiptHandle"], taken["receipt"]):
            entry = {"Id": "a", "ReceiptHandle": handle}
            deleted = client.delete_message_batch(QueueUrl=url, Entries=[entry])
            assert refused(client.delete_message, QueueUrl=url, ReceiptHandle=handle)[0] == "ReceiptHandleIsInvalid"
            assert [one["Code"] for one in deleted["Failed"]] == ["ReceiptHandleIsInvalid"]
            if already:
                changed = client.change_message_visibility_batch(
                    QueueUrl=url, Entries=[{**entry, "VisibilityTimeout": 0}]
                )
                assert [one["Code"] for one in changed["Failed"]] == ["ReceiptHandleIsInvalid"]
                change = client.change_message_visibility
                said = refused(change, QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=0)
                assert said[0] == "ReceiptHandleIsInvalid"
    client.delete_message(QueueUrl=url, ReceiptHandle=again["ReceiptHandle"])
    assert bodies(client.receive_message(QueueUrl=url)) == []
