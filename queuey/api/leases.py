"""The one operation of lease groups: settle, append, and receive."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, islice
from types import TracebackType
from typing import Any, Self

from queuey.api.forms import Presenter, entries, id_texts, timestamps
from queuey.api.groups import group_of
from queuey.api.json_pages import JsonPage
from queuey.api.lease_requests import AskedStep, asked_of
from queuey.api.receipts import Receipt
from queuey.http.exchange import Answer, Call, Target, json_answer
from queuey.ids import format_timestamp
from queuey.model import Location, Message, Page, Queue
from queuey.model.lease_requests import Action
from queuey.model.lease_steps import GroupStep, HandedOut, LeaseOutcome, LeaseStep
from queuey.security.permissions import Permission
from queuey.security.principals import STRANGERS
from queuey.service import Service
from queuey.service.leases import Waiting
from queuey.service.log import PartitionPage, ReadAnswer

__all__ = ["step"]

_PORTION = 250
"""Messages that become JSON in one step, in some two milliseconds."""
_SETTLED = {
    Action.ACKNOWLEDGE: "acknowledged",
    Action.RELEASE: "released",
    Action.EXTEND: "extended",
    Action.REJECT: "rejected",
}


async def step(service: Service, call: Call, target: Target) -> Answer:
    """Settle leases and append, as one step, then receive."""
    queue, group = target.queue, group_of(call)
    proven = sorted(call.identity.acting(Permission.RECEIVE, queue.application, queue.name))
    receiver = " ".join([*proven[:1], call.peer]).strip()
    asked = await asked_of(service, call, queue, receiver)
    new = service.leases.new_group()
    one = GroupStep(queue, group, new, asked.token, asked.settles, asked.renewals, asked.partitions)
    wanted = LeaseStep([one], asked.appends, asked.receive, asked.attempt)
    waiting = None
    if asked.wait_seconds:
        waiting = Waiting(asked.wait_seconds, tuple(proven) or (STRANGERS,), call.in_thread)
    call.body = b""
    with _Room(call, service, asked) as room:
        outcome = await service.leases.step(wanted, room, waiting)
        _count(service, call, asked, outcome)
        return await _answer(call, asked, queue, outcome)


_LEAST_ROOM, _MESSAGE_ROOM, _MOST_ROOM = 16 << 10, 1 << 10, 1 << 20
"""Bytes of messages: in any answer, for each message that is asked for, and in the largest answer of small messages."""
_AS_JSON = 6
"""How many times its bytes a body of control characters takes as JSON."""


class _Room:
    """Room for the messages of an answer, while they are looked for; see :class:`~queuey.service.leases.AnswerRoom`."""

    def __init__(self, call: Call, service: Service, asked: AskedStep) -> None:
        most = 0 if asked.receive is None else asked.receive.most * _MESSAGE_ROOM
        self._first = min(max(most, _LEAST_ROOM), _MOST_ROOM, service.settings.limits.max_answer_bytes)
        self._ticket = call.ticket
        self._receives = asked.receive is not None
        self.bytes = 0

    def __enter__(self) -> Self:
        """:raises Throttled: there is no room; nothing is done."""
        if self._receives:
            self._ticket.hold(self._first * _AS_JSON)
            self.bytes = self._first
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ticket.give_back(self.bytes * _AS_JSON)

    def grow(self, size: int) -> bool:
        if not self._ticket.try_hold(size * _AS_JSON):
            return False
        self.bytes += size
        return True

    @contextmanager
    def waiting(self) -> Iterator[None]:
        self.bytes = 0
        with self._ticket.waiting():
            yield

    def regain(self) -> bool:
        return self.grow(self._first)


def _count(service: Service, call: Call, asked: AskedStep, outcome: LeaseOutcome) -> None:
    application = call.identity.counted_as(call.application)
    for request, appended in zip(asked.appends, outcome.appended, strict=True):
        if not appended.repeated:
            size = sum(len(draft.body) for draft in request.drafts)
            service.monitor.appended(application, len(request.drafts), size)
    if outcome.handed and not outcome.repeated:
        service.monitor.delivered(application, "lease", len(outcome.handed), outcome.handed.size)


async def _answer(call: Call, asked: AskedStep, queue: Queue, outcome: LeaseOutcome) -> Answer:
    beside: dict[str, Any] = {}
    if asked.order:
        beside["settled"] = _settled(asked, outcome)
    if asked.appends:
        beside["appended"] = [
            {"queue": request.queue.name, "messages": _placed(appended.placed)}
            for request, appended in zip(asked.appends, outcome.appended, strict=True)
        ]
    if outcome.is_full:
        beside["full"] = True
    if asked.receive is None:
        return json_answer({"status": "ok", **beside})
    with _HandedPage(call, sys.maxsize) as made:
        pages = [PartitionPage(number, Page(some, more=False)) for number, some in _portions(outcome.handed)]
        await made.add(ReadAnswer(pages, 0, 0), _presenter(queue, outcome, with_receipts=not asked.receive.pop))
        return Answer(200, made.body(**beside))


class _HandedPage(JsonPage):
    """Messages that were handed out: each has room, for the step is done and is never answered with a refusal (G10)."""

    __slots__ = ()

    async def _end(self) -> None:
        self._call.ticket.hold(self._unheld, owed=True)
        self._held += self._unheld
        self._unheld = 0
        await super()._end()


def _portions(handed: Sequence[HandedOut]) -> Iterator[tuple[int, Sequence[Message]]]:
    """Messages of one partition that become JSON in one step."""
    for number, some in groupby(handed, lambda one: one.partition):
        while portion := [one.message for one in islice(some, _PORTION)]:
            yield number, portion


def _settled(asked: AskedStep, outcome: LeaseOutcome) -> dict[str, Any]:
    stale = {(one.partition, one.at) for one in outcome.stale}
    said: dict[str, Any] = dict.fromkeys(_SETTLED.values(), 0)
    for place in asked.order:
        if place not in stale:
            number, at = place
            said[_SETTLED[asked.settles[number][at].action]] += 1
    said["stale"] = [text for place, text in zip(asked.order, asked.receipts, strict=True) if place in stale]
    return said


def _placed(placed: Sequence[Location]) -> list[dict[str, Any]]:
    if not placed:
        return []
    ticks, tails = zip(*[one.id for one in placed], strict=True)
    return [
        {"key": text, "partition": one.partition, "timestamp": timestamp}
        for one, text, timestamp in zip(placed, id_texts(ticks, tails), timestamps(ticks), strict=True)
    ]


def _presenter(queue: Queue, outcome: LeaseOutcome, *, with_receipts: bool) -> Presenter:
    """Presents all messages of a step, each once and in order, with their leases."""
    leases = iter(outcome.handed)

    def present(messages: Sequence[Message], number: int) -> list[dict[str, Any]]:
        shown = entries(messages, number)
        return [entry | _lease(queue, outcome, one, with_receipts=with_receipts) for entry, one in zip(shown, leases)]  # noqa: B905 - the leases of later messages stay

    return present


def _lease(queue: Queue, outcome: LeaseOutcome, one: HandedOut, *, with_receipts: bool) -> dict[str, Any]:
    hole = one.hole
    lease: dict[str, Any] = {
        "deliveries": hole.deliveries,
        "failures": hole.failures,
        "first_delivered": format_timestamp(outcome.to_wall(hole.first_delivered)),
    }
    if with_receipts:
        token = outcome.tokens[one.group]
        lease["receipt"] = Receipt(queue.uuid, token, one.partition, one.message.id, hole.deliveries).text()
        lease["visible_at"] = format_timestamp(outcome.to_wall(hole.visible_at))
    return lease
