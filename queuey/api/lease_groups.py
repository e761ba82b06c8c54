"""Lease groups: their settings, and what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal

from queuey.api.batches import json_object
from queuey.api.fields import check_nothing, check_query
from queuey.api.groups import group_of, groups_page
from queuey.api.json_fields import JsonFields
from queuey.api.lease_requests import MAX_VISIBILITY_SECONDS
from queuey.api.params import Problems, integer, message_ids, moment, quoted
from queuey.api.queues import next_link
from queuey.errors import Conflict, LeaseGroupNotFound, QueueNotFound
from queuey.http.access import allowed, is_queue_name
from queuey.http.exchange import Answer, Call, Target, json_answer
from queuey.ids import ZERO_ID, MessageId, format_timestamp, tail_from_low
from queuey.model import Queue
from queuey.model.holes import GIVEN_UP, LEASED, Hole
from queuey.model.lease_groups import AUTO, NO_ORDER, ORDER_BY_KEY, GroupSettings, LeaseGroup
from queuey.model.lease_requests import Backoff
from queuey.model.lease_steps import LeaseCounts, wall_moment
from queuey.security.permissions import Permission
from queuey.service import Service
from queuey.service.dead_letters import dead_letter_queue

__all__ = ["change", "forget", "list_groups", "reset", "show", "show_held"]

RESET_MEMBERS = ("to", "preview")
"""Members of the body of a reset."""
MAX_LEASES = 1000
"""Leases in one page."""
MAX_K = 1000
MAX_LEASED, MAX_HELD = 120_000, 1_000_000
_MAX_FAILURES = 65_000
_MAX_SECONDS = 86_400.0 * 366
_MAX_REASON = 1024
_MEMBERS = (*GroupSettings._fields, "start")
_GREATEST_TAIL = tail_from_low(0xBF7F7F7F7F7F7F7F)
"""Of an id that clients can read."""
_ORDERS = (NO_ORDER, ORDER_BY_KEY)
_KEY_MOST_SECONDS = 30.0
"""The longest back-off of a group that orders keys, unless it says otherwise: the key waits behind its retry."""


async def list_groups(service: Service, call: Call, target: Target) -> Answer:
    """The lease groups of a queue, by name."""
    groups, queue = service.leases.groups, target.queue
    return await groups_page(call, lambda start, limit: groups(queue, start=start, limit=limit))


async def show(service: Service, call: Call, target: Target) -> Answer:
    """A group's settings and what it holds by partition."""
    queue, name = target.queue, group_of(call)
    group = await service.leases.find(queue, name)
    if group is None:
        raise LeaseGroupNotFound
    counts = await service.leases.count(queue, name)
    return json_answer(
        {
            "status": "ok",
            "group": name,
            "settings": shown_settings(queue, group.settings),
            "partitions": _shown_counts(queue, counts),
        }
    )


def shown_settings(queue: Queue, settings: GroupSettings) -> dict[str, Any]:
    """Settings as answers show them."""
    return settings.to_json() | {"dead_letter_queue": settings.dead_letter_queue or dead_letter_queue(queue.name)}


