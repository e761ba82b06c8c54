"""Actions that send messages."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from queuey.errors import QueueyError
from queuey.http.tracing import trace_of, traced_headers
from queuey.ids import TICKS_PER_SECOND, MessageId
from queuey.model import AppendRequest, Draft, IdempotencyKey, MessageHeaders, Queue
from queuey.model.columns import Alike, Drafts, bytes_of
from queuey.model.trace_context import TRACEPARENT, TRACESTATE, traceparent_of_xray
from queuey.security.permissions import Permission
from queuey.service.log import partition_for
from queuey.sqs.actions.batches import check_entries, failed
from queuey.sqs.actions.queues import make_fair
from queuey.sqs.attributes import QueueAttributes, attributes_of
from queuey.sqs.checksums import Attribute, md5_of_attributes, md5_of_body, size_of
from queuey.sqs.errors import SqsError, invalid_parameter, missing_parameter, not_for_this_type, shown
from queuey.sqs.messages import (
    NO_ATTRIBUTES,
    encoded,
    encoded_together,
    message_id,
    parse_attributes,
    sequence_number,
    stored_headers,
    unix_ms,
)
from queuey.sqs.request import SqsRequest
from queuey.sqs.shapes import ACTIONS, NO_STRUCTURE, check_bounds

__all__ = ["send_message", "send_message_batch"]

MAX_BATCH_BYTES = 1 << 20
_WINDOW_SECONDS = 300
"""How long a FIFO queue remembers what was sent to it."""
_TOKEN = re.compile(r"[!-~]{1,128}")
_TRACE = "AWSTraceHeader"
_MOST_TRACE = 1024
"""Characters of a request's trace header that its messages keep."""
_PLAIN = frozenset(["Id", "MessageBody"])
"""Members of an entry that has nothing but a body."""


class _Ready(NamedTuple):
    """A message that is checked."""

    draft: Draft
    size: int
    """Bytes that count against the bounds."""
    attributes: Mapping[str, Attribute]
    system: Mapping[str, Attribute]


async def send_message(asked: SqsRequest) -> Mapping[str, Any]:
    """Send one message."""
    sending, values = _Sending(asked, await asked.queue(Permission.APPEND)), asked.values
    if sending.attributes.is_fifo:
        if "MessageGroupId" not in values:
            raise missing_parameter("MessageGroupId")
        _check_deduplication(sending.attributes, values)
        await sending.look()
    (sent,) = await sending.send([sending.ready(values)])
    return sent


async def send_message_batch(asked: SqsRequest) -> Mapping[str, Any]:
    """Send up to ten messages. Those that are wrong fail alone."""
    sending, entries = _Sending(asked, await asked.queue(Permission.APPEND)), asked.values["Entries"]
    check_entries(entries, "SendMessageBatchRequestEntry")
    if sending.attributes.is_fifo:
        for entry in entries:
            if "MessageGroupId" not in entry:
                raise invalid_parameter("The request must contain the parameter MessageGroupId.")
            _check_deduplication(sending.attributes, entry)
        await sending.look()
    if (bodies := sending.plain_bodies(entries)) is not None:
        return {"Successful": await sending.send_plain([entry["Id"] for entry in entries], bodies), "Failed": []}
    ready: list[_Ready] = []
    ids: list[str] = []
    failures, total = [], 0
    structure = ACTIONS["SendMessageBatch"].members["Entries"].structure or NO_STRUCTURE
    for entry in entries:
        try:
            check_bounds(structure, entry)
            one = sending.ready(entry)
            total += one.size
            ready.append(one)
            ids.append(entry["Id"])
        except QueueyError as error:
            total += _size_of(entry)
            failures.append(failed(entry["Id"], error))
    if total > MAX_BATCH_BYTES:
        text = f"Batch requests cannot be longer than {MAX_BATCH_BYTES} bytes. You have sent {total} bytes."
        raise SqsError("BatchRequestTooLong", text)
    sent = await sending.send(ready) if ready else []
    return {"Successful": [{"Id": id_, **one} for id_, one in zip(ids, sent, strict=True)], "Failed": failures}


def _size_of(entry: Mapping[str, Any]) -> int:
    """Of an entry that fails: it counts against the bound of its batch as well."""
    size = len(entry.get("MessageBody", "").encode())
    for name, value in entry.get("MessageAttributes", {}).items():
        size += len(name.encode()) + len(value.get("DataType", "").encode())
        size += len(value.get("StringValue", "").encode()) + len(value.get("BinaryValue", b""))
    return size


