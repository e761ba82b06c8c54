"""Leases, that SQS calls visibility timeouts, and waiting for messages (leases.md, sections 6 and 9)."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import pytest

from tests.support.client import Server
from tests.support.live import until_waiting
from tests.support.servers import eventually
from tests.support.sqs_clients import JSON, SqsServer, TimedSqs, bodies, code_of, refused, sqs_client

Make = Callable[..., str]


def received(client: Any, url: str, **asked: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.receive_message(
        QueueUrl=url, AttributeNames=["ApproximateReceiveCount"], **asked
    ).get("Messages", [])
    return found


def count(message: dict[str, Any]) -> int:
    return int(message["Attributes"]["ApproximateReceiveCount"])


def test_a_message_is_hidden_for_the_timeout_and_comes_again(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make(VisibilityTimeout="10")
    client.send_message(QueueUrl=url, MessageBody="m")

    (first,) = received(client, url)
    timed.clock.advance(9)
    hidden = received(client, url)
    timed.clock.advance(1.1)
    (second,) = received(client, url, VisibilityTimeout=2)
    timed.clock.advance(2.1)
    (third,) = received(client, url)

    assert hidden == []
    assert [count(one) for one in (first, second, third)] == [1, 2, 3]
    assert len({one["ReceiptHandle"] for one in (first, second, third)}) == 3
    assert first["MessageId"] == second["MessageId"] == third["MessageId"]


def test_a_timeout_of_zero_leaves_it_visible_and_counts(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make()
    client.send_message(QueueUrl=url, MessageBody="m")

    found = [received(client, url, VisibilityTimeout=0) for _ in range(3)]

    assert [count(message) for (message,) in found] == [1, 2, 3]


def test_one_message_unless_more_are_asked_for(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make()
    for body in "abcdefghijkl":
        client.send_message(QueueUrl=url, MessageBody=body)

    assert [len(received(client, url, **asked)) for asked in ({}, {"MaxNumberOfMessages": 10}, {})] == [1, 10, 1]


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (
            {"WaitTimeSeconds": 21},
            "Value 21 for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20, if provided.",
        ),
        ({"MaxNumberOfMessages": 11}, "Value 11 for parameter MaxNumberOfMessages is invalid."),
        ({"MaxNumberOfMessages": 0}, "Value 0 for parameter MaxNumberOfMessages is invalid."),
        ({"VisibilityTimeout": 43_201}, "Value 43201 for parameter VisibilityTimeout is invalid."),
        ({"VisibilityTimeout": -1}, "Value -1 for parameter VisibilityTimeout is invalid."),
        ({"ReceiveRequestAttemptId": "a"}, "Value a for parameter ReceiveRequestAttemptId is invalid."),
    ],
)
def test_a_receive_has_bounds(timed: TimedSqs, timed_make: Make, asked: dict[str, Any], text: str) -> None:
    shape, said = refused(timed.client.receive_message, QueueUrl=timed_make(), **asked)

    assert shape == "ClientError"
    assert said.startswith(text)


def test_an_older_or_expired_handle_deletes_a_message_of_a_standard_queue(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make(VisibilityTimeout="10")
    client.send_message(QueueUrl=url, MessageBody="m")
    (first,) = received(client, url)
    timed.clock.advance(10.1)
    (second,) = received(client, url)

    client.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])

    timed.clock.advance(100)
    assert received(client, url) == []
    for one in (first, second):  # to delete again is no error
        client.delete_message(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])


@pytest.mark.parametrize("handle", ["h", "AAAA", "é", "x" * 2000, " "])
def test_what_can_be_no_handle(timed: TimedSqs, timed_make: Make, handle: str) -> None:
    client, url = timed.client, timed_make()
    shown = handle if len(handle) <= 1024 else f"{handle[:1024]}..."

    text = f'The input receipt handle "{shown}" is not a valid receipt handle.'
    assert refused(client.delete_message, QueueUrl=url, ReceiptHandle=handle) == ("ReceiptHandleIsInvalid", text)
    changed = refused(client.change_message_visibility, QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=1)
    assert changed == ("ReceiptHandleIsInvalid", text)


def test_a_handle_is_good_for_its_queue_alone(timed: TimedSqs, timed_make: Make) -> None:
    client, url, another = timed.client, timed_make(), timed_make()
    client.send_message(QueueUrl=url, MessageBody="m")
    (message,) = received(client, url)

    handle = message["ReceiptHandle"]

    assert refused(client.delete_message, QueueUrl=another, ReceiptHandle=handle)[0] == "ReceiptHandleIsInvalid"


def test_a_timeout_is_changed_from_now_on(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make(VisibilityTimeout="10")
    client.send_message(QueueUrl=url, MessageBody="m")
    (message,) = received(client, url)
    change = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}

    timed.clock.advance(9)
    client.change_message_visibility(**change, VisibilityTimeout=20)
    timed.clock.advance(19)
    hidden = received(client, url)
    client.change_message_visibility(**change, VisibilityTimeout=0)
    (again,) = received(client, url)
    timed.clock.advance(10.1)
    (third,) = received(client, url)  # a change is not remembered for the next receive

    assert hidden == []
    assert [count(again), count(third)] == [2, 3]


def test_a_lease_that_ran_out_is_not_changed(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make(VisibilityTimeout="10")
    client.send_message(QueueUrl=url, MessageBody="m")
    (message,) = received(client, url)
    timed.clock.advance(11)

    client.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=100)

    assert len(received(client, url)) == 1


def test_an_older_handle_changes_no_timeout_of_the_next_receiver(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make(VisibilityTimeout="10")
    client.send_message(QueueUrl=url, MessageBody="m")
    (older,) = received(client, url, VisibilityTimeout=0)
    assert len(received(client, url)) == 1

    client.change_message_visibility(QueueUrl=url, ReceiptHandle=older["ReceiptHandle"], VisibilityTimeout=0)

    assert received(client, url) == []


def test_the_lease_of_a_deleted_message_cannot_be_changed(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make()
    client.send_message(QueueUrl=url, MessageBody="m")
    (message,) = received(client, url)
    handle = message["ReceiptHandle"]
    client.delete_message(QueueUrl=url, ReceiptHandle=handle)

    said = refused(client.change_message_visibility, QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=1)

    reason = "Reason: Message does not exist or is not available for visibility timeout change."
    assert said == ("ClientError", f"Value {handle} for parameter ReceiptHandle is invalid. {reason}")


def test_twelve_hours_from_the_receive_are_the_most(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make(VisibilityTimeout="43200")
    client.send_message(QueueUrl=url, MessageBody="m")
    (message,) = received(client, url)
    timed.clock.advance(10.1)

    change = client.change_message_visibility
    wrong = code_of(change, QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=43_191)
    change(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=43_189)

    assert wrong == "InvalidParameterValue"


def test_a_wait_ends_with_a_message(sqs: SqsServer, client: Any, make: Make) -> None:
    url, waiter = make(ReceiveMessageWaitTimeSeconds="20"), sqs_client(sqs.url, sqs.keys["queuey"])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(received, waiter, url, MaxNumberOfMessages=10)
        eventually(lambda: _waits(sqs))
        client.send_message(QueueUrl=url, MessageBody="m")

        found = waiting.result(60)

    assert [message["Body"] for message in found] == ["m"]


def _waits(sqs: SqsServer) -> bool:
    with Server(sqs.running) as seen:
        lines = seen.request("GET", "/metrics").text.splitlines()
    (found,) = [line.split()[1] for line in lines if line.startswith("queuey_waiters ")]
    return float(found) > 0


def test_a_request_that_waits_for_nothing_wins_over_the_queue(client: Any, make: Make) -> None:
    url = make(ReceiveMessageWaitTimeSeconds="20")
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(client.receive_message, QueueUrl=url, WaitTimeSeconds=0).result(15)

    assert bodies(answer) == []


def test_a_wait_ends_with_a_message_that_is_given_back(sqs: SqsServer, client: Any, make: Make) -> None:
    url, waiter = make(), sqs_client(sqs.url, sqs.keys["queuey"])
    client.send_message(QueueUrl=url, MessageBody="m")
    (message,) = received(client, url)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(received, waiter, url, WaitTimeSeconds=20)
        eventually(lambda: _waits(sqs))
        client.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)

        (again,) = waiting.result(60)

    assert count(again) == 2


def test_a_wait_ends_with_its_queue(sqs: SqsServer, client: Any, make: Make) -> None:
    url, waiter = make(), sqs_client(sqs.url, sqs.keys["queuey"])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(code_of, waiter.receive_message, QueueUrl=url, WaitTimeSeconds=20)
        eventually(lambda: _waits(sqs))
        client.delete_queue(QueueUrl=url)

        assert waiting.result(60).endswith("NonExistentQueue")


def _bounded(client: Any, make: Make, v1: Server, *, fifo: bool) -> tuple[str, list[dict[str, Any]]]:
    """A queue of which three messages may be out, and are."""
    url = make(fifo=fifo)
    for at in range(5):
        more = {"MessageGroupId": str(at), "MessageDeduplicationId": str(at)} if fifo else {}
        client.send_message(QueueUrl=url, MessageBody=str(at), **more)
    received(client, url, VisibilityTimeout=0)
    set_ = v1.call("PUT", url.rsplit("/", 1)[1], "leases", "sqs", json={"max_leased": 3})
    assert set_.status_code == 200, set_.text
    out = received(client, url, MaxNumberOfMessages=10)
    assert len(out) == 3
    return url, out


def test_a_standard_queue_says_when_too_much_is_out(sqs: SqsServer, client: Any, make: Make, v1: Server) -> None:
    url, out = _bounded(client, make, v1, fifo=False)
    waiter = sqs_client(sqs.url, sqs.keys["queuey"])

    at_once = refused(client.receive_message, QueueUrl=url)
    waited = received(client, url, WaitTimeSeconds=1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(received, waiter, url, WaitTimeSeconds=20)
        eventually(lambda: _waits(sqs))
        client.delete_message(QueueUrl=url, ReceiptHandle=out[0]["ReceiptHandle"])
        found = waiting.result(60)

    text = "Too many messages of this queue are in flight: delete some of them first."
    assert at_once == ("OverLimit", text)
    assert waited == []
    assert [message["Body"] for message in found] == ["3"]


def test_a_fifo_queue_gives_nothing_when_too_much_is_out(client: Any, make: Make, v1: Server) -> None:
    url, out = _bounded(client, make, v1, fifo=True)

    nothing = received(client, url)
    client.delete_message(QueueUrl=url, ReceiptHandle=out[0]["ReceiptHandle"])

    assert nothing == []
    assert len(received(client, url, MaxNumberOfMessages=10)) == 1


def test_each_message_goes_to_one_of_many_receivers(sqs: SqsServer, client: Any, make: Make) -> None:
    url = make()
    for start in range(0, 100, 10):
        entries = [{"Id": str(at), "MessageBody": str(start + at)} for at in range(10)]
        client.send_message_batch(QueueUrl=url, Entries=entries)

    def take(_: int) -> list[str]:
        mine: list[str] = []
        while found := bodies(client.receive_message(QueueUrl=url, MaxNumberOfMessages=7)):
            mine += found
        return mine

    with ThreadPoolExecutor(8) as pool:
        taken = [body for mine in pool.map(take, range(8)) for body in mine]

    assert sorted(map(int, taken)) == list(range(100))


def test_receives_at_once_are_each_counted(client: Any, make: Make) -> None:
    url = make()
    client.send_message(QueueUrl=url, MessageBody="m")

    with ThreadPoolExecutor(8) as pool:
        taken = [*pool.map(lambda _: received(client, url, VisibilityTimeout=0), range(40))]

    assert sorted(count(message) for (message,) in taken) == [*range(1, 41)]


def test_a_client_that_goes_away_waits_no_longer_and_gets_nothing(
    sqs: SqsServer, client: Any, make: Make, v1: Server
) -> None:
    url = make()
    body = json.dumps({"QueueUrl": url, "WaitTimeSeconds": 20}).encode()
    headers = {"Content-Type": JSON, "X-Amz-Target": "AmazonSQS.ReceiveMessage"}
    ready = sqs.signed("POST", "/", body, headers=headers)
    until_waiting(v1, 0)
    with closing(HTTPConnection("127.0.0.1", sqs.running.port, timeout=60)) as connection:
        connection.request("POST", "/", body, dict(ready.headers))
        until_waiting(v1, 1)

    until_waiting(v1, 0, seconds=15)
    client.send_message(QueueUrl=url, MessageBody="m")

    (message,) = received(client, url)
    assert count(message) == 1