def _shown_counts(queue: Queue, counts: Mapping[int, LeaseCounts]) -> list[dict[str, Any]]:
    return [
        {
            "partition": number,
            "held": one.holes,
            "leased": one.leased,
            "dead": one.dead,
            "closed_keys": one.closed_keys,
            "k": one.k,
            "done_up_to": _shown_place(one.done_up_to),
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
    """Messages that a group holds, and which receiver has them."""
    queue, name = target.queue, group_of(call)
    if await service.leases.find(queue, name) is None:
        raise LeaseGroupNotFound
    query, problems = call.query, Problems()
    limit = problems.take("limit", integer(1, MAX_LEASES), query.get("limit"), MAX_LEASES)
    offset = query.get("offset")
    number, after = problems.take("offset", _place, offset, (1, ZERO_ID))
    problems.check()
    shown: list[dict[str, Any]] = []
    following = None
    while number <= queue.partitions and following is None:
        now, holes = await service.leases.holes(queue, name, number, after=after, limit=limit + 1 - len(shown))
        wall = service.clock.now_ticks()
        shown += [_shown_hole(number, hole, now, wall) for hole in holes]
        if len(shown) > limit:
            following = f"{number}:{holes[-2].id.hex}" if len(holes) > 1 else f"{number}:{after.hex}"
        number, after = number + 1, ZERO_ID
    return json_answer({"status": "ok", "leases": shown[:limit]}, headers=next_link(call, following))


def _place(text: str) -> tuple[int, MessageId]:
    places = message_ids(text)
    if len(places) > 1:
        raise ValueError("must be one message, as the Link of the page before names it")
    return places[0]


def _shown_hole(number: int, hole: Hole, now: int, wall: int) -> dict[str, Any]:
    state = "given up" if hole.flags & GIVEN_UP else "leased" if hole.flags & LEASED else "waits"
    return {
        "message_id": hole.id.hex,
        "partition": number,
        "state": "due" if state != "given up" and hole.visible_at <= now else state,
        "receiver": hole.receiver or None,
        "deliveries": hole.deliveries,
        "failures": hole.failures,
        "key": hole.key,
        "visible_at": format_timestamp(wall_moment(hole.visible_at, now, wall)),
    }


async def change(service: Service, call: Call, target: Target) -> Answer:
    """Make a group, or change the settings that the body names."""
    queue, name = target.queue, group_of(call)
    fields = JsonFields(json_object(call.body), _MEMBERS, Problems())
    check_query(call, _MEMBERS, fields.problems, "member of the body")
    while True:
        before = await service.leases.find(queue, name)
        settings = _settings(fields, before, service.leases.default_settings)
        start = _start(service, fields, queue, before)
        fields.problems.check()
        await _check_dead_letters(service, call, queue, settings)
        group = service.leases.new_group(start, settings) if before is None else before._replace(settings=settings)
        if await service.leases.keep(queue, name, group, before):
            return json_answer({"status": "ok", "group": name, "settings": shown_settings(queue, settings)})


def _settings(fields: JsonFields, group: LeaseGroup | None, default: GroupSettings) -> GroupSettings:
    """The settings after a change; those that are not named stay."""
    old = default if group is None else group.settings
    order = fields.text("order", old.order, most=10)
    if order not in _ORDERS:
        fields.wrong("order", f"{quoted(order)} is not one of {', '.join(_ORDERS)}")
    dead = fields.text("dead_letter_queue", old.dead_letter_queue or "", most=50, least=0)
    if dead and not is_queue_name(dead):
        fields.wrong("dead_letter_queue", "must be 1 to 50 letters, digits, '_', '-' or '.'")
    by_key = order == ORDER_BY_KEY
    backoff = old.backoff
    if group is None and by_key:
        backoff = backoff._replace(most=_KEY_MOST_SECONDS)
    return GroupSettings(
        fields.seconds("visibility", old.visibility, 0, MAX_VISIBILITY_SECONDS) or 0.0,
        fields.whole("max_failures", old.max_failures, 0, _MAX_FAILURES),
        dead or None,
        _backoff(fields, backoff),
        order,
        fields.whole("per_key", old.per_key, 1, MAX_K),
        _k(fields, old),
        _exact(fields, old, order, is_new=group is None),
        fields.whole("max_leased", old.max_leased, 1, MAX_LEASED),
        fields.whole("max_held", old.max_held, 1, MAX_HELD),
        fields.seconds("paused_until", old.paused_until, 0, 1e11),
        fields.text("paused_reason", old.paused_reason or "", most=_MAX_REASON, least=0) or None,
    )


def _k(fields: JsonFields, old: GroupSettings) -> int | Literal["auto"]:
    if fields.raw("k") == AUTO or ("k" not in fields and old.k == AUTO):
        return AUTO
    if isinstance(fields.raw("k"), str):
        fields.wrong("k", f"must be a whole number from 1 to {MAX_K}, or {AUTO}")
        return AUTO
    return fields.whole("k", MAX_K if old.k == AUTO else old.k, 1, MAX_K)


def _exact(fields: JsonFields, old: GroupSettings, order: str, *, is_new: bool) -> bool:
    exact = fields.flag("exact", default=old.exact)
    if exact != old.exact and not is_new:
        fields.wrong("exact", "is for a new group: forget this one, or use a group of another name")
    elif not exact and order == ORDER_BY_KEY:
        fields.wrong("exact", f"must be true with order {ORDER_BY_KEY}: keys need servers that agree")
    return exact


def _backoff(fields: JsonFields, old: Backoff) -> Backoff:
    if "backoff" not in fields:
        return old
    one = JsonFields(fields.raw("backoff"), Backoff._fields, fields.problems, "backoff.")
    return Backoff(
        one.seconds("first", old.first, 0, _MAX_SECONDS) or 0.0,
        one.seconds("factor", old.factor, 1, 100) or 1.0,
        one.seconds("most", old.most, 0, _MAX_SECONDS) or 0.0,
        one.seconds("jitter", old.jitter, 0, 1) or 0.0,
    )


def _start(service: Service, fields: JsonFields, queue: Queue, group: LeaseGroup | None) -> MessageId:
    """Where a new group begins."""
    if fields.raw("start") is not None and group is not None:
        fields.wrong("start", "is for a new group: this one has begun, and a reset lets it begin anew")
        return ZERO_ID
    return _place_of(service, fields, "start", queue)


def _place_of(service: Service, fields: JsonFields, name: str, queue: Queue) -> MessageId:
    """The id behind which messages are to be handed out; the beginning if the member is absent."""
    text = fields.raw(name)
    if text is None:
        return ZERO_ID
    if text == "end":
        return MessageId.last_of(service.log.watermark(queue))
    if isinstance(text, str) and text != "beginning":
        nothing: MessageId | int = ZERO_ID
        found = fields.problems.take(name, moment, text, nothing)
        return found if isinstance(found, MessageId) else MessageId.first_of(found).before()
    if text != "beginning":
        fields.wrong(name, "must be a text: beginning, end, decimal seconds since 1970, or a message id")
    return ZERO_ID


async def _check_dead_letters(service: Service, call: Call, queue: Queue, settings: GroupSettings) -> None:
    """:raises Conflict: the queue would be its own dead-letter queue.
    :raises Forbidden: the caller may not append to it.
    """
    name = settings.dead_letter_queue
    if name is None:
        return
    if name == queue.name:
        raise Conflict("dead_letter_queue: a queue cannot be its own dead-letter queue")
    with suppress(QueueNotFound):  # it is made when it is first needed
        await allowed(service, call.identity, Permission.APPEND, queue.application, name)


async def reset(service: Service, call: Call, target: Target) -> Answer:
    """Let a group begin anew at another place. Its leases end, and its settings stay."""
    queue, name = target.queue, group_of(call)
    fields = JsonFields(json_object(call.body), RESET_MEMBERS, Problems())
    check_query(call, RESET_MEMBERS, fields.problems, "member of the body")
    if "to" not in fields:
        fields.wrong("to", "Required")
    place, preview = _place_of(service, fields, "to", queue), fields.flag("preview", default=False)
    fields.problems.check()
    while True:
        before = await service.leases.find(queue, name)
        if before is None:
            raise LeaseGroupNotFound
        counts = await service.leases.count(queue, name)
        group = service.leases.new_group(place, before.settings)
        if preview or await service.leases.keep(queue, name, group, before):
            answer = {"status": "ok", "group": name, "preview": preview, "to": _shown_place(place)}
            return json_answer(answer | {"before": _shown_counts(queue, counts)})


def _shown_place(place: MessageId) -> str | None:
    return None if place <= ZERO_ID else _id_at(place).hex


async def forget(service: Service, call: Call, target: Target) -> Answer:
    """Forget a group, whether it exists or not. Its receipts end with it."""
    check_nothing(call, "this forgets the group in all partitions")
    await service.leases.forget(target.queue, group_of(call))
    return json_answer({"status": "ok"})
