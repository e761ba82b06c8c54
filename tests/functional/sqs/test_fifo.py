"""FIFO queues: order by group, and what is sent again (leases.md, section 10)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from queuey.future import Future, run
from queuey.ids import TICKS_PER_SECOND
from queuey.model import AppendRequest, Draft, Queue
from tests.support.sqs_clients import TimedSqs, bodies, code_of, refused

Make = Callable[..., str]
WINDOW_SECONDS, DAY_SECONDS = 300, 86_400


def send(client: Any, url: str, group: str, body: str, **more: Any) -> dict[str, Any]:
    more.setdefault("MessageDeduplicationId", f"{group}-{body}")
    sent: dict[str, Any] = client.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=group, **more)
    return sent


def received(client: Any, url: str, most: int = 10, **asked: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.receive_message(
        QueueUrl=url, MaxNumberOfMessages=most, AttributeNames=["All"], **asked
    ).get("Messages", [])
    return found


def names(messages: list[dict[str, Any]]) -> list[str]:
    return [message["Body"] for message in messages]


def delete(client: Any, url: str, *messages: dict[str, Any]) -> None:
    for message in messages:
        client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def test_a_group_is_required(timed: TimedSqs, timed_make: Make) -> None:
    call, url = timed.client.send_message, timed_make(fifo=True)

    assert code_of(call, QueueUrl=url, MessageBody="m", MessageDeduplicationId="d") == "MissingParameter"
    text = "The request must contain the parameter MessageGroupId."
    assert refused(call, QueueUrl=url, MessageBody="m", MessageDeduplicationId="d")[1] == text


def test_a_deduplication_id_is_required_unless_the_content_is_one(timed: TimedSqs, timed_make: Make) -> None:
    client, url, by_content = (
        timed.client,
        timed_make(fifo=True),
        timed_make(fifo=True, ContentBasedDeduplication="true"),
    )

    text = (
        "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
    )
    assert refused(client.send_message, QueueUrl=url, MessageBody="m", MessageGroupId="g") == ("ClientError", text)
    attribute = {"a": {"DataType": "String", "StringValue": "other"}}
    first = client.send_message(QueueUrl=by_content, MessageBody="m", MessageGroupId="g")
    again = client.send_message(QueueUrl=by_content, MessageBody="m", MessageGroupId="g", MessageAttributes=attribute)
    explicit = send(client, by_content, "g", "m")
    found = received(client, by_content)

    assert first["MessageId"] == again["MessageId"] != explicit["MessageId"]
    assert first["SequenceNumber"] == again["SequenceNumber"]
    assert [one["Attributes"]["MessageDeduplicationId"] for one in found] == [hashlib.sha256(b"m").hexdigest(), "g-m"]


@pytest.mark.parametrize("id_", ["!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", "a" * 128])
def test_ids_that_may_be(timed: TimedSqs, timed_make: Make, id_: str) -> None:
    url = timed_make(fifo=True)

    send(timed.client, url, id_, "m", MessageDeduplicationId=id_)

    (message,) = received(timed.client, url)
    assert message["Attributes"]["MessageGroupId"] == message["Attributes"]["MessageDeduplicationId"] == id_


@pytest.mark.parametrize("id_", ["a b", "a" * 129, "é", "\n", ""])
@pytest.mark.parametrize("name", ["MessageGroupId", "MessageDeduplicationId"])
def test_ids_that_may_not_be(timed: TimedSqs, timed_make: Make, name: str, id_: str) -> None:
    given = {"MessageGroupId": "g", "MessageDeduplicationId": "d", name: id_}

    code = code_of(timed.client.send_message, QueueUrl=timed_make(fifo=True), MessageBody="m", **given)

    assert code in ("InvalidParameterValue", "MissingParameter")


def test_what_is_sent_again_within_five_minutes_is_stored_once(timed: TimedSqs, timed_make: Make) -> None:
    """Even when the first was received and deleted meanwhile; and another body under the id is the same message."""
    client, url = timed.client, timed_make(fifo=True)
    first = send(client, url, "g", "one", MessageDeduplicationId="d")
    delete(client, url, *received(client, url))

    timed.clock.advance(WINDOW_SECONDS - 1)
    again = send(client, url, "h", "two", MessageDeduplicationId="d")
    nothing = received(client, url)
    timed.clock.advance(1.1)
    later = send(client, url, "g", "three", MessageDeduplicationId="d")

    assert (first["MessageId"], first["SequenceNumber"]) == (again["MessageId"], again["SequenceNumber"])
    assert again["MD5OfMessageBody"] == hashlib.md5(b"two", usedforsecurity=False).hexdigest()
    assert nothing == []
    assert later["MessageId"] != first["MessageId"]
    assert names(received(client, url)) == ["three"]


def test_with_the_scope_of_groups_an_id_is_the_groups_own(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make(fifo=True, DeduplicationScope="messageGroup")

    sent = [send(client, url, group, "m", MessageDeduplicationId="d") for group in ("g", "h", "g")]

    assert sent[0]["MessageId"] == sent[2]["MessageId"] != sent[1]["MessageId"]
    assert len(received(client, url)) == 2


def test_a_purge_forgets_what_was_sent(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make(fifo=True)
    first = send(client, url, "g", "m", MessageDeduplicationId="d")

    client.purge_queue(QueueUrl=url)

    assert send(client, url, "g", "m", MessageDeduplicationId="d")["MessageId"] != first["MessageId"]


def test_a_batch_may_send_the_same_twice(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make(fifo=True)
    entries = [
        {"Id": id_, "MessageBody": id_, "MessageGroupId": "g", "MessageDeduplicationId": dedup}
        for id_, dedup in (("a", "1"), ("b", "2"), ("c", "1"))
    ]

    sent = client.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]
    again = client.send_message_batch(QueueUrl=url, Entries=entries[:2])["Successful"]

    assert [one["Id"] for one in sent] == ["a", "b", "c"]
    assert sent[0]["MessageId"] == sent[2]["MessageId"]
    assert [one["MessageId"] for one in again] == [one["MessageId"] for one in sent[:2]]
    assert names(received(client, url)) == ["a", "b"]


def test_a_message_has_no_delay_of_its_own(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make(fifo=True, DelaySeconds="10")

    said = refused(send, client=client, url=url, group="g", body="m", DelaySeconds=5)
    send(client, url, "g", "m", DelaySeconds=0)
    early = received(client, url)
    timed.clock.advance(10.1)

    reason = "Reason: The request include parameter that is not valid for this queue type."
    assert said == ("ClientError", f"Value 5 for parameter DelaySeconds is invalid. {reason}")
    assert early == []
    assert names(received(client, url)) == ["m"]


def test_sequence_numbers_rise(client: Any, make: Make) -> None:
    url = make(fifo=True)

    sent = [send(client, url, "g", str(at))["SequenceNumber"] for at in range(5)]
    found = [message["Attributes"]["SequenceNumber"] for message in received(client, url)]

    assert sent == found == sorted(sent, key=int)
    assert all(number.isdigit() and int(number) < 1 << 128 for number in sent)
    assert len(set(sent)) == 5


def test_one_group_is_handed_out_before_the_next(client: Any, make: Make) -> None:
    url = make(fifo=True)
    for group, body in (("g1", "m1"), ("g2", "m1"), ("g1", "m2"), ("g1", "m3")):
        send(client, url, group, body)

    found = received(client, url)

    order = [(one["Attributes"]["MessageGroupId"], one["Body"]) for one in found]
    assert order == [("g1", "m1"), ("g1", "m2"), ("g1", "m3"), ("g2", "m1")]


def test_a_group_is_closed_while_one_of_it_is_out(client: Any, make: Make) -> None:
    url = make(fifo=True)
    for body in "abc":
        send(client, url, "g", body)
    send(client, url, "h", "other")

    two = received(client, url, 2)
    rest = received(client, url)
    delete(client, url, two[0])
    still_closed = received(client, url)
    delete(client, url, two[1])

    assert [names(one) for one in (two, rest, still_closed)] == [["a", "b"], ["other"], []]
    assert names(received(client, url)) == ["c"]


def test_what_ran_out_comes_back_first_and_in_order(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make(fifo=True, VisibilityTimeout="10")
    for body in "abcd":
        send(client, url, "g", body)
    received(client, url, 3)
    timed.clock.advance(10.1)

    found: list[str] = []
    while some := received(client, url):
        found += names(some)
        delete(client, url, *some)

    assert found == ["a", "b", "c", "d"]


def test_an_expired_handle_deletes_nothing(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make(fifo=True, VisibilityTimeout="10")
    send(client, url, "g", "m")
    (message,) = received(client, url)
    timed.clock.advance(10.1)
    handle = message["ReceiptHandle"]

    said = refused(client.delete_message, QueueUrl=url, ReceiptHandle=handle)
    entries = [{"Id": "late", "ReceiptHandle": handle}]
    (failed,) = client.delete_message_batch(QueueUrl=url, Entries=entries)["Failed"]

    assert failed["Code"] == "InvalidParameterValue"
    reason = "Reason: The receipt handle has expired."
    assert said == ("ClientError", f"Value {handle} for parameter ReceiptHandle is invalid. {reason}")
    assert names(received(client, url)) == ["m"]


def test_what_waits_for_its_dead_letter_queue_is_not_deleted_by_a_handle_that_has_ended(
    timed: TimedSqs, timed_make: Make
) -> None:
    client, dead = timed.client, timed_make(fifo=True)
    arn = client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    url = timed_make(fifo=True, RedrivePolicy=policy, VisibilityTimeout="0")
    send(client, url, "g", "m")
    client.delete_queue(QueueUrl=dead)
    (message,) = received(client, url)
    assert received(client, url) == []  # it is given up, and its queue is gone

    shape, said = refused(client.delete_message, QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    assert (shape, said[-39:]) == ("ClientError", "Reason: The receipt handle has expired.")


def test_an_extended_lease_is_not_expired(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make(fifo=True, VisibilityTimeout="10")
    send(client, url, "g", "m")
    (message,) = received(client, url)
    timed.clock.advance(9)
    client.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=10)
    timed.clock.advance(9)

    delete(client, url, message)
    delete(client, url, message)  # to delete again is no error

    timed.clock.advance(100)
    assert received(client, url) == []


def test_a_receive_that_is_sent_again_gets_the_same(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make(fifo=True, VisibilityTimeout="30")
    for body in "abc":
        send(client, url, "g", body)

    first = received(client, url, 2, ReceiveRequestAttemptId="attempt-1")
    again = received(client, url, 2, ReceiveRequestAttemptId="attempt-1")
    another = received(client, url, 2, ReceiveRequestAttemptId="attempt-2")

    assert names(first) == names(again) == ["a", "b"]
    assert [one["ReceiptHandle"] for one in first] == [one["ReceiptHandle"] for one in again]
    assert another == []
    delete(client, url, *again)
    assert names(received(client, url)) == ["c"]


def test_a_receive_that_is_sent_again_hides_its_messages_anew(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make(fifo=True, VisibilityTimeout="30")
    send(client, url, "g", "m")
    asked: dict[str, Any] = {"ReceiveRequestAttemptId": "attempt"}
    (first,) = received(client, url, **asked)

    timed.clock.advance(20)
    (again,) = received(client, url, **asked)
    timed.clock.advance(20)
    hidden = received(client, url)
    timed.clock.advance(10.1)
    (later,) = received(client, url, **asked)  # its timeout is over: this is a new receive

    counts = [one["Attributes"]["ApproximateReceiveCount"] for one in (first, again, later)]
    assert counts == ["1", "1", "2"]
    assert first["ReceiptHandle"] == again["ReceiptHandle"] != later["ReceiptHandle"]
    assert hidden == []


@pytest.mark.parametrize("how", ["deleted", "changed", "made visible"])
def test_a_receive_whose_messages_were_touched_is_a_new_one(timed: TimedSqs, timed_make: Make, how: str) -> None:
    client, url = timed.client, timed_make(fifo=True)
    for group in "gh":
        send(client, url, group, "1")
    asked: dict[str, Any] = {"ReceiveRequestAttemptId": "attempt"}
    one, _ = received(client, url, **asked)
    if how == "deleted":
        delete(client, url, one)
    else:
        seconds = 60 if how == "changed" else 0
        change = {"QueueUrl": url, "ReceiptHandle": one["ReceiptHandle"], "VisibilityTimeout": seconds}
        client.change_message_visibility(**change)
    send(client, url, "new", "2")

    found = received(client, url, **asked)

    assert names(found) == (["1", "2"] if how == "made visible" else ["2"])
    assert [again["ReceiptHandle"] for again in received(client, url, **asked)] == [
        again["ReceiptHandle"] for again in found
    ]


def test_an_attempt_ends_five_minutes_after_its_last_use(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make(fifo=True, VisibilityTimeout="1000")
    send(client, url, "g", "m")
    asked: dict[str, Any] = {"ReceiveRequestAttemptId": "attempt"}

    found = []
    for seconds in (0, 299, 299, 301):
        timed.clock.advance(seconds)
        found.append(len(received(client, url, **asked)))

    assert found == [1, 1, 1, 0]


def test_a_receive_that_waited_is_sent_again(client: Any, make: Make) -> None:
    url = make(fifo=True)
    asked: dict[str, Any] = {"ReceiveRequestAttemptId": "attempt"}
    nothing = received(client, url, WaitTimeSeconds=1, **asked)
    send(client, url, "g", "m")

    (first,) = received(client, url, WaitTimeSeconds=1, **asked)
    (again,) = received(client, url, WaitTimeSeconds=1, **asked)

    assert nothing == []
    assert first["ReceiptHandle"] == again["ReceiptHandle"]


def test_a_shorter_delay_lets_no_message_overtake(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make(fifo=True, DelaySeconds="10")
    send(client, url, "g", "a")
    timed.clock.advance(1)

    client.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "0"})
    send(client, url, "g", "b")
    early = received(client, url)
    timed.clock.advance(9.1)
    send(client, url, "g", "c")

    assert (early, names(received(client, url))) == ([], ["a", "b", "c"])


def test_a_message_that_is_sent_while_the_delay_changes_is_not_overtaken(
    timed: TimedSqs, timed_make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, url = timed.client, timed_make(fifo=True, DelaySeconds="10")
    replace_queue = timed.service.queues._metadata.replace_queue

    def sending_before(before: Queue, after: Queue) -> Future[bool]:
        monkeypatch.undo()
        timed.clock.advance(1)
        send(client, url, "g", "a")
        return replace_queue(before, after)

    monkeypatch.setattr(timed.service.queues._metadata, "replace_queue", sending_before)
    client.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "0"})
    send(client, url, "g", "b")
    early = received(client, url)
    timed.clock.advance(9.95)
    send(client, url, "g", "c")
    early += received(client, url)
    timed.clock.advance(0.1)

    assert (early, names(received(client, url))) == ([], ["a", "b", "c"])


def test_after_a_shorter_delay_a_message_waits_only_for_others(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make(fifo=True, DelaySeconds="900")

    client.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "0"})
    send(client, url, "g", "a")

    assert names(received(client, url)) == ["a"]


def test_what_is_purged_holds_nothing_up(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make(fifo=True, DelaySeconds="900")
    send(client, url, "g", "a")
    client.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "0"})

    client.purge_queue(QueueUrl=url)
    timed.clock.advance(1)
    send(client, url, "g", "b")

    assert names(received(client, url)) == ["b"]


def test_what_rest_has_scheduled_for_later_holds_nothing_up(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make(fifo=True, DelaySeconds="900")
    queue = run(timed.service.queues.find("queuey", url.rsplit("/", 1)[1]))
    assert queue is not None
    next_week = timed.clock.now_ticks() + 7 * DAY_SECONDS * TICKS_PER_SECOND
    run(timed.service.log.append(AppendRequest(queue, [Draft(1, b"later", DAY_SECONDS, key="h", due_ticks=next_week)])))

    client.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "0"})
    send(client, url, "g", "a")
    timed.clock.advance(961)

    assert names(received(client, url)) == ["a"]


def test_a_clock_that_is_set_back_lets_no_delayed_message_overtake(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make(fifo=True, DelaySeconds="10")
    send(client, url, "g", "a")
    timed.clock.step(-5)
    send(client, url, "g", "b")
    timed.clock.advance(10.1)
    early = names(received(client, url, VisibilityTimeout=0))
    timed.clock.step(5)
    timed.clock.advance(10)

    assert (early, names(received(client, url))) == ([], ["a", "b"])


def test_what_waits_in_a_closed_group_counts_as_visible(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make(fifo=True)
    for group, body in (("g", "1"), ("g", "2"), ("h", "3"), ("g", "4")):
        send(client, url, group, body)
    received(client, url, 1)
    received(client, url)  # passes over what is of the closed group
    timed.clock.advance(1)

    counts = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = client.get_queue_attributes(QueueUrl=url, AttributeNames=counts)["Attributes"]

    assert found == dict(zip(counts, ["2", "2"], strict=True))


@pytest.mark.parametrize("id_", ["a b", "a" * 129, ""])
def test_attempts_that_may_not_be(timed: TimedSqs, timed_make: Make, id_: str) -> None:
    call = timed.client.receive_message

    code = code_of(call, QueueUrl=timed_make(fifo=True), ReceiveRequestAttemptId=id_)

    assert code == "InvalidParameterValue"


def test_a_standard_queue_takes_a_group_and_orders_nothing(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make()
    for body in "ab":
        client.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="tenant")

    first, second = received(client, url, 1), received(client, url, 1)

    assert sorted([*names(first), *names(second)]) == ["a", "b"]
    assert first[0]["Attributes"]["MessageGroupId"] == "tenant"
    assert "SequenceNumber" not in first[0]["Attributes"]
    assert code_of(client.send_message, QueueUrl=url, MessageBody="m", MessageGroupId="a b") == "InvalidParameterValue"
    given = {"MessageBody": "m", "MessageDeduplicationId": "d"}
    assert code_of(client.send_message, QueueUrl=url, **given) == "InvalidParameterValue"


def test_a_queue_with_many_groups_hands_each_out_in_order(client: Any, make: Make) -> None:
    url = make(fifo=True)
    for start in range(0, 60, 10):
        entries = [
            {
                "Id": str(at),
                "MessageBody": f"{(start + at) % 7}:{start + at}",
                "MessageGroupId": str((start + at) % 7),
                "MessageDeduplicationId": str(start + at),
            }
            for at in range(10)
        ]
        client.send_message_batch(QueueUrl=url, Entries=entries)

    found: list[str] = []
    while some := received(client, url):
        found += names(some)
        delete(client, url, *some)

    assert len(found) == 60
    for group in map(str, range(7)):
        mine = [int(name.split(":")[1]) for name in found if name.startswith(f"{group}:")]
        assert mine == sorted(mine)
    assert bodies(client.receive_message(QueueUrl=url)) == []