class _Sending:
    """What the messages of one request have in common."""

    def __init__(self, asked: SqsRequest, queue: Queue) -> None:
        self._asked, self._queue = asked, queue
        self.attributes = attributes_of(queue)
        numbers = self.attributes.numbers
        self._limit = asked.service.settings.limits.max_body_bytes
        self._most = min(numbers["MaximumMessageSize"], self._limit)
        self._ttl_seconds, self._delay = numbers["MessageRetentionPeriod"], numbers["DelaySeconds"]
        self._trace = asked.call.headers.get("x-amzn-trace-id", "")[:_MOST_TRACE]
        self._context = trace_of(asked.call)
        self._sender = None if asked.application == queue.application else asked.application
        attributes = self.attributes
        self._adds = attributes.is_fifo or bool(self._delay or self._trace or self._context or self._sender)
        """Whether a message gets more than its sender has given."""
        self._least_due = 0
        """Ticks. No message is due earlier."""

    async def look(self) -> None:
        """Learn before which moment no message of a FIFO queue may be due, so that none comes before former ones.

        Each send looks for itself, so it sees all that was sent before it, also while the delay of the queue changes.
        """
        until = self.attributes.waits_until
        if until > self._now_ticks():
            states = await self._asked.service.queues.inspect(self._queue)
            due = [state.newest.ticks for state in states if state.scheduled and state.newest is not None]
            self._least_due = min(max(due, default=0), until)  # what REST has scheduled for later holds nothing up

    def plain_bodies(self, entries: Sequence[Mapping[str, Any]]) -> list[bytes] | None:
        """The bodies of entries that have nothing else, as most have; None if one has, or may be wrong."""
        if self._adds or not _PLAIN.issuperset(chain.from_iterable(entries)):
            return None
        texts = [entry.get("MessageBody", "") for entry in entries]
        sizes = [*map(len, texts)]
        if min(sizes) == 0 or max(sizes) > self._most or sum(sizes) > MAX_BATCH_BYTES:
            return None
        return encoded_together(texts)

    async def send_plain(self, ids: Sequence[str], bodies: Sequence[bytes]) -> list[dict[str, Any]]:
        """Store messages that have nothing but their bodies, and tell of each what its sender learns."""
        asked, number = self._asked, len(bodies)
        partitions, none = [partition_for(self._queue, None) for _ in bodies], Alike(None, number)
        drafts = Drafts(partitions, bodies, [self._ttl_seconds] * number, none, none, none, none, none)
        appended = await asked.service.log.append(AppendRequest(self._queue, drafts))
        asked.service.monitor.appended(asked.counted_as, number, drafts.size)
        return [
            {"Id": id_, "MessageId": message_id(place.id), "MD5OfMessageBody": md5_of_body(body)}
            for id_, place, body in zip(ids, appended.placed, bodies, strict=True)
        ]

    def ready(self, values: Mapping[str, Any]) -> _Ready:
        """:raises SqsError: the message is refused."""
        text = values.get("MessageBody")
        if not text:
            raise missing_parameter("MessageBody")
        body, given, system = encoded(text), NO_ATTRIBUTES, NO_ATTRIBUTES
        if "MessageAttributes" in values:
            given = parse_attributes(values["MessageAttributes"])
        if "MessageSystemAttributes" in values:
            system = _parse_system(values["MessageSystemAttributes"])
        size = len(body) + (size_of(given) if given else 0)
        if size > self._most:
            raise invalid_parameter(
                f"One or more parameters are invalid. Reason: Message must be shorter than {self._most} bytes."
            )
        own: dict[str, Any] = {}
        trace = system[_TRACE].value.decode() if system else self._trace
        if trace:
            own["trace"] = trace
        context = self._context if not trace else self._context_of(trace, named=bool(system))
        if context and TRACEPARENT not in given and TRACESTATE not in given:
            own["traced"] = True
        if self._sender is not None:
            own["sender"] = self._sender
        group, idempotency, due = values.get("MessageGroupId"), None, None
        if group is not None:
            _check_token("MessageGroupId", group)
        if self.attributes.is_fifo:
            own["dedup"] = values.get("MessageDeduplicationId") or hashlib.sha256(body).hexdigest()
            idempotency = _window_key(self.attributes, group, own["dedup"])
            delay = self._delay
            if values.get("DelaySeconds"):
                raise not_for_this_type("DelaySeconds", values["DelaySeconds"])
        else:
            delay = values.get("DelaySeconds", self._delay)
            if "MessageDeduplicationId" in values:
                raise not_for_this_type("MessageDeduplicationId", values["MessageDeduplicationId"])
        ttl = self._ttl_seconds
        if delay or self._least_due:
            now = self._now_ticks()
            later = max(now + delay * TICKS_PER_SECOND, self._least_due)
            if later > now:
                own["sent"], due = unix_ms(now), later
                ttl = max(ttl - (later - now) // TICKS_PER_SECOND, 1)  # its age counts from the send
        headers = stored_headers(given, own) if given or own else None
        if "traced" in own:
            headers = traced_headers(headers, len(body), context, self._limit)
        partition = partition_for(self._queue, group)
        draft = Draft(partition, body, ttl, None, group, due, idempotency, headers)
        return _Ready(draft, size, given, system)

    def _now_ticks(self) -> int:
        """From when a delay counts. On a FIFO queue, a clock that is set back lets no message be due before former ones."""
        now, log = self._asked.now_ticks, self._asked.service.log
        if not self.attributes.is_fifo:
            return now
        return max(now, log.watermark(self._queue) + round(log.read_delay_seconds * TICKS_PER_SECOND))

    def _context_of(self, trace: str, *, named: bool) -> MessageHeaders:
        """The trace context of a message that has a header of X-Ray.

        :param named: the message has it, not the request, whose ``traceparent`` says more.
        """
        if self._context and not named:
            return self._context
        parent = traceparent_of_xray(trace)
        return self._context if parent is None else {TRACEPARENT: parent.encode()}

    async def send(self, ready: Sequence[_Ready]) -> list[dict[str, Any]]:
        """Store messages, and tell of each what its sender learns."""
        asked, is_fifo, drafts = self._asked, self.attributes.is_fifo, [one.draft for one in ready]
        if not (is_fifo or self.attributes.is_fair) and any(draft.key is not None for draft in drafts):
            await make_fair(asked, self._queue)  # other queues do without the work that fairness takes
        appended = await asked.service.log.append(AppendRequest(self._queue, drafts))
        if not appended.repeated:
            asked.service.monitor.appended(asked.counted_as, len(drafts), bytes_of(drafts))
        return [_sent(one, place.id, is_fifo=is_fifo) for one, place in zip(ready, appended.placed, strict=True)]


def _parse_system(given: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Attribute]:
    """:raises SqsError: it is not the trace header, the only one that a sender may give."""
    found = parse_attributes(given, "system")
    if unknown := [name for name in found if name != _TRACE or found[name].type != "String"]:
        raise invalid_parameter(f"Message system attribute name '{shown(unknown[0])}' is invalid.")
    return found


def _check_token(name: str, text: str) -> None:
    if not _TOKEN.fullmatch(text):
        raise invalid_parameter(
            f"Value {shown(text)} for parameter {name} is invalid. Reason: {name} can only include alphanumeric and "
            "punctuation characters. 1 to 128 in length."
        )


def _check_deduplication(attributes: QueueAttributes, values: Mapping[str, Any]) -> None:
    """:raises SqsError: a FIFO queue could not know this message when it is sent again."""
    given = values.get("MessageDeduplicationId")
    if given is not None:
        _check_token("MessageDeduplicationId", given)
    elif attributes.value("ContentBasedDeduplication") != "true":
        raise invalid_parameter(
            "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
        )


def _window_key(attributes: QueueAttributes, group: str | None, deduplication_id: str) -> IdempotencyKey:
    """By what a FIFO queue knows a message that is sent again. Another body under it counts as the same."""
    whose = group if attributes.value("DeduplicationScope") == "messageGroup" else ""
    return IdempotencyKey(f"sqs {attributes.purges} {whose} {deduplication_id}", b"sqs", _WINDOW_SECONDS)


def _sent(one: _Ready, id_: MessageId, *, is_fifo: bool) -> dict[str, Any]:
    found = {"MessageId": message_id(id_), "MD5OfMessageBody": md5_of_body(one.draft.body)}
    if one.attributes:
        found["MD5OfMessageAttributes"] = md5_of_attributes(one.attributes)
    if one.system:
        found["MD5OfMessageSystemAttributes"] = md5_of_attributes(one.system)
    if is_fifo:
        found["SequenceNumber"] = sequence_number(id_)
    return found
