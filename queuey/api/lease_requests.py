"""The request of a step of leases, from its JSON (queue-layer, section 2)."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson

from queuey.api.batches import batch_drafts, large_object, plain_object
from queuey.api.drafts import check_letters
from queuey.api.fields import check_query
from queuey.api.json_fields import JsonFields
from queuey.api.lease_settings import MAX_VISIBILITY_SECONDS, new_group
from queuey.api.live.reading import MAX_PARTITIONS_OF_ALL, MAX_QUEUES
from queuey.api.params import Problems, queue_name, quoted
from queuey.errors import InvalidParameter, InvalidReceipt, QueueNotFound
from queuey.http.access import allowed, identify_again, queue_again
from queuey.http.exchange import Call
from queuey.http.pipeline import SMALL
from queuey.model import AppendRequest, Draft, IdempotencyKey, Queue
from queuey.model.dead_letters import reason_with
from queuey.model.lease_requests import Acknowledged, Action, ReceiveRequest, Settle
from queuey.model.lease_steps import GroupStep, LeaseStep, RenewAll
from queuey.model.receipts import Receipt, Receipts, parse_receipts
from queuey.security.permissions import Permission
from queuey.security.principals import STRANGERS
from queuey.service import Service
from queuey.service.leases import Waiting
from queuey.service.turns import LOOK_ROWS, Turns

__all__ = ["LEAST_ROOM", "AskedStep", "asked_of"]

MEMBERS = ("attempt", "receiver", "acknowledge", "release", "extend", "reject", "append", "receive")
SEVERAL_MEMBERS = ("queues", "order", *MEMBERS)
FIRST, WEIGHTED = "first", "weighted"
MAX_WEIGHT = 1000
MAX_SETTLES = 1000
"""Receipts in one request."""
MAX_RECEIVED = 1000
MAX_WAIT_SECONDS = 60
MAX_QUEUES_APPENDED = 10
LEAST_ROOM, _MESSAGE_ROOM, _MOST_ROOM = SMALL, 1 << 10, 1 << 20
"""Bytes of messages: in any answer, for each message that is asked for, and in the largest answer of small messages."""
_MAX_TEXT = 128
_MOST_REMEMBERED = 200
"""Bytes of what is received as JSON. Receivers ask for the same over and over."""
_MAX_REASON, _MAX_TRACEBACK = 1024, 4096


class AskedStep(NamedTuple):
    """A step, parsed."""

    step: LeaseStep
    """A group of each queue, in the order of the request."""
    receipts: Sequence[str]
    """In the order of the settles of each partition."""
    waiting: Waiting | None
    """None if it does not wait."""
    is_plain: bool = False
    """It acknowledges its receipts and receives, and is known to do nothing else."""


async def asked_of(service: Service, call: Call, group: str, queue: Queue | None) -> AskedStep:
    """What a request asks for.

    :param queue: the one that the path names; None if the body names them.
    :raises InvalidParameter: it names every wrong member, or every wrong queue.
    :raises InvalidReceipt: a receipt is none, is another queue's, or stands twice.
    :raises Forbidden, QueueNotFound: of a queue to receive from or to append to.
    """
    plain = None if queue is None or call.query_string else _plainly_asked(service, call, group, queue)
    if plain is not None:
        return plain
    document = await large_object(call.body, service.settings)
    problems = Problems()
    members = SEVERAL_MEMBERS if queue is None else MEMBERS
    fields = JsonFields(document, members, problems)
    if call.query_string:
        in_query = [name for name in members if queue is not None or name != "receive"]
        check_query(call, in_query, problems, "member of the body")
    queues, turns = ([queue], ()) if queue is not None else await _queues(service, call, fields)
    proven, unnamed = _receiver(
        call.identity.acting(Permission.RECEIVE, queues[0].application, queues[0].name), call.peer
    )
    receiver = fields.text("receiver", unnamed, most=_MAX_TEXT)
    key = fields.text("attempt", "", most=_MAX_TEXT)
    settles = _Settles(queues, problems)
    settles.add_all(fields)
    receive, wait, partitions = _receive(fields, queue, receiver, service.settings.limits.max_answer_bytes)
    problems.check()
    settles.check()
    attempt = _attempt(call, key) if key else None
    appends = await _appends(service, call, fields) if "append" in fields else ()
    groups = [
        GroupStep(
            one,
            group,
            new_group(service, one) if settles.tokens[at] is None else None,
            settles.tokens[at],
            settles.by_partition[at],
            settles.renewals,
            () if receive is None else partitions or range(1, one.partitions + 1),
        )
        for at, one in enumerate(queues)
    ]
    waiting = _waiting(service, call, queues, wait, proven, partitions) if wait else None
    return AskedStep(LeaseStep(groups, appends, receive, attempt, turns=turns), settles.receipts, waiting)


def _plainly_asked(service: Service, call: Call, group: str, queue: Queue) -> AskedStep | None:
    """What a request asks for that does nothing but acknowledge and receive, under an attempt or not, as most do.

    :returns: None if it does anything else, or has a mistake, which is then looked for.
    """
    document = plain_object(call.body)
    if document is None:
        return None
    texts, members = document.get("acknowledge"), document.get("receive")
    names = [name for name in (document.get("attempt"), document.get("receiver")) if name is not None]
    if len(document) != (texts is not None) + (members is not None) + len(names) or not all(map(_is_name, names)):
        return None
    named, quotes = b"", 2 * len(document) + 2 * len(names)
    proven, unnamed = _receiver(call.identity.acting(Permission.RECEIVE, queue.application, queue.name), call.peer)
    receiver: str = document.get("receiver", unnamed)
    receiving, token, settles = _NOTHING_RECEIVED, None, _NOTHING_SETTLED
    if members is not None:
        named = orjson.dumps(members)
        if len(named) > _MOST_REMEMBERED:
            return None
        known = _received(named, receiver, queue.partitions, service.settings.limits.max_answer_bytes)
        if known is None:
            return None
        receiving = known
    if texts is not None:
        found = parse_receipts(texts) if type(texts) is list and 0 < len(texts) <= MAX_SETTLES else None
        if found is None or found.queue != queue.uuid or max(found.partitions) > queue.partitions:
            return None
        if len(texts) > 1 and len({*texts}) < len(texts):
            return None
        token, settles = found.token, _acknowledged(found)
        quotes += 2 * len(texts)
    if call.body.count(b'"') != quotes + named.count(b'"'):
        return None  # a member replaced another
    wanted, wait, partitions = receiving
    receive_from: Sequence[int] = () if wanted is None else partitions or range(1, queue.partitions + 1)
    new = new_group(service, queue) if token is None else None
    attempt = _attempt(call, document["attempt"]) if "attempt" in document else None
    step = LeaseStep((GroupStep(queue, group, new, token, settles, (), receive_from),), (), wanted, attempt)
    waiting = _waiting(service, call, [queue], wait, proven, partitions) if wait else None
    return AskedStep(step, texts or (), waiting, is_plain=True)


def _waiting(
    service: Service,
    call: Call,
    queues: Sequence[Queue],
    seconds: float,
    proven: Sequence[str],
    partitions: Sequence[int],
) -> Waiting:
    async def check() -> None:
        await identify_again(service, call)
        for queue in queues:
            await queue_again(service, call, queue, Permission.RECEIVE)

    return Waiting(seconds, proven, call.in_thread, call.is_awaited, every=not partitions, check=check)


def _is_name(text: object) -> bool:
    return isinstance(text, str) and 0 < len(text) <= _MAX_TEXT and text.isprintable()


def _attempt(call: Call, name: str) -> IdempotencyKey:
    """An attempt, bound to all that its request asks for."""
    return IdempotencyKey(name, hashlib.sha256(call.path.encode() + b"\0" + call.body).digest())


@lru_cache(maxsize=4096)
def _receiver(principals: frozenset[str], peer: str) -> tuple[Sequence[str], str]:
    """The principals that receive, and how a receiver is called that names itself not."""
    proven = sorted(principals)
    return tuple(proven) or (STRANGERS,), " ".join([*proven[:1], peer]).strip()


def _acknowledged(found: Receipts) -> Mapping[int, Acknowledged]:
    if len(found.partitions) == 1:
        return {found.partitions[0]: Acknowledged(found.ids, found.deliveries)}
    return {number: Acknowledged(ids, deliveries) for number, ids, deliveries in found.by_partition()}


async def _queues(service: Service, call: Call, fields: JsonFields) -> tuple[Sequence[Queue], Sequence[int]]:
    """The queues that a body names, and their turns."""
    names, weights = _names(fields)
    fields.problems.check()
    queues: list[Queue] = []
    turns = Turns()
    for name in names:
        await turns.give()
        turns.count(LOOK_ROWS)
        queues.append(await _named(service, call, Permission.RECEIVE, name))
    if sum(queue.partitions for queue in queues) > MAX_PARTITIONS_OF_ALL:
        raise InvalidParameter(problems={"queues": f"have more than {MAX_PARTITIONS_OF_ALL} partitions together"})
    return queues, draw_turns(weights) if weights else range(len(queues))


def _names(fields: JsonFields) -> tuple[Sequence[str], Sequence[int]]:
    """The names of queues, and their weights; no weights if the order of the names counts."""
    names: Sequence[Any]
    weights: Sequence[int]
    given = fields.raw("queues")
    order = fields.text("order", WEIGHTED if isinstance(given, dict) else FIRST, most=10)
    if order not in (FIRST, WEIGHTED):
        fields.wrong("order", f"{quoted(order)} is not one of {FIRST}, {WEIGHTED}")
    names, weights = [], []
    if isinstance(given, dict):
        names = [*given]
        if order == FIRST:
            fields.wrong("order", f"{FIRST} is the order of a list, and queues is an object of weights")
        if len(names) <= MAX_QUEUES:
            weighed = JsonFields(given, names, fields.problems, "queues.")
            weights = [weighed.whole(name, 1, 1, MAX_WEIGHT) for name in names]
    else:
        names = [*fields.entries("queues", most=MAX_QUEUES)]
        weights = [1] * len(names) if order == WEIGHTED else []
    if not names:
        fields.wrong("queues", f"Required: a list of 1 to {MAX_QUEUES} names of queues, or an object of their weights")
    elif len(names) > MAX_QUEUES:
        fields.wrong("queues", f"has {len(names)} entries: at most {MAX_QUEUES} may stand in one request")
    for at, name in enumerate(names[:MAX_QUEUES]):
        if isinstance(name, str):
            fields.problems.take(f"queues.{at}", queue_name, name, "")
        else:
            fields.wrong(f"queues.{at}", "must be the name of a queue, a text")
    if len({*map(str, names)}) < len(names):
        fields.wrong("queues", "names a queue twice")
    return names, weights


def draw_turns(weights: Sequence[int]) -> Sequence[int]:
    """Indexes in a random order.

    Of those that are left, each comes next by its share of their weights. So a queue of weight 3 comes before one of
    weight 1 three times of four, and none is last for ever.
    """
    return sorted(range(len(weights)), key=lambda at: random.expovariate(weights[at]))


async def _named(service: Service, call: Call, permission: Permission, name: str) -> Queue:
    """A queue of the application that a body names.

    :raises QueueNotFound: it says which; and as :func:`~queuey.http.access.allowed`.
    """
    queue = await allowed(service, call.identity, permission, call.application, name)
    if queue is None:
        raise QueueNotFound.named(name)
    call.named = [*call.named, queue]
    return queue


class _Settles:
    """The leases that a request settles or extends."""

    def __init__(self, queues: Sequence[Queue], problems: Problems) -> None:
        self._queues, self._problems = queues, problems
        self._places = {queue.uuid.int: at for at, queue in enumerate(queues)}
        self.by_partition: list[dict[int, Sequence[Settle]]] = [{} for _ in queues]
        """Of each queue."""
        self.tokens: list[int | None] = [None] * len(queues)
        """Those of the receipts of each queue."""
        self.receipts: list[str] = []
        self.renewals: list[RenewAll] = []
        self._refused = ""
        """The first receipt that is wrong, and why. An error here would keep its frames, and the body, in a cycle."""

    def add_all(self, fields: JsonFields) -> None:
        texts = fields.entries("acknowledge", most=MAX_SETTLES)
        if texts and not self._acknowledge(texts):
            for at, text in enumerate(texts):
                self._add(f"acknowledge.{at}", text, Action.ACKNOWLEDGE)
        if fields.has_any("release", "reject", "extend"):
            self._add_others(fields)

    def _acknowledge(self, texts: Sequence[Any]) -> bool:
        """Add receipts of one group together; False if they are none."""
        found = parse_receipts(texts)
        place = None if found is None else self._places.get(found.queue.int)
        if found is None or place is None or max(found.partitions) > self._queues[place].partitions:
            return False
        self.tokens[place] = found.token
        self.by_partition[place] = {**_acknowledged(found)}
        self.receipts += texts
        return True

    def _add_others(self, fields: JsonFields) -> None:
        for one, prefix in self._objects(fields, "release", ("receipt", "delay", "count")):
            delay = one.seconds("delay", None, 0, MAX_VISIBILITY_SECONDS)
            counts = one.flag("count", default=True)
            self._add(prefix, one.raw("receipt"), Action.RELEASE, seconds=delay, counts=counts)
        for one, prefix in self._objects(fields, "reject", ("receipt", "reason", "traceback")):
            told = reason_with(one.text("reason", "", most=_MAX_REASON), one.lines("traceback", most=_MAX_TRACEBACK))
            self._add(prefix, one.raw("receipt"), Action.REJECT, reason=told)
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
        place = self._places.get(receipt.queue.int)
        if place is None or receipt.partition > self._queues[place].partitions:
            self._refused = self._refused or f"{field}: the receipt is of another queue"
            return
        if self.tokens[place] not in (None, receipt.token):
            self._refused = self._refused or f"{field}: the receipts are of several groups"
            return
        self.tokens[place] = receipt.token
        settles = self.by_partition[place].get(receipt.partition, ())
        if not isinstance(settles, list):
            settles = self.by_partition[place][receipt.partition] = [*settles]
        settles.append(Settle(receipt.id, receipt.delivery, action, **how))
        self.receipts.append(text)


def _visibility_of(one: JsonFields) -> float:
    visibility = one.seconds("visibility", None, 0, MAX_VISIBILITY_SECONDS)
    if visibility is None and "visibility" not in one:
        one.wrong("visibility", "Required")
    return visibility or 0.0


class _Receiving(NamedTuple):
    """What a request receives."""

    wanted: ReceiveRequest | None = None
    wait_seconds: float = 0.0
    partitions: Sequence[int] = ()
    """Those that are named."""


_NOTHING_RECEIVED = _Receiving()
_NOTHING_SETTLED: Mapping[int, Acknowledged] = MappingProxyType({})


def _receive(fields: JsonFields, queue: Queue | None, receiver: str, max_bytes: int) -> _Receiving:
    """
    :param queue: None if they are several, which are received from everywhere.
    :param max_bytes: of any answer.
    """
    if "receive" not in fields:
        return _Receiving()
    members = orjson.dumps(fields.raw("receive"))
    where = receiver, 0 if queue is None else queue.partitions, max_bytes
    found = _received(members, *where) if len(members) <= _MOST_REMEMBERED else None
    return found or _parsed_receive(fields.raw("receive"), fields.problems, *where)


@lru_cache(maxsize=4096)
def _received(members: bytes, receiver: str, partitions: int, max_bytes: int) -> _Receiving | None:
    """The same for members that came before, as they mostly did; None if they are wrong."""
    problems = Problems()
    found = _parsed_receive(orjson.loads(members), problems, receiver, partitions, max_bytes)
    try:
        problems.check()
    except InvalidParameter:
        return None
    return found


def _parsed_receive(document: Any, problems: Problems, receiver: str, partitions: int, max_bytes: int) -> _Receiving:
    """:param partitions: of the queue; 0 if none may be named."""
    known = ("max", "visibility", "wait", "pop", *(("partitions",) if partitions else ()))
    one = JsonFields(document, known, problems, "receive.")
    most = one.whole("max", 1, 1, MAX_RECEIVED)
    wanted = ReceiveRequest(
        most,
        one.seconds("visibility", None, 0, MAX_VISIBILITY_SECONDS),
        one.flag("pop", default=False),
        receiver,
        max_bytes=min(max(most * _MESSAGE_ROOM, LEAST_ROOM), _MOST_ROOM, max_bytes),
    )
    wait = one.seconds("wait", 0.0, 0, MAX_WAIT_SECONDS) or 0.0
    if not partitions or "partitions" not in one:
        return _Receiving(wanted, wait)
    numbers = one.entries("partitions", most=partitions)
    if not numbers:  # a list that came out empty must not mean all of them
        one.wrong("partitions", "an empty list names none: leave it out for all")
    if not all(type(number) is int and 1 <= number <= partitions for number in numbers):
        one.wrong("partitions", f"must be whole numbers from 1 to {partitions}")
        numbers = ()  # others may have no hash
    return _Receiving(wanted, wait, [*dict.fromkeys(numbers)])


async def _appends(service: Service, call: Call, fields: JsonFields) -> list[AppendRequest]:
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
        queue = await _named(service, call, Permission.APPEND, name)
        if messages:
            drafts = await _drafts(service, queue, messages, at)
            check_letters(call, (draft.headers for draft in drafts))
            appends.append(AppendRequest(queue, drafts, is_bulk=False))
    fields.problems.check()
    return appends


async def _drafts(service: Service, queue: Queue, messages: Sequence[Any], at: int) -> Sequence[Draft]:
    try:
        return await batch_drafts(messages, queue, service.settings, service.clock.now_ticks())
    except InvalidParameter as error:
        problems = {f"append.{at}.messages.{field}": text for field, text in error.problems.items()}
        raise InvalidParameter(problems=problems) from error
