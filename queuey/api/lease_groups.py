"""Lease groups: their settings, and what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from queuey.api.batches import json_object
from queuey.api.fields import check_nothing, check_query
from queuey.api.groups import group_of, groups_page
from queuey.api.json_fields import JsonFields
from queuey.api.lease_settings import (
    SETTINGS_MEMBERS,
    check_dead_letters,
    check_settings,
    named_place,
    named_settings,
    new_group,
    place_of,
    shown_settings,
)
from queuey.api.params import Problems, boolean, integer, one_place
from queuey.api.queues import next_link, shown_end
from queuey.errors import ClockUnsafe, LeaseGroupNotFound
from queuey.http.exchange import Answer, Call, Target, json_answer
from queuey.ids import TICKS_PER_SECOND, ZERO_ID, MessageId, format_timestamp, tail_from_low
from queuey.model import Location, Queue, Span
from queuey.model.dead_letters import parted_reason
from queuey.model.holes import GIVEN_UP, LEASED, UNCOUNTED, Hole
from queuey.model.lease_groups import LeaseGroup
from queuey.model.lease_steps import HeldPage, LeaseCounts, wall_moment
from queuey.model.receipts import Receipt
from queuey.security.permissions import Permission, permits
from queuey.service import Service
from queuey.service.backlogs import count_backlog

__all__ = ["change", "forget", "list_groups", "reset", "show", "show_held"]

RESET_MEMBERS = ("to", "preview")
"""Members of the body of a reset."""
MAX_LEASES = 1000
"""Leases in one page."""
_GREATEST_TAIL = tail_from_low(0xBF7F7F7F7F7F7F7F)
"""Of an id that clients can read."""


async def list_groups(service: Service, call: Call, target: Target) -> Answer:
    """The lease groups of a queue, by name."""
    groups, queue = service.leases.groups, target.queue
    return await groups_page(call, lambda start, limit: groups(queue, start=start, limit=limit))


async def show(service: Service, call: Call, target: Target) -> Answer:
    """A group's settings, what it holds by partition, and whether there is more to hand out.

    If asked, also how much more there is.
    """
    queue, name = target.queue, group_of(call)
    group = await service.leases.find(queue, name)
    if group is None:
        raise LeaseGroupNotFound
    counts = await service.leases.count(queue, name)
    partitions = await _with_ends(service, queue, counts)
    if boolean(call.query.get("backlog")):
        backlogs = await count_backlog(service.leases, service.queues, service.log, queue, name, counts)
        partitions = [{**shown, **backlogs[shown["partition"]]._asdict()} for shown in partitions]
    return json_answer(
        {
            "status": "ok",
            "group": name,
            "settings": shown_settings(queue.name, group.settings),
            "partitions": partitions,
        }
    )


async def _with_ends(service: Service, queue: Queue, counts: Mapping[int, LeaseCounts]) -> list[dict[str, Any]]:
    """What a group holds, by partition, the oldest message that it has not settled, and whether there is more."""
    oldest: Mapping[int, MessageId] = {}
    more: Mapping[int, bool] = {}
    with suppress(ClockUnsafe):  # nobody may read now, but an operator may look
        oldest = await service.log.first_behind(queue, {number: one.done_up_to for number, one in counts.items()})
        more = await _more(service, queue, counts)
    now, found = service.clock.now_ticks(), []
    for shown in _shown_counts(queue, counts):
        number = shown["partition"]
        first = oldest.get(number)
        age = None if first is None else max(0, now - first.ticks) / TICKS_PER_SECOND
        found.append({**shown, **shown_end("oldest", first), "oldest_age": age, "more": more.get(number)})
    return found


async def _more(service: Service, queue: Queue, counts: Mapping[int, LeaseCounts]) -> Mapping[int, bool]:
    """Which partitions have messages that were never handed out, those included that readers do not see yet."""
    behind = [(number, Span(one.frontier)) for number, one in counts.items()]
    _, found = await service.log.count_spans(queue, behind, limit=1, step=0, unseen=True)
    return {number: bool(one.messages or one.more) for number, one in found}


def _shown_counts(queue: Queue, counts: Mapping[int, LeaseCounts]) -> list[dict[str, Any]]:
    return [
        {
            "partition": number,
            "held": one.holes,
            "leased": one.leased,
            "waiting": one.holes - one.leased,
            "dead": one.dead,
            "closed_keys": one.closed_keys,
            "k": one.k,
            "done_up_to": _shown_place(one.done_up_to),
            "handed_up_to": _shown_place(one.frontier),
        }
        for number, one in counts.items()
        if number <= queue.partitions
    ]


def _id_at(bound: MessageId) -> MessageId:
    """A bound that may be between two ids, as an id that clients can read."""
    try:
        return MessageId.parse(bound.hex)
    except ValueError:
        return MessageId(bound.ticks, _GREATEST_TAIL)


async def show_held(service: Service, call: Call, target: Target) -> Answer:
    """Messages that a group holds, and which receiver has them. The owner also gets the receipts of the leases."""
    queue, name = target.queue, group_of(call)
    group = await service.leases.find(queue, name)
    if group is None:
        raise LeaseGroupNotFound
    owns = permits(Permission.CONFIGURE, call.identity, call.application, queue.name, queue)
    query, problems = call.query, Problems()
    limit = problems.take("limit", integer(1, MAX_LEASES), query.get("limit"), MAX_LEASES)
    offset = query.get("offset")
    number, after = problems.take("offset", one_place, offset, Location(1, ZERO_ID))
    problems.check()
    shown: list[dict[str, Any]] = []
    following = None
    while number <= queue.partitions and following is None:
        held = await service.leases.held(queue, name, number, after=after, limit=limit + 1 - len(shown))
        holes, wall = held.holes, service.clock.now_ticks()
        shown += [_shown_hole(number, hole, held, wall) | _receipt(queue, group, number, hole, owns) for hole in holes]
        if len(shown) > limit:
            following = f"{number}:{holes[-2].id.hex}" if len(holes) > 1 else f"{number}:{after.hex}"
        number, after = number + 1, ZERO_ID
    return json_answer({"status": "ok", "leases": shown[:limit]}, headers=next_link(call, following))


def _shown_hole(number: int, hole: Hole, held: HeldPage, wall: int) -> dict[str, Any]:
    state = "given up" if hole.flags & GIVEN_UP else "leased" if hole.flags & LEASED else "waits"
    now, reason = held.now, held.reasons.get(hole.id)
    return {
        "message_id": hole.id.hex,
        "partition": number,
        "state": "due" if state != "given up" and hole.visible_at <= now else state,
        "receiver": hole.receiver or None,
        "deliveries": hole.deliveries,
        "failures": hole.failures,
        "key": hole.key,
        "visible_at": format_timestamp(wall_moment(hole.visible_at, now, wall)),
        "ended": _ended(hole, now, is_rejected=reason is not None),
        "reason": parted_reason(reason)[0] if reason else None,
    }


def _ended(hole: Hole, now: int, *, is_rejected: bool) -> str | None:
    """How the last lease of a message ended; None if it goes on."""
    if hole.flags & GIVEN_UP:
        return "rejected" if is_rejected else "failed too often"
    if hole.flags & LEASED:
        return "ran out" if hole.visible_at <= now else None
    return "released, not counted" if hole.flags & UNCOUNTED else "released"


def _receipt(queue: Queue, group: LeaseGroup, number: int, hole: Hole, owns: bool) -> dict[str, str]:
    """What settles a lease in its receiver's place."""
    if not owns or hole.flags & GIVEN_UP or not hole.flags & LEASED:
        return {}
    return {"receipt": Receipt(queue.uuid, group.token, number, hole.id, hole.deliveries).text()}


