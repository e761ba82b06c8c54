"""The request of a step of leases, from its JSON (queue-layer, section 2)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from queuey.api.batches import batch_drafts, large_object
from queuey.api.fields import check_query
from queuey.api.json_fields import JsonFields
from queuey.api.params import Problems
from queuey.api.receipts import Receipt
from queuey.errors import InvalidParameter, InvalidReceipt
from queuey.http.access import allowed
from queuey.http.exchange import Call
from queuey.model import AppendRequest, Draft, IdempotencyKey, Queue
from queuey.model.lease_requests import Action, ReceiveRequest, Settle
from queuey.model.lease_steps import RenewAll
from queuey.security.permissions import Permission
from queuey.service import Service

__all__ = ["MAX_VISIBILITY_SECONDS", "AskedStep", "asked_of"]

MEMBERS = ("attempt", "receiver", "acknowledge", "release", "extend", "reject", "append", "receive")
MAX_SETTLES = 1000
"""Receipts in one request."""
MAX_RECEIVED = 1000
MAX_VISIBILITY_SECONDS = 43_200
MAX_WAIT_SECONDS = 60
MAX_QUEUES_APPENDED = 10
_MAX_TEXT = 128
_MAX_REASON = 1024


class AskedStep(NamedTuple):
    """A step, parsed."""

    settles: Mapping[int, Sequence[Settle]]
    """By partition."""
    order: Sequence[tuple[int, int]]
    """The partition of each settle and its index there, in the order of the request."""
    receipts: Sequence[str]
    """In the same order."""
    token: int | None
    """The token of all receipts."""
    renewals: Sequence[RenewAll]
    appends: Sequence[AppendRequest]
    receive: ReceiveRequest | None
    wait_seconds: float
    partitions: Sequence[int]
    attempt: IdempotencyKey | None


async def asked_of(service: Service, call: Call, queue: Queue, default_receiver: str) -> AskedStep:
    """What a request asks for.

    :param default_receiver: if the request names none.
    :raises InvalidParameter: it names every wrong member.
    :raises InvalidReceipt: a receipt is none, is another queue's, or stands twice.
    :raises Forbidden, QueueNotFound: of a queue to append to.
    """
    document = await large_object(call.body, service.settings)
    problems = Problems()
    fields = JsonFields(document, MEMBERS, problems)
    check_query(call, MEMBERS, problems, "member of the body")
    receiver = fields.text("receiver", default_receiver, most=_MAX_TEXT)
    key = fields.text("attempt", "", most=_MAX_TEXT)
    settles = _Settles(queue, problems)
    settles.add_all(fields)
    receive, wait, partitions = _receive(fields, queue, receiver)
    problems.check()
    settles.check()
    attempt = IdempotencyKey(key, hashlib.sha256(call.path.encode() + b"\0" + call.body).digest()) if key else None
    appends = await _appends(service, call, queue.application, fields)
    return AskedStep(
        settles.by_partition,
        settles.order,
        settles.receipts,
        settles.token,
        settles.renewals,
        appends,
        receive,
        wait,
        partitions,
        attempt,
    )


class _Settles:
    """The leases that a request settles or extends."""

    def __init__(self, queue: Queue, problems: Problems) -> None:
        self._queue, self._problems = queue, problems
        self.by_partition: dict[int, list[Settle]] = {}
        self.order: list[tuple[int, int]] = []
        self.receipts: list[str] = []
        self.token: int | None = None
        self.renewals: list[RenewAll] = []
        self._refused = ""
        """The first receipt that is wrong, and why. An error here would keep its frames, and the body, in a cycle."""

    def add_all(self, fields: JsonFields) -> None:
        for at, text in enumerate(fields.entries("acknowledge", most=MAX_SETTLES)):
            self._add(f"acknowledge.{at}", text, Action.ACKNOWLEDGE)
        for one, prefix in self._objects(fields, "release", ("receipt", "delay", "count")):
            delay = one.seconds("delay", None, 0, MAX_VISIBILITY_SECONDS)
            counts = one.flag("count", default=True)
            self._add(prefix, one.raw("receipt"), Action.RELEASE, seconds=delay, counts=counts)
        for one, prefix in self._objects(fields, "reject", ("receipt", "reason")):
            self._add(prefix, one.raw("receipt"), Action.REJECT, reason=one.text("reason", "", most=_MAX_REASON))
        if isinstance(fields.raw("extend"), dict):
            self._renew(JsonFields(fields.raw("extend"), ("receiver", "visibility"), self._problems, "extend."))
            return
        for one, prefix in self._objects(fields, "extend", ("receipt", "visibility")):
            self._add(prefix, one.raw("receipt"), Action.EXTEND, seconds=_visibility_of(one))

    def check(self) -> None:
        """:raises InvalidReceipt: one is wrong, or there are too many."""
        if self._refused:
            raise InvalidReceipt(self._refused)
        if len(self.receipts) > MAX_SETTLES:
            raise InvalidReceipt(f"{len(self.receipts)} receipts in one request: at most {MAX_SETTLES} may stand there")
        if len({*self.receipts}) < len(self.receipts):
            raise InvalidReceipt("a receipt stands in the request twice")

    def _objects(self, fields: JsonFields, name: str, known: Sequence[str]) -> list[tuple[JsonFields, str]]:
        found = []
        for at, entry in enumerate(fields.entries(name, most=MAX_SETTLES)):
            prefix = f"{name}.{at}"
            found.append((JsonFields(entry, known, self._problems, f"{prefix}."), prefix))
        return found

    def _renew(self, one: JsonFields) -> None:
        self.renewals.append(RenewAll(one.text("receiver", "", most=_MAX_TEXT), _visibility_of(one)))
        if "receiver" not in one:
            one.wrong("receiver", "Required")

    def _add(self, field: str, text: Any, action: Action, **how: Any) -> None:
        if not isinstance(text, str):
            self._problems.add(field, "must have a receipt, a text")
            return
        try:
            receipt = Receipt.parse(text)
        except InvalidReceipt as error:
            self._refused = self._refused or str(error)
            return
        if receipt.queue != self._queue.uuid or receipt.partition > self._queue.partitions:
            self._refused = self._refused or f"{field}: the receipt is of another queue"
            return
        if self.token not in (None, receipt.token):
            self._refused = self._refused or f"{field}: the receipts are of several groups"
            return
        self.token = receipt.token
        here = self.by_partition.setdefault(receipt.partition, [])
        self.order.append((receipt.partition, len(here)))
        self.receipts.append(text)
        here.append(Settle(receipt.id, receipt.delivery, action, **how))


def _visibility_of(one: JsonFields) -> float:
    visibility = one.seconds("visibility", None, 0, MAX_VISIBILITY_SECONDS)
    if visibility is None and "visibility" not in one:
        one.wrong("visibility", "Required")
    return visibility or 0.0


def _receive(fields: JsonFields, queue: Queue, receiver: str) -> tuple[ReceiveRequest | None, float, Sequence[int]]:
    if "receive" not in fields:
        return None, 0.0, ()
    known = ("max", "visibility", "wait", "pop", "partitions")
    one = JsonFields(fields.raw("receive"), known, fields.problems, "receive.")
    wanted = ReceiveRequest(
        one.whole("max", 1, 1, MAX_RECEIVED),
        one.seconds("visibility", None, 0, MAX_VISIBILITY_SECONDS),
        one.flag("pop", default=False),
        receiver,
    )
    wait = one.seconds("wait", 0.0, 0, MAX_WAIT_SECONDS) or 0.0
    numbers = one.entries("partitions", most=queue.partitions)
    for number in numbers:
        if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= queue.partitions:
            one.wrong("partitions", f"must be whole numbers from 1 to {queue.partitions}")
    return wanted, wait, [*dict.fromkeys(numbers)] or range(1, queue.partitions + 1)


async def _appends(service: Service, call: Call, application: str, fields: JsonFields) -> list[AppendRequest]:
    appends: list[AppendRequest] = []
    most, number = service.settings.limits.max_batch_messages, 0
    for at, entry in enumerate(fields.entries("append", most=MAX_QUEUES_APPENDED)):
        one = JsonFields(entry, ("queue", "messages"), fields.problems, f"append.{at}.")
        name = one.text("queue", "", most=_MAX_TEXT)
        messages = one.entries("messages", most=most)
        number += len(messages)
        if number > most:
            one.wrong("messages", f"{number} messages in one request; this server takes {most}")
        for member in ("queue", "messages"):
            if member not in one:
                one.wrong(member, "Required")
        fields.problems.check()
        queue = await allowed(service, call.identity, Permission.APPEND, application, name)
        if queue is not None and messages:
            appends.append(AppendRequest(queue, await _drafts(service, queue, messages, at), is_bulk=False))
    fields.problems.check()
    return appends


async def _drafts(service: Service, queue: Queue, messages: Sequence[Any], at: int) -> Sequence[Draft]:
    try:
        return await batch_drafts(messages, queue, service.settings, service.clock.now_ticks())
    except InvalidParameter as error:
        problems = {f"append.{at}.messages.{field}": text for field, text in error.problems.items()}
        raise InvalidParameter(problems=problems) from error
