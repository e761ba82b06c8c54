"""Actions that hand messages out, and settle them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from queuey.errors import InvalidReceipt, LeaseGroupNotFound, QueueyError, TooManyWaiters
from queuey.http.answer_room import CountedRoom
from queuey.http.pipeline import SMALL
from queuey.ids import TICKS_PER_SECOND, ZERO_ID, MessageId
from queuey.model import IdempotencyKey, Queue
from queuey.model.holes import Hole
from queuey.model.lease_requests import Acknowledged, Action, ReceiveRequest, Settle
from queuey.model.lease_steps import GroupStep, HandedOut, LeaseOutcome, LeaseStep
from queuey.model.receipts import Receipt
from queuey.security.access_keys import account_of
from queuey.security.permissions import Permission
from queuey.service.leases import Waiting
from queuey.sqs.actions.batches import check_entries, failed
from queuey.sqs.attributes import GROUP, attributes_of
from queuey.sqs.checksums import md5_of_attributes, md5_of_body
from queuey.sqs.errors import SqsError, invalid_parameter, invalid_receipt_handle, missing_parameter, shown
from queuey.sqs.messages import MessageParts, body_text, parts_of, sequence_number, shown_attributes, unix_ms, value_of
from queuey.sqs.request import SqsRequest
from queuey.sqs.shapes import ACTIONS, check_bounds

__all__ = [
    "change_message_visibility",
    "change_message_visibility_batch",
    "delete_message",
    "delete_message_batch",
    "receive_message",
]

_SYSTEM = (
    "All",
    "ApproximateFirstReceiveTimestamp",
    "ApproximateReceiveCount",
    "AWSTraceHeader",
    "DeadLetterQueueSourceArn",
    "MessageDeduplicationId",
    "MessageGroupId",
    "SenderId",
    "SentTimestamp",
    "SequenceNumber",
)
_MESSAGE_ROOM = 4 << 10
"""Bytes that each message after the first may have on average, while the server has room: an answer has fewer if they are
larger. One comes whatever its size, and no receive is refused for want of this room."""
_LONGEST_SECONDS = 43_200
"""From a receive to the end of its lease, however often that is changed."""
_ATTEMPT = re.compile(r"[!-~]{1,128}")

Result = Mapping[str, Any]


async def receive_message(asked: SqsRequest) -> Result:
    """Hand out messages that may be received now, or wait for the first."""
    queue, values = await asked.queue(Permission.RECEIVE), asked.values
    attributes = attributes_of(queue)
    system = _system_names(values)
    wait = values.get("WaitTimeSeconds", attributes.number("ReceiveMessageWaitTimeSeconds"))
    visibility = values.get("VisibilityTimeout", attributes.number("VisibilityTimeout"))
    most = values.get("MaxNumberOfMessages", 1)
    receiver = " ".join([f"app:{asked.application}", asked.call.peer]).strip()
    room_bytes = min(SMALL, asked.service.settings.limits.max_answer_bytes)
    wanted = ReceiveRequest(most, float(visibility), False, receiver, max_bytes=room_bytes, blames_each=True)
    group = GroupStep(
        queue,
        GROUP,
        asked.service.leases.new_group(queue.leases.settings(asked.service.leases.default_settings), ZERO_ID),
        receive_from=range(1, queue.partitions + 1),
    )
    step = LeaseStep([group], receive=wanted, attempt=_attempt(asked, is_fifo=attributes.is_fifo))
    waiting = (
        Waiting(float(wait), tuple(sorted(asked.call.identity.principals)), asked.call.in_thread) if wait else None
    )
    with CountedRoom(asked.call.ticket, wanted) as room:
        if most > 1:
            room.grow((most - 1) * _MESSAGE_ROOM)
        try:
            outcome = await asked.service.leases.step(step, room, waiting)
        except TooManyWaiters as error:
            raise SqsError("OverLimit", str(error)) from error
        if outcome.handed and not outcome.repeated:
            asked.service.monitor.delivered(asked.counted_as, "lease", len(outcome.handed), outcome.handed.size)
        if outcome.is_full and not outcome.handed and not attributes.is_fifo:
            raise SqsError("OverLimit", "Too many messages of this queue are in flight: delete some of them first.")
        handed = sorted_by_group(outcome.handed) if attributes.is_fifo else outcome.handed
        return {"Messages": [_shown(asked, queue, outcome, one, system) for one in handed]}


def sorted_by_group(handed: Sequence[HandedOut]) -> Sequence[HandedOut]:
    """Messages of one group side by side, the groups in the order of their first messages."""
    firsts: dict[str | None, int] = {}
    for at, one in enumerate(handed):
        firsts.setdefault(one.message.key, at)
    return sorted(handed, key=lambda one: firsts[one.message.key])


def _system_names(values: Mapping[str, Any]) -> frozenset[str]:
    names = [*values.get("AttributeNames", ()), *values.get("MessageSystemAttributeNames", ())]
    for name in names:
        if name not in _SYSTEM:
            raise SqsError("InvalidAttributeName", f"Unknown Attribute {shown(name)}.")
    return frozenset(_SYSTEM if "All" in names else names)


def _attempt(asked: SqsRequest, *, is_fifo: bool) -> IdempotencyKey | None:
    given = asked.values.get("ReceiveRequestAttemptId")
    if given is None:
        return None
    if not is_fifo:
        raise invalid_parameter(
            f"Value {shown(given)} for parameter ReceiveRequestAttemptId is invalid. Reason: The request include parameter "
            "that is not valid for this queue type."
        )
    if not _ATTEMPT.fullmatch(given):
        raise invalid_parameter(
            f"Value {shown(given)} for parameter ReceiveRequestAttemptId is invalid. Reason: ReceiveRequestAttemptId can "
            "only include alphanumeric and punctuation characters. 1 to 128 in length."
        )
    return IdempotencyKey(f"sqs {given}", hashlib.sha256(b"sqs").digest())


def _shown(asked: SqsRequest, queue: Queue, outcome: LeaseOutcome, one: HandedOut, system: frozenset[str]) -> Result:
    message, lease = one.message, one.hole
    text = body_text(message.body)
    parts = parts_of(message.headers)
    origin = None if parts.story is None else parts.story.message_id
    receipt = Receipt(queue.uuid, outcome.tokens[one.group], one.partition, message.id, lease.deliveries)
    found: dict[str, Any] = {
        "MessageId": str(message.id.uuid) if origin is None else str(UUID(origin)),
        "ReceiptHandle": receipt.text(),
        "MD5OfBody": md5_of_body(text.encode()),
        "Body": text,
    }
    if system:
        said = _system_attributes(asked, queue, outcome, one, parts)
        if chosen := {name: value for name, value in said.items() if name in system}:
            found["Attributes"] = chosen
    attributes = shown_attributes(parts.attributes, frozenset(asked.values.get("MessageAttributeNames", ())))
    if attributes:
        found["MD5OfMessageAttributes"] = md5_of_attributes(attributes)
        found["MessageAttributes"] = {name: value_of(attribute) for name, attribute in attributes.items()}
    return found


def _system_attributes(
    asked: SqsRequest, queue: Queue, outcome: LeaseOutcome, one: HandedOut, parts: MessageParts
) -> dict[str, str]:
    message, lease = one.message, one.hole
    own, story = parts.own, parts.story
    before = 0 if story is None else story.deliveries
    first_id = message.id if story is None else MessageId.parse(story.message_id)
    first = unix_ms(outcome.to_wall(lease.first_delivered))
    found = {
        "SenderId": account_of(own.get("sender") or queue.application),
        "SentTimestamp": str(own.get("sent") or unix_ms(first_id.ticks)),
        "ApproximateReceiveCount": str(lease.deliveries + before),
        "ApproximateFirstReceiveTimestamp": str(first),
    }
    if message.key is not None:
        found["MessageGroupId"] = message.key
    if queue.name.endswith(".fifo"):
        found["SequenceNumber"] = sequence_number(message.id)
        if "dedup" in own:
            found["MessageDeduplicationId"] = str(own["dedup"])
    if "trace" in own:
        found["AWSTraceHeader"] = str(own["trace"])
    if story is not None:
        found["DeadLetterQueueSourceArn"] = f"arn:aws:sqs:{asked.region}:{account_of(queue.application)}:{story.queue}"
    return found


# Settling


def _receipt(queue: Queue, handle: str) -> Receipt:
    """:raises SqsError: it is no receipt handle of this queue."""
    try:
        receipt = Receipt.parse(handle)
    except InvalidReceipt:
        raise invalid_receipt_handle(handle) from None
    if receipt.queue != queue.uuid or receipt.partition > queue.partitions:
        raise invalid_receipt_handle(handle)
    return receipt


async def _settle(asked: SqsRequest, queue: Queue, receipt: Receipt, settles: Sequence[Settle]) -> bool:
    """Settle one lease; False if it has ended, or its group is no more."""
    step = LeaseStep([GroupStep(queue, GROUP, None, receipt.token, {receipt.partition: settles})])
    try:
        with CountedRoom(asked.call.ticket, None) as room:
            outcome = await asked.service.leases.step(step, room)
    except (InvalidReceipt, LeaseGroupNotFound):
        return False
    return not outcome.stale


async def delete_message(asked: SqsRequest) -> Result:
    """Settle a message for good."""
    queue = await asked.queue(Permission.RECEIVE)
    await _delete(asked, queue, asked.values["ReceiptHandle"])
    return {}


async def _delete(asked: SqsRequest, queue: Queue, handle: str) -> None:
    receipt, is_fifo = _receipt(queue, handle), attributes_of(queue).is_fifo
    if is_fifo:
        await _check_in_time(asked, queue, receipt)
    if await _settle(asked, queue, receipt, Acknowledged([receipt.id], [receipt.delivery])):
        return
    if is_fifo:
        await _check_in_time(asked, queue, receipt)
    else:  # an older handle will do
        await _settle(asked, queue, receipt, [Settle(receipt.id, receipt.delivery, Action.REMOVE)])


async def _check_in_time(asked: SqsRequest, queue: Queue, receipt: Receipt) -> None:
    """:raises SqsError: the lease ran out, and its message is not settled. Then a FIFO queue deletes nothing."""
    now, hole = await _held(asked, queue, receipt)
    if hole is not None and (hole.deliveries != receipt.delivery or hole.visible_at <= now):
        raise invalid_parameter(
            f"Value {shown(receipt.text())} for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
        )


async def _held(asked: SqsRequest, queue: Queue, receipt: Receipt) -> tuple[int, Hole | None]:
    """This moment of the clock of leases, and the state of a message that was handed out and is not settled."""
    before = receipt.id.before()
    try:
        now, holes = await asked.service.leases.holes(queue, GROUP, receipt.partition, after=before, limit=1)
    except LeaseGroupNotFound:
        return 0, None
    return now, next((hole for hole in holes if hole.id == receipt.id), None)


async def delete_message_batch(asked: SqsRequest) -> Result:
    """Settle up to ten messages for good."""
    queue = await asked.queue(Permission.RECEIVE)
    entries = asked.values["Entries"]
    check_entries(entries, "DeleteMessageBatchRequestEntry")
    done, failures, receipts = [], [], []
    is_fifo = attributes_of(queue).is_fifo
    for entry in entries:
        try:
            receipt = _receipt(queue, _handle(entry))
            if is_fifo:
                await _check_in_time(asked, queue, receipt)
            receipts.append((entry["Id"], receipt))
        except QueueyError as error:
            failures.append(failed(entry["Id"], error))
    if await _delete_together(asked, queue, [receipt for _, receipt in receipts]):
        done = [{"Id": id_} for id_, _ in receipts]
    else:
        for id_, receipt in receipts:
            try:
                await _delete(asked, queue, receipt.text())
                done.append({"Id": id_})
            except QueueyError as error:
                failures.append(failed(id_, error))
    return {"Successful": done, "Failed": failures}


async def _delete_together(asked: SqsRequest, queue: Queue, receipts: Sequence[Receipt]) -> bool:
    """Settle leases of one group in one step; False if some have ended, and are to be looked at one by one."""
    if not receipts:
        return True
    tokens = {receipt.token for receipt in receipts}
    places = {(receipt.partition, receipt.id) for receipt in receipts}
    if len(tokens) > 1 or len(places) < len(receipts):
        return False
    by_partition: dict[int, list[Receipt]] = {}
    for receipt in sorted(receipts):
        by_partition.setdefault(receipt.partition, []).append(receipt)
    settles = {
        number: Acknowledged([one.id for one in some], [one.delivery for one in some])
        for number, some in by_partition.items()
    }
    step = LeaseStep([GroupStep(queue, GROUP, None, tokens.pop(), settles)])
    try:
        with CountedRoom(asked.call.ticket, None) as room:
            return not (await asked.service.leases.step(step, room)).stale
    except (InvalidReceipt, LeaseGroupNotFound):
        return False


def _handle(entry: Mapping[str, Any]) -> str:
    if "ReceiptHandle" not in entry:
        raise missing_parameter("ReceiptHandle")
    handle: str = entry["ReceiptHandle"]
    return handle


async def change_message_visibility(asked: SqsRequest) -> Result:
    """Let a lease run for some seconds from now. With 0 the message may be received at once."""
    queue = await asked.queue(Permission.RECEIVE)
    await _change_visibility(asked, queue, asked.values["ReceiptHandle"], asked.values["VisibilityTimeout"])
    return {}


async def _change_visibility(asked: SqsRequest, queue: Queue, handle: str, seconds: int) -> None:
    """A lease that ran out stays as it is: its message must not be hidden again."""
    receipt = _receipt(queue, handle)
    now, hole = await _held(asked, queue, receipt)
    if hole is None:
        raise invalid_parameter(
            f"Value {shown(handle)} for parameter ReceiptHandle is invalid. Reason: Message does not exist or is not "
            "available for visibility timeout change."
        )
    if hole.deliveries != receipt.delivery or hole.visible_at <= now:
        return
    if now + seconds * TICKS_PER_SECOND > hole.leased_at + _LONGEST_SECONDS * TICKS_PER_SECOND:
        raise invalid_parameter(
            f"Value {seconds} for parameter VisibilityTimeout is invalid. Reason: Total VisibilityTimeout for the message "
            f"is beyond the limit [{_LONGEST_SECONDS} seconds]."
        )
    action = Action.EXTEND if seconds else Action.RELEASE
    await _settle(asked, queue, receipt, [Settle(receipt.id, receipt.delivery, action, float(seconds))])


async def change_message_visibility_batch(asked: SqsRequest) -> Result:
    """The same for up to ten messages."""
    queue = await asked.queue(Permission.RECEIVE)
    entries = asked.values["Entries"]
    check_entries(entries, "ChangeMessageVisibilityBatchRequestEntry")
    structure = ACTIONS["ChangeMessageVisibilityBatch"].members["Entries"].structure or {}
    done, failures = [], []
    for entry in entries:
        try:
            check_bounds(structure, entry)
            if "VisibilityTimeout" not in entry:
                raise missing_parameter("VisibilityTimeout")
            await _change_visibility(asked, queue, _handle(entry), entry["VisibilityTimeout"])
            done.append({"Id": entry["Id"]})
        except QueueyError as error:
            failures.append(failed(entry["Id"], error))
    return {"Successful": done, "Failed": failures}
