"""The one operation of lease groups: settle, append, and receive."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from queuey.api.forms import entries, id_texts, timestamps
from queuey.api.lease_groups import group_of
from queuey.api.lease_requests import AskedStep, asked_of
from queuey.api.receipts import Receipt
from queuey.http.exchange import Answer, Call, Target, json_answer
from queuey.ids import format_timestamp
from queuey.model import Location, Queue
from queuey.model.lease_requests import Action
from queuey.model.lease_steps import GroupStep, HandedOut, LeaseOutcome, LeaseStep
from queuey.security.permissions import Permission
from queuey.security.principals import STRANGERS
from queuey.service import Service
from queuey.service.leases import Waiting

__all__ = ["step"]

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
    wanted = LeaseStep([one], asked.appends, _bounded(service, asked), asked.attempt)
    waiting = None
    if asked.wait_seconds:
        waiting = Waiting(asked.wait_seconds, tuple(proven) or (STRANGERS,), call.in_thread)
    call.body = b""
    if waiting is None:
        outcome = await service.leases.step(wanted)
    else:
        with call.ticket.waiting():
            outcome = await service.leases.step(wanted, waiting)
    _count(service, call, asked, outcome)
    return _answer(asked, queue, outcome)


def _bounded(service: Service, asked: AskedStep) -> Any:
    most = min(service.settings.limits.max_answer_bytes, 1 << 20)
    return None if asked.receive is None else asked.receive._replace(max_bytes=most)


def _count(service: Service, call: Call, asked: AskedStep, outcome: LeaseOutcome) -> None:
    application = call.identity.counted_as(call.application)
    for request, appended in zip(asked.appends, outcome.appended, strict=True):
        if not appended.repeated:
            size = sum(len(draft.body) for draft in request.drafts)
            service.monitor.appended(application, len(request.drafts), size)
    if outcome.handed and not outcome.repeated:
        size = sum(one.message.size for one in outcome.handed)
        service.monitor.delivered(application, "lease", len(outcome.handed), size)


def _answer(asked: AskedStep, queue: Queue, outcome: LeaseOutcome) -> Answer:
    answer: dict[str, Any] = {"status": "ok"}
    if asked.order:
        answer["settled"] = _settled(asked, outcome)
    if asked.appends:
        answer["appended"] = [
            {"queue": request.queue.name, "messages": _placed(appended.placed)}
            for request, appended in zip(asked.appends, outcome.appended, strict=True)
        ]
    if asked.receive is not None:
        answer["messages"] = _handed(queue, outcome, with_receipts=not asked.receive.pop)
    if outcome.is_full:
        answer["full"] = True
    return json_answer(answer)


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


def _handed(queue: Queue, outcome: LeaseOutcome, *, with_receipts: bool) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = []
    for partition, some in groupby(outcome.handed, lambda one: one.partition):
        handed = [*some]
        for entry, one in zip(entries([one.message for one in handed], partition), handed, strict=True):
            shown.append(entry | _lease(queue, outcome, one, with_receipts=with_receipts))
    return shown


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
