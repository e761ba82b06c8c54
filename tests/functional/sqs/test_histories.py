"""Histories of calls, drawn at random, beside SQS as plainly as possible; in both protocols, and in a time that the test moves."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from queuey.future import run
from queuey.ids import EPOCH_TICKS
from queuey.model.lease_steps import LeaseStep
from queuey.service.tasks import PURGE
from queuey.sqs.actions import receiving, sending
from tests.support.client import new_name
from tests.support.plain_sqs import LONGEST_SECONDS, PlainMessage, PlainQueue
from tests.support.servers import eventually
from tests.support.sqs_clients import TimedSqs
from tests.support.sqs_model import parsed, request

COUNTS = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesDelayed", "ApproximateNumberOfMessagesNotVisible")
ATTRIBUTES: Sequence[Mapping[str, Any]] = (
    {},
    {"text": {"DataType": "String.label", "StringValue": "é\r\n<&>"}},
    {
        "number": {"DataType": "Number", "StringValue": "-1.5e3"},
        "raw": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    },
)
TICKS_PER_MS = 10_000
CALL_SECONDS = 1 / 128
"""A whole number of ticks, and of the least part of a float."""

positions = st.integers(0, 99)
"""A place in a list, whatever its length."""
messages = st.fixed_dictionaries(
    {
        "body": st.sampled_from(["a", "b", "é \r\n"]),
        "group": st.sampled_from("xyz"),
        "attributes": st.sampled_from(ATTRIBUTES),
    },
    optional={"dedup": st.sampled_from("123"), "delay": st.sampled_from([0, 7])},
)
Message = Mapping[str, Any]


class Handle(NamedTuple):
    """What a receive got of a message."""

    queue: PlainQueue
    message: PlainMessage
    text: str


class Histories(RuleBasedStateMachine):
    """One history of a queue and of the queue of its dead letters."""

    def __init__(self, timed: TimedSqs, *, counts: bool) -> None:
        """:param counts: compare the numbers of messages too."""
        super().__init__()
        self.timed, self.counts = timed, counts
        self.protocols = cycle(["json", "query"])
        self.handles: list[Handle] = []
        self.queues: list[PlainQueue] = []

    @property
    def now(self) -> float:
        return self.timed.clock.elapsed()

    @property
    def now_ms(self) -> int:
        return (self.timed.clock.now_ticks() - EPOCH_TICKS) // TICKS_PER_MS

    def ask(self, action: str, **values: Any) -> dict[str, Any]:
        """The answer; of an error its text is under ``refused``. Each call takes a moment."""
        self.time_passes(CALL_SECONDS)
        protocol = next(self.protocols)
        status, headers, body = self.timed.send(*request(protocol, action, values))
        answer = parsed(protocol, action, body, status=status, headers=headers)
        return answer if status == 200 else {"refused": answer["Error"]["Message"]}

    @initialize(
        fifo=st.booleans(),
        visibility=st.sampled_from(["0", "10", "30"]),
        retention=st.sampled_from(["60", "345600"]),
        delay=st.sampled_from(["0", "0", "5"]),
        content=st.sampled_from(["true", "false"]),
        scope=st.sampled_from(["queue", "messageGroup"]),
    )
    def begin(self, fifo: bool, visibility: str, retention: str, delay: str, content: str, scope: str) -> None:
        given = {"VisibilityTimeout": visibility, "MessageRetentionPeriod": retention, "DelaySeconds": delay}
        if fifo:
            given |= {"FifoQueue": "true", "ContentBasedDeduplication": content, "DeduplicationScope": scope}
        self.queues = [self._made(given), self._made(given | {"DelaySeconds": "0"})]

    def _made(self, given: dict[str, str]) -> PlainQueue:
        is_fifo = "FifoQueue" in given
        url = self.ask("CreateQueue", QueueName=new_name() + ".fifo" * is_fifo, Attributes=given)["QueueUrl"]
        found = self.ask("GetQueueAttributes", QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
        return PlainQueue(url, found["QueueArn"], is_fifo, dict(given))

    @rule(seconds=st.sampled_from([0.5, 4.5, 10.0, 29.5, 61.0, 301.0]))
    def time_passes(self, seconds: float) -> None:
        self.timed.clock.advance(seconds)
        for queue in self.queues:
            queue.age(self.now)

    # Sending

    def _request(self, queue: PlainQueue, message: Message) -> dict[str, Any]:
        values: dict[str, Any] = {"MessageBody": message["body"]}
        if message["attributes"]:
            values["MessageAttributes"] = message["attributes"]
        if queue.is_fifo:
            values["MessageGroupId"] = message["group"]
            if queue.given["ContentBasedDeduplication"] == "false" or "dedup" in message:
                values["MessageDeduplicationId"] = message.get("dedup", message["body"].strip().replace("é", "e"))
            return values
        if "dedup" in message:
            values["MessageGroupId"] = message["group"]
        if "delay" in message:
            values["DelaySeconds"] = message["delay"]
        return values

    def _sent(self, queue: PlainQueue, values: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        one = queue.send(values, self.now)
        if not one.id:
            one.id, one.sequence, one.sent_ms = answer["MessageId"], answer.get("SequenceNumber", ""), self.now_ms
        assert (answer["MessageId"], answer.get("SequenceNumber", "")) == (one.id, one.sequence)

    @rule(message=messages, to=st.sampled_from([0, 0, 0, 1]))
    def send(self, message: Message, to: int) -> None:
        queue = self.queues[to]
        values = self._request(queue, message)
        self._sent(queue, values, self.ask("SendMessage", QueueUrl=queue.url, **values))

    @rule(some=st.lists(messages, min_size=2, max_size=4), bad=st.sampled_from([None, None, 1]))
    def send_together(self, some: list[Message], bad: int | None) -> None:
        """At ``bad`` stands a message that is refused; the others are sent."""
        queue = self.queues[0]
        entries = [{"Id": str(at), **self._request(queue, one)} for at, one in enumerate(some)]
        if bad is not None:
            entries[bad]["MessageBody"] = "\x00"
        answer = self.ask("SendMessageBatch", QueueUrl=queue.url, Entries=entries)
        assert [one["Id"] for one in answer.get("Failed", [])] == ([] if bad is None else [str(bad)])
        good = [entry for entry in entries if entry["Id"] != str(bad)]
        assert [one["Id"] for one in answer["Successful"]] == [entry["Id"] for entry in good]
        for entry, one in zip(good, answer["Successful"], strict=True):
            self._sent(queue, entry, one)

    # Receiving

    @rule(
        of=st.sampled_from([0, 0, 0, 1]),
        most=st.sampled_from([1, 1, 2, 10]),
        visibility=st.sampled_from([None, None, 0, 20]),
        attempt=st.sampled_from([None, None, "A", "B"]),
    )
    def receive(self, of: int, most: int, visibility: int | None, attempt: str | None) -> None:
        queue = self.queues[of]
        asked: dict[str, Any] = {} if visibility is None else {"VisibilityTimeout": visibility}
        if attempt is not None and queue.is_fifo:
            asked["ReceiveRequestAttemptId"] = attempt
        else:
            attempt = None
        answer = self.ask(
            "ReceiveMessage",
            QueueUrl=queue.url,
            MaxNumberOfMessages=most,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
            **asked,
        )
        got = answer.get("Messages", [])
        again = None if attempt is None else queue.repeat(attempt, visibility, self.now)
        if again is not None:
            assert [(one["MessageId"], one["ReceiptHandle"]) for one in got] == again
            return
        queue.receive(got, most, visibility, self.now)
        if attempt is not None:
            queue.remember(attempt, got, self.now)
        by_id = {one.id: one for one in queue.messages}
        for one in got:
            kept = by_id[one["MessageId"]]
            self._compare(queue, kept, one)
            self.handles.append(Handle(queue, kept, one["ReceiptHandle"]))
        if len(got) == most and queue.given_up(self.now):
            self.receive(of, 10, None, None)  # until it has room, nobody knows which of them have moved

    def _compare(self, queue: PlainQueue, kept: PlainMessage, got: Mapping[str, Any]) -> None:
        assert got["Body"] == kept.body
        assert got.get("MessageAttributes", {}) == kept.attributes
        said = dict(got["Attributes"])
        wanted = {
            "ApproximateReceiveCount": str(kept.receives),
            "SentTimestamp": str(kept.sent_ms),
            "MessageGroupId": kept.group,
            "MessageDeduplicationId": kept.dedup,
            "DeadLetterQueueSourceArn": kept.source or None,
        }
        assert {name: said.get(name) for name in wanted} == wanted
        if queue.is_fifo and not kept.source:
            assert said["SequenceNumber"] == kept.sequence
        else:
            assert ("SequenceNumber" in said) == queue.is_fifo

    # Settling

    def _check(self, said: str, wanted: str | None) -> None:
        assert wanted is None or (wanted in said and bool(wanted) == bool(said)), (said, wanted)

    @precondition(lambda self: self.handles)
    @rule(any_=positions)
    def delete(self, any_: int) -> None:
        queue, one, handle = self._handle(any_)
        answer = self.ask("DeleteMessage", QueueUrl=queue.url, ReceiptHandle=handle)
        self._check(answer.get("refused", ""), queue.delete(one, handle, self.now))

    @precondition(lambda self: self.handles)
    @rule(some=st.lists(positions, min_size=1, max_size=4))
    def delete_together(self, some: list[int]) -> None:
        self._batch("DeleteMessageBatch", {}, lambda one: one.queue.delete(one.message, one.text, self.now), some)

    @precondition(lambda self: self.handles)
    @rule(any_=positions, seconds=st.sampled_from([0, 15, 43_200]))
    def change(self, any_: int, seconds: int) -> None:
        queue, one, handle = self._handle(any_)
        answer = self.ask(
            "ChangeMessageVisibility", QueueUrl=queue.url, ReceiptHandle=handle, VisibilityTimeout=seconds
        )
        self._check(answer.get("refused", ""), queue.change(one, handle, seconds, self.now))

    @precondition(lambda self: self.handles)
    @rule(some=st.lists(positions, min_size=1, max_size=4), seconds=st.sampled_from([0, 15]))
    def change_together(self, some: list[int], seconds: int) -> None:
        def change(one: Handle) -> str | None:
            return one.queue.change(one.message, one.text, seconds, self.now)

        self._batch("ChangeMessageVisibilityBatch", {"VisibilityTimeout": seconds}, change, some)

    def _batch(self, action: str, more: dict[str, Any], do: Callable[[Handle], str | None], some: list[int]) -> None:
        """Each handle of the same queue as the first, in one request."""
        found = [self._handle(any_) for any_ in some]
        found = [one for one in found if one.queue is found[0].queue]
        entries = [{"Id": str(at), "ReceiptHandle": one.text, **more} for at, one in enumerate(found)]
        answer = self.ask(action, QueueUrl=found[0].queue.url, Entries=entries)
        said = {one["Id"]: one["Message"] for one in answer.get("Failed", [])}
        assert {one["Id"] for one in answer.get("Successful", [])} == {
            str(at) for at in range(len(found))
        } - said.keys()
        for at, one in enumerate(found):
            self._check(said.get(str(at), ""), do(one))

    def _handle(self, any_: int) -> Handle:
        return self.handles[any_ % len(self.handles)]

    @precondition(lambda self: self.handles)
    @rule(any_=positions)
    def a_handle_is_good_for_its_queue_alone(self, any_: int) -> None:
        queue, _, handle = self._handle(any_)
        (other,) = [one for one in self.queues if one is not queue]
        answer = self.ask("DeleteMessage", QueueUrl=other.url, ReceiptHandle=handle)
        assert "is not a valid receipt handle" in answer["refused"]

    # Queues

    @rule(
        of=st.sampled_from([0, 1]),
        name=st.sampled_from(["VisibilityTimeout", "MessageRetentionPeriod"]),
        text=st.sampled_from(["60", "600"]),
    )
    def set_time(self, of: int, name: str, text: str) -> None:
        self._set(self.queues[of], {name: text})

    @rule(delay=st.sampled_from(["0", "7"]))
    def set_delay(self, delay: str) -> None:
        self._set(self.queues[0], {"DelaySeconds": delay})

    @precondition(lambda self: self.queues[0].is_fifo)
    @rule(content=st.sampled_from(["true", "false"]), scope=st.sampled_from(["queue", "messageGroup"]))
    def set_deduplication(self, content: str, scope: str) -> None:
        self._set(self.queues[0], {"ContentBasedDeduplication": content, "DeduplicationScope": scope})

    def _set(self, queue: PlainQueue, given: dict[str, str]) -> None:
        assert "refused" not in self.ask("SetQueueAttributes", QueueUrl=queue.url, Attributes=given)
        queue.set(given, self.now)

    @rule(most=st.sampled_from([0, 1, 2, 3]))
    def set_dead_letters(self, most: int) -> None:
        queue, dead = self.queues
        policy = json.dumps({"deadLetterTargetArn": dead.arn, "maxReceiveCount": most}) if most else ""
        assert "refused" not in self.ask("SetQueueAttributes", QueueUrl=queue.url, Attributes={"RedrivePolicy": policy})
        queue.dead, queue.most_receives = dead if most else None, most

    @rule(of=st.sampled_from([0, 0, 0, 1]))
    def purge(self, of: int) -> None:
        queue = self.queues[of]
        assert "refused" not in self.ask("PurgeQueue", QueueUrl=queue.url)
        queue.purge()
        self.time_passes(1.0)
        name = queue.url.rsplit("/", 1)[1]
        service = self.timed.service
        found = run(service.queues.find("queuey", name))
        assert found is not None
        eventually(lambda: not run(service.tasks.find(found, PURGE)).is_open)

    @rule(of=st.sampled_from([0, 1]))
    def attributes(self, of: int) -> None:
        queue = self.queues[of]
        found = self.ask("GetQueueAttributes", QueueUrl=queue.url, AttributeNames=["All"])["Attributes"]
        assert {name: found[name] for name in queue.given} == queue.given
        if self.counts and not queue.has_expired:
            eventually(lambda: self._counts(queue) == queue.counts(self.now))

    def _counts(self, queue: PlainQueue) -> tuple[int, ...]:
        """Counts are approximate while tasks in the background go on, and right in the end."""
        asked = request("json", "GetQueueAttributes", {"QueueUrl": queue.url, "AttributeNames": [*COUNTS]})
        _, headers, body = self.timed.send(*asked)
        found = parsed("json", "GetQueueAttributes", body, headers=headers)["Attributes"]
        return tuple(int(found[name]) for name in COUNTS)

    def teardown(self) -> None:
        """In the end each message comes, and can be deleted."""
        if not self.queues:
            return
        self.set_dead_letters(0)
        for of, queue in enumerate(self.queues):
            self._set(queue, {"VisibilityTimeout": "30"})
            self.time_passes(LONGEST_SECONDS)
            while queue.messages:
                before = len(self.handles)
                self.receive(of, 10, None, None)
                assert len(self.handles) > before, "a message never comes"
                for at in range(before, len(self.handles)):
                    self.delete(at)
            self.attributes(of)


USUAL = settings(max_examples=60, stateful_step_count=40, deadline=None, report_multiple_bugs=False)


def check(timed: TimedSqs, how: settings, *, counts: bool = False) -> None:
    run_state_machine_as_test(lambda: Histories(timed, counts=counts), settings=how)  # type: ignore[arg-type]


def test_the_door_answers_as_sqs_does(timed: TimedSqs) -> None:
    check(timed, USUAL)


@pytest.mark.long
def test_the_door_answers_as_sqs_does_in_many_histories(timed: TimedSqs, rounds: Callable[[int], range]) -> None:
    check(timed, settings(USUAL, max_examples=len(rounds(100))), counts=True)


async def _is_in_time(*_: Any) -> bool:
    return False


def _without_renewal(*given: Any, **named: Any) -> LeaseStep:
    return LeaseStep(*given, **{name: value for name, value in named.items() if name != "renews"})


@pytest.mark.long
@pytest.mark.parametrize(
    ("owner", "name", "fault"),
    [
        (sending, "_WINDOW_SECONDS", 60),
        (receiving, "_is_late", _is_in_time),
        (receiving, "_LONGEST_SECONDS", 86_400),
        (receiving, "LeaseStep", _without_renewal),
        (receiving._Messages, "by_group", lambda self: self.shown[::-1]),
    ],
)
def test_a_door_with_a_fault_is_found(
    monkeypatch: pytest.MonkeyPatch, timed: TimedSqs, owner: Any, name: str, fault: Any
) -> None:
    monkeypatch.setattr(owner, name, fault)
    until_found = settings(USUAL, max_examples=400, database=None, phases=[Phase.generate])
    with pytest.raises(AssertionError):
        check(timed, until_found)
