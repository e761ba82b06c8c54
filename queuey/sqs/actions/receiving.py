"""Actions that hand messages out, and settle them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from queuey.errors import InvalidReceipt, LeaseGroupNotFound, QueueyError, TooManyWaiters
from queuey.http.access import identify_again
from queuey.http.answer_room import CountedRoom
from queuey.http.pipeline import SMALL
from queuey.ids import TICKS_PER_SECOND, MessageId
from queuey.model import Columns, IdempotencyKey, Message, Queue
from queuey.model.holes import LEASED, Hole
from queuey.model.lease_requests import Acknowledged, Action, ReceiveRequest, Settle
from queuey.model.lease_steps import GroupStep, LeaseOutcome, LeaseStep
from queuey.model.receipts import Receipt, Receipts, parse_receipts, receipt_ends, receipt_start
from queuey.security.access_keys import account_of
from queuey.security.permissions import Permission
from queuey.service.leases import Waiting
from queuey.sqs.actions.batches import check_entries, failed
from queuey.sqs.actions.purging import begin_noted_purge
from queuey.sqs.attributes import GROUP, attributes_of
from queuey.sqs.checksums import md5_of_attributes, md5_of_body
from queuey.sqs.errors import (
    SqsError,
    invalid_parameter,
    invalid_receipt_handle,
    missing_parameter,
    no_such_queue,
    not_for_this_type,
    shown,
)
from queuey.sqs.messages import (
    MessageParts,
    message_id,
    parts_of,
    sequence_number,
    shown_attributes,
    shown_bodies,
    shown_body,
    unix_ms,
    value_of,
)
from queuey.sqs.request import SqsRequest
from queuey.sqs.shapes import ACTIONS, NO_STRUCTURE, check_bounds

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
    if attributes.purging:
        await begin_noted_purge(asked, queue)
    system = _system_names(values)
    wait = values.get("WaitTimeSeconds", attributes.numbers["ReceiveMessageWaitTimeSeconds"])
    visibility = values.get("VisibilityTimeout")  # else that of the lease group, which follows from the attribute
    most = values.get("MaxNumberOfMessages", 1)
    receiver = " ".join([f"app:{asked.application}", asked.call.peer]).strip()
    room_bytes = min(SMALL, asked.service.settings.limits.max_answer_bytes)
    wanted = ReceiveRequest(most, visibility, False, receiver, max_bytes=room_bytes, blames_each=True)
    group = GroupStep(
        queue,
        GROUP,
        asked.new_group(queue),
        receive_from=range(1, queue.partitions + 1),
    )
    attempt = _attempt(asked, is_fifo=attributes.is_fifo)
    step = LeaseStep([group], receive=wanted, attempt=attempt, renews=attempt is not None)
    readers = tuple(sorted(asked.call.identity.principals))
    waiting = None
    if wait:

        async def check() -> None:
            await identify_again(asked.service, asked.call)
            if (await asked.queue(Permission.RECEIVE)).uuid != queue.uuid:
                raise no_such_queue()

        call = asked.call
        waiting = Waiting(float(wait), readers, call.in_thread, call.is_awaited, every=True, check=check)
    with CountedRoom(asked.call.ticket, wanted) as room:
        if most > 1:
            room.grow((most - 1) * _MESSAGE_ROOM)
        try:
            outcome = await asked.service.leases.step(step, room, waiting, has_gone=asked.call.has_gone)
        except TooManyWaiters as error:
            raise SqsError("OverLimit", str(error)) from error
        if outcome.handed and not outcome.repeated:
            asked.service.monitor.delivered(asked.counted_as, "lease", len(outcome.handed), outcome.handed.size)
        if outcome.is_full and not (outcome.handed or attributes.is_fifo or wait):
            raise SqsError("OverLimit", "Too many messages of this queue are in flight: delete some of them first.")
        messages = _Messages(asked, queue, outcome, system)
        return {"Messages": messages.by_group() if attributes.is_fifo else messages.shown}


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
        raise not_for_this_type("ReceiveRequestAttemptId", given)
    if not _ATTEMPT.fullmatch(given):
        raise invalid_parameter(
            f"Value {shown(given)} for parameter ReceiveRequestAttemptId is invalid. Reason: ReceiveRequestAttemptId can "
            "only include alphanumeric and punctuation characters. 1 to 128 in length."
        )
    return IdempotencyKey(f"sqs {given}", hashlib.sha256(b"sqs").digest())


class _Messages:
    """The messages of an answer."""

    def __init__(self, asked: SqsRequest, queue: Queue, outcome: LeaseOutcome, system: frozenset[str]) -> None:
        """:param system: the names of the system attributes that are asked for."""
        self._asked, self._queue, self._outcome, self._system = asked, queue, outcome, system
        self._wanted = frozenset(asked.values.get("MessageAttributeNames", ()))
        self._keys: list[str | None] = []
        self.shown: list[Result] = []
        for group, partition, messages, leases in outcome.handed.parts:
            start = receipt_start(queue.uuid, outcome.tokens[group])
            deliveries = [lease.deliveries for lease in leases]
            ends = receipt_ends(partition, messages.ticks, messages.tails, deliveries)
            self._keys += messages.keys
            if not system and messages.headers.count(None) == len(messages):
                self.shown += _plain(messages, [start + end for end in ends])
                continue
            self.shown += [
                self._message(message, lease, start + end)
                for message, lease, end in zip(messages, leases, ends, strict=True)
            ]

    def by_group(self) -> list[Result]:
        """Messages of one group side by side, the groups in the order of their first messages."""
        firsts: dict[str | None, int] = {}
        for at, key in enumerate(self._keys):
            firsts.setdefault(key, at)
        order = sorted(range(len(self._keys)), key=lambda at: firsts[self._keys[at]])
        return [self.shown[at] for at in order]

    def _message(self, message: Message, lease: Hole, handle: str) -> Result:
        text, body = shown_body(message.body)
        parts = parts_of(message.headers)
        found: dict[str, Any] = {
            "MessageId": message_id(message.id) if parts.story is None else str(UUID(parts.story.first_message_id)),
            "ReceiptHandle": handle,
            "MD5OfBody": md5_of_body(body),
            "Body": text,
        }
        if self._system:
            said = self._system_attributes(message, lease, parts)
            if chosen := {name: value for name, value in said.items() if name in self._system}:
                found["Attributes"] = chosen
        if parts.attributes and (attributes := shown_attributes(parts.attributes, self._wanted)):
            found["MD5OfMessageAttributes"] = md5_of_attributes(attributes)
            found["MessageAttributes"] = {name: value_of(attribute) for name, attribute in attributes.items()}
        return found

    def _system_attributes(self, message: Message, lease: Hole, parts: MessageParts) -> dict[str, str]:
        own, story, owner = parts.own, parts.story, self._queue.application
        before = 0 if story is None else story.all_deliveries
        first_id = message.id if story is None else MessageId.parse(story.first_message_id)
        first = unix_ms(self._outcome.to_wall(lease.first_delivered))
        found = {
            "SenderId": account_of(own.get("sender") or owner),
            "SentTimestamp": str(own.get("sent") or unix_ms(first_id.ticks)),
            "ApproximateReceiveCount": str(lease.deliveries + before),
            "ApproximateFirstReceiveTimestamp": str(first),
        }
        if message.key is not None:
            found["MessageGroupId"] = message.key
        if self._queue.name.endswith(".fifo"):
            found["SequenceNumber"] = sequence_number(message.id)
            if "dedup" in own:
                found["MessageDeduplicationId"] = str(own["dedup"])
        if "trace" in own:
            found["AWSTraceHeader"] = str(own["trace"])
        if story is not None:
            source = f"arn:aws:sqs:{self._asked.region}:{account_of(owner)}:{story.queue}"
            found["DeadLetterQueueSourceArn"] = source
        return found


def _plain(messages: Columns, handles: Sequence[str]) -> list[Result]:
    """Messages without headers, of which nothing more is asked for: most are."""
    ids = map(message_id, map(MessageId, messages.ticks, messages.tails))
    return [
        {"MessageId": id_, "ReceiptHandle": handle, "MD5OfBody": md5_of_body(body), "Body": text}
        for id_, handle, (text, body) in zip(ids, handles, shown_bodies([*messages.bodies]), strict=True)
    ]


# Settling


async def _receipt(asked: SqsRequest, queue: Queue, handle: str) -> Receipt:
    """:raises SqsError: it is no receipt handle of this queue."""
    try:
        receipt = Receipt.parse(handle)
    except InvalidReceipt:
        raise invalid_receipt_handle(handle) from None
    queue = await asked.service.queues.with_partitions(queue, receipt.partition)
    if receipt.queue != queue.uuid or receipt.partition > queue.partitions:
        raise invalid_receipt_handle(handle)
    return receipt


_NO_GROUP = (InvalidReceipt, LeaseGroupNotFound)
"""Receipts are of another lease group, or of a former one of this name: of no lease that SQS clients have."""


async def _settle(asked: SqsRequest, queue: Queue, token: int, settles: Mapping[int, Sequence[Settle]]) -> bool:
    """Settle leases of one group; False if one has ended.

    :param settles: by partition.
    :raises InvalidReceipt: the token is not that of the group of SQS clients, and nothing is done.
    :raises LeaseGroupNotFound: likewise, and there is no such group.
    """
    step = LeaseStep([GroupStep(queue, GROUP, None, token, settles)])
    with CountedRoom(asked.call.ticket, None) as room:
        return not (await asked.service.leases.step(step, room)).stale


async def delete_message(asked: SqsRequest) -> Result:
    """Settle a message for good."""
    queue = await asked.queue(Permission.RECEIVE)
    await _delete(asked, queue, asked.values["ReceiptHandle"])
    return {}


async def _delete(asked: SqsRequest, queue: Queue, handle: str) -> None:
    """:raises SqsError: it is no handle, or one of a FIFO queue that has expired."""
    receipt, is_fifo = await _receipt(asked, queue, handle), attributes_of(queue).is_fifo
    place, token = receipt.partition, receipt.token
    if is_fifo and await _is_late(asked, queue, receipt):
        raise _late(handle)
    try:
        if await _settle(asked, queue, token, {place: Acknowledged([receipt.id], [receipt.delivery])}):
            return
        if not is_fifo:  # an older handle will do
            await _settle(asked, queue, token, {place: [Settle(receipt.id, receipt.delivery, Action.REMOVE)]})
        elif await _is_late(asked, queue, receipt):
            raise _late(handle)
    except _NO_GROUP:
        raise invalid_receipt_handle(handle) from None


def _late(handle: str) -> SqsError:
    reason = "Reason: The receipt handle has expired."
    return invalid_parameter(f"Value {shown(handle)} for parameter ReceiptHandle is invalid. {reason}")


async def _is_late(asked: SqsRequest, queue: Queue, receipt: Receipt) -> bool:
    """Whether a lease has ended, and its message is not settled. Then a FIFO queue deletes nothing.

    A message that waits, or is to go to the dead letters, is hidden as well, and has no lease.
    """
    now, hole = await _held(asked, queue, receipt)
    if hole is None:
        return False
    return not hole.flags & LEASED or hole.deliveries != receipt.delivery or hole.visible_at <= now


async def _held(asked: SqsRequest, queue: Queue, receipt: Receipt) -> tuple[int, Hole | None]:
    """This moment of the clock of leases, and the state of a message that was handed out and is not settled."""
    before = receipt.id.before()
    try:
        now, holes, _ = await asked.service.leases.held(queue, GROUP, receipt.partition, after=before, limit=1)
    except LeaseGroupNotFound:
        return 0, None
    return now, next((hole for hole in holes if hole.id == receipt.id), None)


async def delete_message_batch(asked: SqsRequest) -> Result:
    """Settle up to ten messages for good."""
    queue = await asked.queue(Permission.RECEIVE)
    entries = asked.values["Entries"]
    check_entries(entries, "DeleteMessageBatchRequestEntry")
    receipts = parse_receipts([entry.get("ReceiptHandle", "") for entry in entries])
    if receipts is not None and await _delete_together(asked, queue, receipts):
        return {"Successful": [{"Id": entry["Id"]} for entry in entries], "Failed": []}
    done, failures = [], []
    for entry in entries:
        try:
            await _delete(asked, queue, _handle(entry))
            done.append({"Id": entry["Id"]})
        except QueueyError as error:
            failures.append(failed(entry["Id"], error))
    return {"Successful": done, "Failed": failures}


async def _delete_together(asked: SqsRequest, queue: Queue, receipts: Receipts) -> bool:
    """Settle leases of one group in one step; False if some have ended, and are to be looked at one by one."""
    places = [*zip(receipts.partitions, receipts.ids, strict=True)]
    if receipts.queue != queue.uuid or max(receipts.partitions) > queue.partitions or len({*places}) < len(places):
        return False
    if attributes_of(queue).is_fifo:
        for (number, id_), delivery in zip(places, receipts.deliveries, strict=True):
            if await _is_late(asked, queue, Receipt(queue.uuid, receipts.token, number, id_, delivery)):
                return False
    settles = {number: Acknowledged(ids, deliveries) for number, ids, deliveries in receipts.by_partition()}
    try:
        return await _settle(asked, queue, receipts.token, settles)
    except _NO_GROUP:
        return False


def _handle(entry: Mapping[str, Any]) -> str:
    if "ReceiptHandle" not in entry:
        raise missing_parameter("ReceiptHandle")
    handle: str = entry["ReceiptHandle"]
    return handle


async def change_message_visibility(asked: SqsRequest) -> Result:
    """Let a lease run for some seconds from now. With 0 the message may be received at once."""
    queue = await asked.queue(Permission.RECEIVE)
    handle = asked.values["ReceiptHandle"]
    change = await _change_of(asked, queue, handle, asked.values["VisibilityTimeout"])
    if change is not None and await _change_all(asked, queue, [change]):
        raise invalid_receipt_handle(handle)
    return {}


async def change_message_visibility_batch(asked: SqsRequest) -> Result:
    """The same for up to ten messages."""
    queue = await asked.queue(Permission.RECEIVE)
    entries = asked.values["Entries"]
    check_entries(entries, "ChangeMessageVisibilityBatchRequestEntry")
    structure = ACTIONS["ChangeMessageVisibilityBatch"].members["Entries"].structure or NO_STRUCTURE
    changes: dict[str, _LeaseChange] = {}
    wrong: dict[str, QueueyError] = {}
    for entry in entries:
        try:
            check_bounds(structure, entry)
            if "VisibilityTimeout" not in entry:
                raise missing_parameter("VisibilityTimeout")
            change = await _change_of(asked, queue, _handle(entry), entry["VisibilityTimeout"])
            if change is not None:
                changes[entry["Id"]] = change
        except QueueyError as error:
            wrong[entry["Id"]] = error
    tokens = await _change_all(asked, queue, [*changes.values()])
    for entry in entries:
        if entry["Id"] in changes and changes[entry["Id"]].receipt.token in tokens:
            wrong[entry["Id"]] = invalid_receipt_handle(_handle(entry))
    ids = [entry["Id"] for entry in entries]
    return {
        "Successful": [{"Id": id_} for id_ in ids if id_ not in wrong],
        "Failed": [failed(id_, wrong[id_]) for id_ in ids if id_ in wrong],
    }


class _LeaseChange(NamedTuple):
    """What becomes of a lease that is live."""

    receipt: Receipt
    settle: Settle


async def _change_of(asked: SqsRequest, queue: Queue, handle: str, seconds: int) -> _LeaseChange | None:
    """None for a lease that ran out: it stays as it is, since its message must not be hidden again.

    :raises SqsError: it is no handle, or its message is deleted, or would be hidden for too long.
    """
    receipt = await _receipt(asked, queue, handle)
    now, hole = await _held(asked, queue, receipt)
    if hole is None:
        raise invalid_parameter(
            f"Value {shown(handle)} for parameter ReceiptHandle is invalid. Reason: Message does not exist or is not "
            "available for visibility timeout change."
        )
    if hole.deliveries != receipt.delivery or hole.visible_at <= now:
        return None
    if now + seconds * TICKS_PER_SECOND > hole.leased_at + _LONGEST_SECONDS * TICKS_PER_SECOND:
        raise invalid_parameter(
            f"Value {seconds} for parameter VisibilityTimeout is invalid. Reason: Total VisibilityTimeout for the message "
            f"is beyond the limit [{_LONGEST_SECONDS} seconds]."
        )
    action = Action.EXTEND if seconds else Action.RELEASE
    return _LeaseChange(receipt, Settle(receipt.id, receipt.delivery, action, float(seconds)))


async def _change_all(asked: SqsRequest, queue: Queue, changes: Sequence[_LeaseChange]) -> set[int]:
    """Change leases in one step; one that is named again is changed in another step behind it.

    :returns: the tokens of receipts that are of no lease that SQS clients have. With these, nothing is changed.
    """
    wrong: set[int] = set()
    while changes:
        token, left = changes[0].receipt.token, list[_LeaseChange]()
        settles: dict[int, dict[MessageId, Settle]] = {}
        for one in changes:
            known = settles.setdefault(one.receipt.partition, {})
            if one.receipt.token != token or one.receipt.id in known:
                left.append(one)
            else:
                known[one.receipt.id] = one.settle
        try:
            await _settle(asked, queue, token, {number: [*some.values()] for number, some in settles.items() if some})
        except _NO_GROUP:
            wrong.add(token)
        changes = left
    return wrong
