"""Actions that send messages."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from queuey.errors import QueueyError
from queuey.ids import TICKS_PER_SECOND, MessageId
from queuey.model import AppendRequest, Draft, IdempotencyKey, Queue
from queuey.model.columns import bytes_of
from queuey.security.permissions import Permission
from queuey.service.log import partition_for
from queuey.sqs.actions.batches import check_entries, failed
from queuey.sqs.attributes import QueueAttributes, attributes_of
from queuey.sqs.checksums import Attribute, md5_of_attributes, md5_of_body
from queuey.sqs.errors import SqsError, invalid_parameter, missing_parameter, shown
from queuey.sqs.messages import check_text, parse_attributes, sequence_number, stored_headers, unix_ms
from queuey.sqs.request import SqsRequest
from queuey.sqs.shapes import ACTIONS, check_bounds

__all__ = ["send_message", "send_message_batch"]

MAX_BATCH_BYTES = 1 << 20
_WINDOW_SECONDS = 300
"""How long a FIFO queue remembers what was sent to it."""
_TOKEN = re.compile(r"[!-~]{1,128}")
_TRACE = "AWSTraceHeader"


class _Ready(NamedTuple):
    """A message that is checked."""

    draft: Draft
    attributes: Mapping[str, Attribute]
    system: Mapping[str, Attribute]


async def send_message(asked: SqsRequest) -> Mapping[str, Any]:
    """Send one message."""
    queue = await asked.queue(Permission.APPEND)
    attributes = attributes_of(queue)
    if attributes.is_fifo and "MessageGroupId" not in asked.values:
        raise missing_parameter("MessageGroupId")
    ready = _ready(asked, queue, attributes, asked.values)
    (sent,) = await _send(asked, queue, [ready])
    return sent


async def send_message_batch(asked: SqsRequest) -> Mapping[str, Any]:
    """Send up to ten messages. Those that are wrong fail alone."""
    queue = await asked.queue(Permission.APPEND)
    entries = asked.values["Entries"]
    check_entries(entries, "SendMessageBatchRequestEntry")
    attributes = attributes_of(queue)
    if attributes.is_fifo:
        for entry in entries:
            if "MessageGroupId" not in entry:
                raise invalid_parameter("The request must contain the parameter MessageGroupId.")
            _window_key(attributes, entry)
    total = sum([_size_of(entry) for entry in entries])
    if total > MAX_BATCH_BYTES:
        text = f"Batch requests cannot be longer than {MAX_BATCH_BYTES} bytes. You have sent {total} bytes."
        raise SqsError("BatchRequestTooLong", text)
    ready: list[_Ready] = []
    ids: list[str] = []
    failures = []
    structure = ACTIONS["SendMessageBatch"].members["Entries"].structure or {}
    for entry in entries:
        try:
            check_bounds(structure, entry)
            ready.append(_ready(asked, queue, attributes, entry))
            ids.append(entry["Id"])
        except QueueyError as error:
            failures.append(failed(entry["Id"], error))
    sent = await _send(asked, queue, ready) if ready else []
    done = [{"Id": id_, **one} for id_, one in zip(ids, sent, strict=True)]
    return {"Successful": done, "Failed": failures}


def _size_of(entry: Mapping[str, Any]) -> int:
    size = len(entry.get("MessageBody", "").encode())
    for name, value in entry.get("MessageAttributes", {}).items():
        size += len(name.encode()) + len(value.get("DataType", "").encode())
        size += len(value.get("StringValue", "").encode()) + len(value.get("BinaryValue", b""))
    return size


def _ready(asked: SqsRequest, queue: Queue, attributes: QueueAttributes, values: Mapping[str, Any]) -> _Ready:
    """:raises SqsError: the message is refused."""
    text = values.get("MessageBody", "")
    if not text:
        raise missing_parameter("MessageBody")
    check_text(text)
    body = text.encode()
    given = parse_attributes(values.get("MessageAttributes", {}))
    system = parse_attributes(values.get("MessageSystemAttributes", {}), "system")
    if unknown := [name for name in system if name != _TRACE or system[name].type != "String"]:
        raise invalid_parameter(f"Message system attribute name '{shown(unknown[0])}' is invalid.")
    size = len(body) + sum(
        [len(name.encode()) + len(one.type.encode()) + len(one.value) for name, one in given.items()]
    )
    most = min(attributes.number("MaximumMessageSize"), asked.service.settings.limits.max_body_bytes)
    if size > most:
        raise invalid_parameter(
            f"One or more parameters are invalid. Reason: Message must be shorter than {most} bytes."
        )
    now, delay = asked.now_ticks, _delay(attributes, values)
    own: dict[str, Any] = {}
    trace = system[_TRACE].value.decode() if system else asked.call.headers.get("x-amzn-trace-id")
    if trace:
        own["trace"] = trace[:1024]
    if asked.application != queue.application:
        own["sender"] = asked.application
    key, idempotency = _group(attributes, values), None
    if attributes.is_fifo:
        idempotency = _window_key(attributes, values)
        own["dedup"] = values.get("MessageDeduplicationId") or hashlib.sha256(body).hexdigest()
    elif "MessageDeduplicationId" in values:
        raise invalid_parameter(
            f"Value {shown(values['MessageDeduplicationId'])} for parameter MessageDeduplicationId is invalid. Reason: The "
            "request include parameter that is not valid for this queue type."
        )
    if delay:
        own["sent"] = unix_ms(now)
    draft = Draft(
        partition_for(queue, key),
        body,
        attributes.number("MessageRetentionPeriod"),
        key=key,
        due_ticks=now + delay * TICKS_PER_SECOND if delay else None,
        idempotency=idempotency,
        headers=stored_headers(given, own),
    )
    return _Ready(draft, given, system)


def _delay(attributes: QueueAttributes, values: Mapping[str, Any]) -> int:
    """Seconds."""
    given: int | None = values.get("DelaySeconds")
    if attributes.is_fifo and given:
        raise invalid_parameter(
            f"Value {given} for parameter DelaySeconds is invalid. Reason: The request include parameter that is not valid "
            "for this queue type."
        )
    return attributes.number("DelaySeconds") if given is None or attributes.is_fifo else given


def _group(attributes: QueueAttributes, values: Mapping[str, Any]) -> str | None:
    """The message group, which is the key of the message."""
    group: str | None = values.get("MessageGroupId")
    if group is not None:
        _check_token("MessageGroupId", group)
    return group


def _check_token(name: str, text: str) -> None:
    if not _TOKEN.fullmatch(text):
        raise invalid_parameter(
            f"Value {shown(text)} for parameter {name} is invalid. Reason: {name} can only include alphanumeric and "
            "punctuation characters. 1 to 128 in length."
        )


def _window_key(attributes: QueueAttributes, values: Mapping[str, Any]) -> IdempotencyKey:
    """By what a FIFO queue knows a message that is sent again. Another body under it counts as the same."""
    given = values.get("MessageDeduplicationId")
    if given is not None:
        _check_token("MessageDeduplicationId", given)
    elif attributes.value("ContentBasedDeduplication") != "true":
        raise invalid_parameter(
            "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
        )
    else:
        given = hashlib.sha256(values.get("MessageBody", "").encode()).hexdigest()
    whose = values["MessageGroupId"] if attributes.value("DeduplicationScope") == "messageGroup" else ""
    return IdempotencyKey(f"sqs {attributes.purges} {whose} {given}", b"sqs", _WINDOW_SECONDS)


async def _send(asked: SqsRequest, queue: Queue, ready: Sequence[_Ready]) -> list[dict[str, Any]]:
    """Store messages, and tell of each what its sender learns."""
    drafts = [one.draft for one in ready]
    appended = await asked.service.log.append(AppendRequest(queue, drafts))
    if not appended.repeated:
        asked.service.monitor.appended(asked.counted_as, len(drafts), bytes_of(drafts))
    is_fifo = queue.name.endswith(".fifo")
    return [_sent(one, place.id, is_fifo=is_fifo) for one, place in zip(ready, appended.placed, strict=True)]


def _sent(one: _Ready, id_: MessageId, *, is_fifo: bool) -> dict[str, Any]:
    found = {"MessageId": str(id_.uuid), "MD5OfMessageBody": md5_of_body(one.draft.body)}
    if one.attributes:
        found["MD5OfMessageAttributes"] = md5_of_attributes(one.attributes)
    if one.system:
        found["MD5OfMessageSystemAttributes"] = md5_of_attributes(one.system)
    if is_fifo:
        found["SequenceNumber"] = sequence_number(id_)
    return found
