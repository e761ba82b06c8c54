"""The one operation of lease groups: settle, append, and receive."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from functools import lru_cache
from itertools import count
from typing import Any

import orjson

from queuey.api.arrow.answers import check_arrow
from queuey.api.forms import id_texts, timestamps
from queuey.api.groups import group_of
from queuey.api.json_pages import PLAIN, JsonPage, with_beside
from queuey.api.lease_pages import LeasedMessages, LeaseForm, alone_page
from queuey.api.lease_requests import AskedStep, asked_of
from queuey.api.params import Problems, group_name
from queuey.http.answer_room import CountedRoom
from queuey.http.exchange import ARROW, JSON, Answer, Call, Target, json_answer
from queuey.model import Location, Page
from queuey.model.lease_steps import GroupStep, HandedAlone, LeaseOutcome, LeaseStep
from queuey.model.receipts import Receipt, receipt_start
from queuey.service import Service
from queuey.service.leases import settled_of
from queuey.service.log import PartitionPage, ReadAnswer

__all__ = ["step", "step_several"]

_PORTION = 250
"""Messages that become JSON in one step, in some two milliseconds."""
_SETTLED = {
    "acknowledge": "acknowledged",
    "release": "released",
    "extend": "extended",
    "reject": "rejected",
}


async def step(service: Service, call: Call, target: Target) -> Answer:
    """Settle leases and append, as one step, then receive."""
    asked = await asked_of(service, call, group_of(call), target.queue)
    return await _stepped(service, call, asked)


async def step_several(service: Service, call: Call, target: Target) -> Answer:
    """The same for groups of several queues of an application, which have one name."""
    problems = Problems()
    group = problems.take("receive", group_name, call.query.get("receive"), "")
    problems.check()
    asked = await asked_of(service, call, group, None)
    return await _stepped(service, call, asked, names_queues=True)


async def _stepped(service: Service, call: Call, asked: AskedStep, *, names_queues: bool = False) -> Answer:
    as_arrow = call.accepts(ARROW)
    if as_arrow:
        check_arrow("accept application/json")
    call.body = b""
    with CountedRoom(call.ticket, asked.step.receive) as room:
        outcome = await service.leases.step(asked.step, room, asked.waiting, has_gone=call.has_gone)
        _count(service, call, asked.step, outcome)
        if asked.is_plain and not as_arrow:
            plain = _plain_answer(asked, outcome)
            if plain is not None:
                return Answer(200, plain, [("content-type", JSON)])
        return await _answer(call, asked, outcome, as_arrow=as_arrow, names_queues=names_queues)


def _count(service: Service, call: Call, asked: LeaseStep, outcome: LeaseOutcome) -> None:
    application = call.identity.counted_as(call.application)
    if asked.appends:
        for request, appended in zip(asked.appends, outcome.appended, strict=True):
            if not appended.repeated:
                size = sum(len(draft.body) for draft in request.drafts)
                service.monitor.appended(application, len(request.drafts), size)
    handed = outcome.handed
    if handed and not outcome.repeated:
        service.monitor.delivered(application, "lease", len(handed), handed.size)


async def _answer(call: Call, asked: AskedStep, outcome: LeaseOutcome, *, as_arrow: bool, names_queues: bool) -> Answer:
    wanted = asked.step
    beside: dict[str, Any] = {}
    if asked.receipts:
        beside["settled"] = _settled(asked, outcome)
    if wanted.appends:
        beside["appended"] = [
            {"queue": request.queue.name, "messages": _placed(appended.placed)}
            for request, appended in zip(wanted.appends, outcome.appended, strict=True)
        ]
    if outcome.is_full:
        beside["full"] = True
    is_pop = wanted.receive is not None and wanted.receive.pop
    leased = _leased(wanted.groups, outcome, with_receipts=not is_pop, names_queues=names_queues)
    if as_arrow:
        from queuey.api.arrow.leases import arrow_leases  # few servers need it

        return Answer(200, arrow_leases(leased, beside), [("content-type", ARROW)])
    if wanted.receive is None:
        return json_answer({"status": "ok", **beside})
    if len(leased) == 1 and leased[0].messages.size <= PLAIN:  # usual; it needs no turns
        whole = leased[0].plain(leased[0].messages, leased[0].partition)
        if whole is not None:
            return Answer(200, with_beside(whole, beside))
    with _HandedPage(call, sys.maxsize) as made:
        for some in leased:
            page = PartitionPage(some.partition, Page(some.messages, more=False))
            await made.add(ReadAnswer([page], 0, 0), some.entries, some.plain)
        return Answer(200, made.body(**beside))


def _plain_answer(asked: AskedStep, outcome: LeaseOutcome) -> bytes | None:
    """The answer to a plain step that received one message at most, as most do.

    :returns: None if there is more to say.
    """
    handed, wanted = outcome.handed, asked.step.receive
    if outcome.stale or outcome.is_full:
        return None
    beside = _acknowledged(len(asked.receipts)) if asked.receipts else ""
    if wanted is None:
        return f'{{"status":"ok"{beside}}}'.encode()
    if type(handed) is not HandedAlone:
        return None if handed else f'{{"status":"ok","messages":[]{beside}}}'.encode()
    queue = asked.step.groups[0].queue
    receipts = "" if wanted.pop else receipt_start(queue.uuid, outcome.tokens[0])
    return alone_page(LeaseForm(outcome, queue.name, receipts), handed, beside)


@lru_cache(maxsize=128)
def _acknowledged(number: int) -> str:
    """``settled`` of a step that acknowledged this number of leases, and settled no other."""
    said = {**dict.fromkeys(_SETTLED.values(), 0), "acknowledged": number, "stale": []}
    return f',"settled":{orjson.dumps(said).decode()}'


class _HandedPage(JsonPage):
    """Messages that were handed out: each has room, for the step is done and is never answered with a refusal (G10)."""

    __slots__ = ()

    async def _end(self) -> None:
        self._call.ticket.hold(self._unheld, owed=True)
        self._held += self._unheld
        self._unheld = 0
        await super()._end()


def _leased(
    groups: Sequence[GroupStep], outcome: LeaseOutcome, *, with_receipts: bool, names_queues: bool
) -> list[LeasedMessages]:
    """What was handed out, in portions of one partition that become JSON in one step."""
    found = []
    for group, number, messages, leases in outcome.handed.parts:
        queue = groups[group].queue
        receipts = receipt_start(queue.uuid, outcome.tokens[group]) if with_receipts else ""
        form = LeaseForm(outcome, queue.name, receipts, names_queues)
        if len(messages) <= _PORTION:
            found.append(LeasedMessages(form, number, messages, leases))
            continue
        for begin in range(0, len(messages), _PORTION):
            some = slice(begin, begin + _PORTION)
            found.append(LeasedMessages(form, number, messages[some], leases[some]))
    return found


def _settled(asked: AskedStep, outcome: LeaseOutcome) -> dict[str, Any]:
    found = settled_of(asked.step, outcome)
    said: dict[str, Any] = {word: found.get(action, 0) for action, word in _SETTLED.items()}
    said["stale"] = [*_stale(asked, {tuple(one) for one in outcome.stale})] if outcome.stale else []
    return said


def _stale(asked: AskedStep, places: Container[tuple[int, ...]]) -> Iterator[str]:
    """The receipts of these settles: each is the next one of its group and partition."""
    groups = {one.queue.uuid: at for at, one in enumerate(asked.step.groups)}
    ats = defaultdict[tuple[int, int], Iterator[int]](count)
    for text in asked.receipts:
        receipt = Receipt.parse(text)
        where = groups[receipt.queue], receipt.partition
        if (*where, next(ats[where])) in places:
            yield text


def _placed(placed: Sequence[Location]) -> list[dict[str, Any]]:
    if not placed:
        return []
    ticks, tails = zip(*[one.id for one in placed], strict=True)
    return [
        {"key": text, "partition": one.partition, "timestamp": timestamp}
        for one, text, timestamp in zip(placed, id_texts(ticks, tails), timestamps(ticks), strict=True)
    ]
