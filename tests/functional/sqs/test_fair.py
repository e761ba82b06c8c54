"""Fair queues: message groups on standard queues (leases.md, section 10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.client import Server
from tests.support.sqs_clients import TimedSqs

Make = Callable[..., str]


def send(client: Any, url: str, group: str | None, number: int) -> None:
    more = {} if group is None else {"MessageGroupId": group}
    for start in range(0, number, 10):
        entries = [{"Id": str(at), "MessageBody": group or "none", **more} for at in range(min(10, number - start))]
        assert not client.send_message_batch(QueueUrl=url, Entries=entries).get("Failed")


def received(client: Any, url: str, number: int) -> list[dict[str, Any]]:
    """Messages, each by a receive of its own."""
    found = []
    for _ in range(number):
        found += client.receive_message(QueueUrl=url, VisibilityTimeout=600).get("Messages", [])
    return found


def groups(messages: list[dict[str, Any]]) -> list[str]:
    return [message["Body"] for message in messages]


def test_a_noisy_group_does_not_hold_up_quiet_ones(timed: TimedSqs, timed_make: Make) -> None:
    """Messages without a group are quiet, each for itself."""
    client, url = timed.client, timed_make()
    received(client, url, 1)  # what receives has begun before the first group is named
    send(client, url, "noisy", 50)
    out = received(client, url, 30)
    send(client, url, "quiet", 2)
    send(client, url, None, 2)

    found = received(client, url, 6)

    assert groups(out) == ["noisy"] * 30
    assert groups(found) == ["quiet", "quiet", "none", "none", "noisy", "noisy"]


def test_a_group_is_quiet_again_once_its_messages_are_deleted(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make()
    send(client, url, "noisy", 40)
    out = received(client, url, 30)
    send(client, url, "quiet", 1)
    for message in out:
        client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    found = received(client, url, 11)

    assert groups(found) == ["noisy"] * 10 + ["quiet"]


def test_nothing_is_lost_behind_a_noisy_group(timed: TimedSqs, timed_make: Make) -> None:
    client, url = timed.client, timed_make(VisibilityTimeout="100")
    for group, number in (("a", 60), ("b", 5), ("a", 60), ("c", 5)):
        send(client, url, group, number)

    found: list[str] = []
    while some := client.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
        found += groups(some)

    assert sorted(found) == ["a"] * 120 + ["b"] * 5 + ["c"] * 5
    assert found.index("b") < 60 > found.index("c") - 10
    timed.clock.advance(100.1)
    assert len(received(client, url, 130)) == 130


def test_what_waits_behind_others_may_be_received(timed: TimedSqs, timed_make: Make) -> None:
    """However much is out before it."""
    client, url = timed.client, timed_make(VisibilityTimeout="600")
    send(client, url, "noisy", 1_150)
    out = [client.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"] for _ in range(105)]
    send(client, url, "quiet", 1)
    last = received(client, url, 1)

    found = client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]

    assert (sum(map(len, out)), groups(last)) == (1_050, ["quiet"])
    assert (found["ApproximateNumberOfMessages"], found["ApproximateNumberOfMessagesNotVisible"]) == ("100", "1051")


def test_a_queue_is_fair_once_a_message_names_a_group(client: Any, make: Make, v1: Server) -> None:
    """Others do without the work that it takes. No attribute of the queue shows it."""
    url = make()
    name = url.rsplit("/", 1)[1]

    def is_fair() -> bool:
        return bool(v1.call("GET", name, "leases", "sqs").json()["settings"]["fair"])

    def attributes() -> dict[str, str]:
        found: dict[str, str] = client.get_queue_attributes(
            QueueUrl=url, AttributeNames=["LastModifiedTimestamp", "VisibilityTimeout"]
        )["Attributes"]
        return found

    client.send_message(QueueUrl=url, MessageBody="m")
    received(client, url, 1)
    before, shown = is_fair(), attributes()
    send(client, url, "g", 1)
    after = is_fair()
    client.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "0"})

    assert (before, after, is_fair()) == (False, True, True)
    assert attributes()["VisibilityTimeout"] == shown["VisibilityTimeout"]


def test_a_fifo_queue_keeps_its_order(client: Any, make: Make, v1: Server) -> None:
    url = make(fifo=True)
    client.send_message(QueueUrl=url, MessageBody="m", MessageGroupId="g", MessageDeduplicationId="d")
    received(client, url, 1)

    settings = v1.call("GET", url.rsplit("/", 1)[1], "leases", "sqs").json()["settings"]

    assert (settings["fair"], settings["order"]) == (False, "key")