async def change(service: Service, call: Call, target: Target) -> Answer:
    """Make a group, or change the settings that the body names."""
    queue, name = target.queue, group_of(call)
    fields = JsonFields(json_object(call.body), SETTINGS_MEMBERS, Problems())
    check_query(call, SETTINGS_MEMBERS, fields.problems, "member of the body")
    named = named_settings(fields)
    start = named.pop("start", None)
    while True:
        before = await service.leases.find(queue, name)
        if before is not None and start:
            fields.wrong("start", "is for a new group: this one has begun, and a reset lets it begin anew")
        group = new_group(service, queue, start) if before is None else before
        settings = group.settings.changed(named)
        check_settings(fields, settings, None if before is None else before.settings)
        fields.problems.check()
        await check_dead_letters(service, call, queue.name, settings)
        group = group._replace(settings=settings)
        if await service.leases.keep(queue, name, group, before):
            return json_answer({"status": "ok", "group": name, "settings": shown_settings(queue.name, settings)})


async def reset(service: Service, call: Call, target: Target) -> Answer:
    """Let a group begin anew at another place. Its leases end, and its settings stay."""
    queue, name = target.queue, group_of(call)
    fields = JsonFields(json_object(call.body), RESET_MEMBERS, Problems())
    check_query(call, RESET_MEMBERS, fields.problems, "member of the body")
    if "to" not in fields:
        fields.wrong("to", "Required")
    place, preview = place_of(service, queue, named_place(fields, "to")), fields.flag("preview", default=False)
    fields.problems.check()
    while True:
        before = await service.leases.find(queue, name)
        if before is None:
            raise LeaseGroupNotFound
        counts = await _with_ends(service, queue, await service.leases.count(queue, name))
        group = service.leases.new_group(before.settings, place)
        if preview or await service.leases.keep(queue, name, group, before):
            answer = {"status": "ok", "group": name, "preview": preview, "to": _shown_place(place)}
            return json_answer(answer | {"before": counts})


def _shown_place(place: MessageId) -> str | None:
    return None if place <= ZERO_ID else _id_at(place).hex


async def forget(service: Service, call: Call, target: Target) -> Answer:
    """Forget a group, whether it exists or not. Its receipts end with it."""
    check_nothing(call, "this forgets the group in all partitions")
    await service.leases.forget(target.queue, group_of(call))
    return json_answer({"status": "ok"})
