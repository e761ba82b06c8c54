"""Move tasks as they go on, in a time that the test moves (leases.md, section 11)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from queuey.service.tasks import MOST_TASKS
from tests.support.servers import eventually
from tests.support.sqs_clients import TimedSqs, bodies, refused

Make = Callable[..., str]
ONE_A_SECOND = {"MaxNumberOfMessagesPerSecond": 1}


class Letters:
    """Queues whose messages are given up after one receive, and the queue of their dead letters."""

    def __init__(self, timed: TimedSqs, make: Make, *, dead: str = "") -> None:
        """:param dead: the dead-letter queue, if it is not a new one."""
        self.timed, self.client, self._make = timed, timed.client, make
        self.dead = dead or make()
        self.arn = self.arn_of(self.dead)

    def arn_of(self, url: str) -> str:
        found = self.client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        return str(found["Attributes"]["QueueArn"])

    def source(self, *messages: str) -> str:
        """A queue that has given up these messages."""
        policy = json.dumps({"deadLetterTargetArn": self.arn, "maxReceiveCount": 1})
        url = self._make(RedrivePolicy=policy, VisibilityTimeout="0")
        for body in messages:
            self.client.send_message(QueueUrl=url, MessageBody=body)
        assert sorted(self.received(url)) == sorted(messages)
        assert self.received(url) == []
        return url

    def received(self, url: str) -> list[str]:
        return bodies(self.client.receive_message(QueueUrl=url, MaxNumberOfMessages=10))

    def start(self, **asked: Any) -> str:
        return str(self.client.start_message_move_task(SourceArn=self.arn, **asked)["TaskHandle"])

    def tasks(self, most: int = 1) -> list[dict[str, Any]]:
        found = self.client.list_message_move_tasks(SourceArn=self.arn, MaxResults=most)
        return [dict(one) for one in found.get("Results", [])]

    def until(self, status: str, *, moved: int) -> dict[str, Any]:
        """The newest task, once it is so."""

        def look() -> list[dict[str, Any]]:
            wanted = (status, moved)
            return [one for one in self.tasks() if (one["Status"], one["ApproximateNumberOfMessagesMoved"]) == wanted]

        (task,) = eventually(look)
        return task


@pytest.fixture
def letters(timed: TimedSqs, timed_make: Make) -> Letters:
    return Letters(timed, timed_make)


def test_one_move_task_goes_on_at_a_time_and_can_be_watched_and_cancelled(letters: Letters) -> None:
    url = letters.source("a", "b", "c")

    handle = letters.start(**ONE_A_SECOND)

    task = letters.until("RUNNING", moved=1)
    assert (task["TaskHandle"], task["ApproximateNumberOfMessagesToMove"]) == (handle, 3)
    assert (task["MaxNumberOfMessagesPerSecond"], "DestinationArn" in task) == (1, False)
    text = "There is already a task running. Only one active task is allowed for a source queue arn at a given time."
    assert refused(letters.client.start_message_move_task, SourceArn=letters.arn) == ("ClientError", text)

    cancelled = letters.client.cancel_message_move_task(TaskHandle=handle)

    assert cancelled["ApproximateNumberOfMessagesMoved"] == 1
    task = letters.until("CANCELLED", moved=1)
    assert "TaskHandle" not in task
    gone = refused(letters.client.cancel_message_move_task, TaskHandle=handle)
    assert gone == ("ResourceNotFoundException", "Task does not exist.")
    assert len(letters.received(url)) == 1
    assert len(letters.received(letters.dead)) == 2


def test_the_last_ten_move_tasks_are_listed_the_newest_first(letters: Letters) -> None:
    letters.source("a", "b")
    letters.start(**ONE_A_SECOND)
    letters.until("RUNNING", moved=1)
    letters.timed.clock.advance(1)
    letters.until("COMPLETED", moved=2)
    for _ in range(10):
        letters.timed.clock.advance(1)
        letters.start()
        letters.until("COMPLETED", moved=0)

    listed = letters.tasks(10)

    assert len(listed) == 10
    assert [one["StartedTimestamp"] for one in listed] == sorted(
        [one["StartedTimestamp"] for one in listed], reverse=True
    )
    assert letters.tasks() == listed[:1]


def test_letters_go_back_to_where_each_came_from_and_may_be_received_once_more(letters: Letters) -> None:
    """What they were received before does not send them straight back."""
    urls = {body: letters.source(body) for body in ("of one queue", "of another queue")}

    letters.start()

    letters.until("COMPLETED", moved=2)
    assert {body: letters.received(url) for body, url in urls.items()} == {body: [body] for body in urls}
    assert [letters.received(url) for url in urls.values()] == [[], []]
    assert sorted(letters.received(letters.dead)) == sorted(urls)


def test_a_move_task_whose_destination_is_deleted_fails_and_says_so(letters: Letters, timed_make: Make) -> None:
    letters.source("a", "b")
    destination = timed_make()
    letters.start(DestinationArn=letters.arn_of(destination), **ONE_A_SECOND)
    letters.until("RUNNING", moved=1)

    letters.client.delete_queue(QueueUrl=destination)
    letters.timed.clock.advance(1)

    task = letters.until("FAILED", moved=1)
    assert task["FailureReason"] == "AWS.SimpleQueueService.NonExistentQueue"
    assert len(letters.received(letters.dead)) == 1


def test_a_destination_gets_all_messages_and_keeps_them_as_long_as_its_own(letters: Letters, timed_make: Make) -> None:
    """Also those that were sent to the dead-letter queue itself."""
    letters.source("given up")
    letters.client.send_message(QueueUrl=letters.dead, MessageBody="sent")
    destination = timed_make(MessageRetentionPeriod="60")

    letters.start(DestinationArn=letters.arn_of(destination))

    letters.until("COMPLETED", moved=2)
    assert sorted(letters.received(destination)) == ["given up", "sent"]
    letters.timed.clock.advance(61)
    assert letters.received(destination) == []


def test_what_came_from_no_queue_stays_and_the_task_fails(letters: Letters) -> None:
    url = letters.source("given up")
    letters.client.send_message(QueueUrl=letters.dead, MessageBody="sent")

    letters.start()

    task = letters.until("FAILED", moved=1)
    assert (task["FailureReason"], task["ApproximateNumberOfMessagesToMove"]) == ("CouldNotDetermineMessageSource", 2)
    assert (letters.received(url), letters.received(letters.dead)) == (["given up"], ["sent"])


def test_a_message_that_a_receiver_has_is_not_moved(letters: Letters) -> None:
    url = letters.source("held", "free")
    (held,) = letters.client.receive_message(QueueUrl=letters.dead)["Messages"]

    letters.start()

    letters.until("COMPLETED", moved=1)
    assert letters.received(url) == [next(body for body in ("held", "free") if body != held["Body"])]
    letters.client.change_message_visibility(
        QueueUrl=letters.dead, ReceiptHandle=held["ReceiptHandle"], VisibilityTimeout=0
    )
    assert letters.received(letters.dead) == [held["Body"]]


def test_letters_of_more_queues_than_may_have_tasks_go_back(letters: Letters) -> None:
    """They are moved by one task, at one rate."""
    urls = [letters.source() for _ in range(MOST_TASKS + 1)]
    for url in urls[::50]:
        letters.client.send_message(QueueUrl=url, MessageBody="m")
        assert (letters.received(url), letters.received(url)) == (["m"], [])

    letters.start(MaxNumberOfMessagesPerSecond=3)

    letters.until("COMPLETED", moved=3)
    assert [letters.received(url) for url in urls[::50]] == [["m"]] * 3


def test_a_destination_is_another_queue_of_the_same_type(letters: Letters, timed_make: Make) -> None:
    letters.source()
    start = letters.client.start_message_move_task

    for target, text in (
        (letters.dead, "Source queue arn and destination queue arn cannot be the same."),
        (timed_make(fifo=True), "Destination queue must be the same type of queue as the source queue."),
    ):
        said = refused(start, SourceArn=letters.arn, DestinationArn=letters.arn_of(target))
        assert said == ("ClientError", text)


def test_an_arn_has_a_bound_since_tasks_keep_it(letters: Letters) -> None:
    letters.source()
    long = letters.arn.replace("arn:aws:", f"arn:{'x' * 256}:")

    shape, said = refused(letters.client.start_message_move_task, SourceArn=long)

    assert (shape, said[-24:]) == ("ClientError", "it is no ARN of a queue.")


def test_a_message_passes_one_queue_after_the_other_of_a_chain(timed: TimedSqs, timed_make: Make) -> None:
    """It has been received more often than the second queue allows, and is received there all the same."""
    last = Letters(timed, timed_make)
    middle = last.source()
    first = Letters(timed, timed_make, dead=middle).source("m")

    def where() -> Sequence[list[str]]:
        return [last.received(url) for url in (first, last.dead, middle, last.dead)]

    assert where() == [[], [], ["m"], []]
    assert where() == [[], [], [], ["m"]]
