"""Settings of lease groups, from JSON: a group's own, and those that the groups of a queue begin with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from queuey.api.json_fields import JsonFields
from queuey.api.params import moment, quoted
from queuey.errors import Conflict, QueueNotFound
from queuey.http.access import allowed
from queuey.http.exchange import Call
from queuey.ids import ZERO_ID, MessageId
from queuey.model import Queue
from queuey.model.lease_groups import AUTO, BEGINNING, END, NO_ORDER, ORDER_BY_KEY, Breaker, GroupSettings, LeaseGroup
from queuey.model.lease_rules import Backoff
from queuey.security.permissions import Permission, permits
from queuey.service import Service
from queuey.service.dead_letter_chains import chain_back
from queuey.service.dead_letters import dead_letter_queue
from queuey.service.queues import is_queue_name

__all__ = [
    "MAX_VISIBILITY_SECONDS",
    "SETTINGS_MEMBERS",
    "check_dead_letters",
    "check_settings",
    "named_place",
    "named_settings",
    "new_group",
    "place_of",
    "shown_settings",
]

_OWN_MEMBERS = {"tripped_ticks"}
"""Members of settings that are the server's own."""
SETTINGS_MEMBERS = (*(name for name in GroupSettings._fields if name not in _OWN_MEMBERS), "start")
MAX_VISIBILITY_SECONDS = 43_200
MAX_K = 1000
MAX_LEASED, MAX_HELD = 120_000, 1_000_000
MAX_DEAD, MAX_BREAKER_SECONDS = 1000, 3600
NO_BREAKER = "none"
_MAX_FAILURES = 65_000
_MAX_SECONDS = 86_400.0 * 366
_MAX_REASON = 1024
_ORDERS = (NO_ORDER, ORDER_BY_KEY)


def named_settings(fields: JsonFields) -> dict[str, Any]:
    """The settings that are named, each checked, as :meth:`GroupSettings.changed` takes them; and ``start``."""
    order = fields.text("order", NO_ORDER, most=10)
    if order not in _ORDERS:
        fields.wrong("order", f"{quoted(order)} is not one of {', '.join(_ORDERS)}")
    dead = fields.text("dead_letter_queue", "", most=80, least=0)
    if dead and not is_queue_name(dead):
        fields.wrong("dead_letter_queue", "must be 1 to 80 letters, digits, '_', '-' or '.'")
    found = {
        "visibility": fields.seconds("visibility", 0.0, 0, MAX_VISIBILITY_SECONDS),
        "max_failures": fields.whole("max_failures", 0, 0, _MAX_FAILURES),
        "dead_letter_queue": dead or None,
        "backoff": _backoff(fields),
        "order": order,
        "per_key": fields.whole("per_key", 1, 1, MAX_K),
        "k": _k(fields),
        "exact": fields.flag("exact", default=True),
        "max_leased": fields.whole("max_leased", 1, 1, MAX_LEASED),
        "max_held": fields.whole("max_held", 1, 1, MAX_HELD),
        "paused_until": fields.seconds("paused_until", 0.0, 0, 1e11),
        "paused_reason": fields.text("paused_reason", "", most=_MAX_REASON, least=0) or None,
        "breaker": _breaker(fields),
        "fair": fields.flag("fair", default=False),
        "start": named_place(fields, "start"),
    }
    return {name: value for name, value in found.items() if name in fields}


def check_settings(fields: JsonFields, settings: GroupSettings, before: GroupSettings | None = None) -> None:
    """Note settings that do not go together.

    :param before: None for a new group.
    """
    if before is not None and settings.exact != before.exact:
        fields.wrong("exact", "is for a new group: forget this one, or use a group of another name")
    elif not settings.exact and settings.order == ORDER_BY_KEY:
        fields.wrong("exact", f"must be true with order {ORDER_BY_KEY}: keys need servers that agree")
    if settings.fair and settings.order == ORDER_BY_KEY:
        fields.wrong("fair", f"must be false with order {ORDER_BY_KEY}: there no key has more than per_key leases")


def _k(fields: JsonFields) -> int | Literal["auto"]:
    if fields.raw("k") == AUTO:
        return AUTO
    if isinstance(fields.raw("k"), str):
        fields.wrong("k", f"must be a whole number from 1 to {MAX_K}, or {AUTO}")
    return fields.whole("k", 1, 1, MAX_K)


def _backoff(fields: JsonFields) -> Mapping[str, float]:
    """The members that are named."""
    if "backoff" not in fields:
        return {}
    one = JsonFields(fields.raw("backoff"), Backoff._fields, fields.problems, f"{fields.prefix}backoff.")
    found = {
        "first": one.seconds("first", 0.0, 0, _MAX_SECONDS),
        "factor": one.seconds("factor", 1.0, 1, 100),
        "most": one.seconds("most", 0.0, 0, _MAX_SECONDS),
        "jitter": one.seconds("jitter", 0.0, 0, 1),
    }
    return {name: value or 0.0 for name, value in found.items() if name in one}


def _breaker(fields: JsonFields) -> Mapping[str, float] | None:
    if fields.raw("breaker") == NO_BREAKER or "breaker" not in fields:
        return None
    if not isinstance(fields.raw("breaker"), dict):
        fields.wrong("breaker", f"must be an object with {' and '.join(Breaker._fields)}, or {NO_BREAKER}")
        return None
    one = JsonFields(fields.raw("breaker"), Breaker._fields, fields.problems, f"{fields.prefix}breaker.")
    own = Breaker()
    return {
        "dead": one.whole("dead", own.dead, 1, MAX_DEAD),
        "seconds": one.seconds("seconds", own.seconds, 1, MAX_BREAKER_SECONDS) or own.seconds,
    }


def named_place(fields: JsonFields, name: str) -> str:
    """Where a group is to begin, as text; the beginning if the member is absent or wrong."""
    text = fields.raw(name)
    if text is None or text in (BEGINNING, END):
        return text or BEGINNING
    if not isinstance(text, str):
        fields.wrong(name, "must be a text: beginning, end, decimal seconds since 1970, or a message id")
        return BEGINNING
    try:
        moment(text)
    except ValueError as error:
        fields.wrong(name, str(error))
        return BEGINNING
    return text


def place_of(service: Service, queue: Queue, text: str) -> MessageId:
    """The id behind which messages are to be handed out, for a place as :func:`named_place` gives it."""
    if text == BEGINNING:
        return ZERO_ID
    if text == END:
        return MessageId.last_of(service.log.watermark(queue))
    found = moment(text)
    return found if isinstance(found, MessageId) else MessageId.first_of(found).before()


def new_group(service: Service, queue: Queue, start: str | None = None) -> LeaseGroup:
    """A group that is not stored yet, with the settings that the queue's groups begin with.

    :param start: None is where the queue's groups begin.
    """
    settings = queue.leases.settings(service.leases.default_settings)
    return service.leases.new_group(settings, place_of(service, queue, start or queue.leases.start))


def shown_settings(queue: str, settings: GroupSettings) -> dict[str, Any]:
    """Settings as answers show them."""
    shown = {name: value for name, value in settings.to_json().items() if name not in _OWN_MEMBERS}
    return shown | {"dead_letter_queue": settings.dead_letter_queue or dead_letter_queue(queue)}


async def check_dead_letters(service: Service, call: Call, queue: str | None, settings: GroupSettings) -> None:
    """:raises Conflict: the queue would be its own dead-letter queue, or one of its dead letters' dead letters, and so on.
    :raises Forbidden: the caller may not append to it.
    """
    name = settings.dead_letter_queue
    if name is None:
        return
    if name == queue:
        raise Conflict("dead_letter_queue: a queue cannot be its own dead-letter queue")
    with suppress(QueueNotFound):  # it is made when it is first needed
        await allowed(service, call.identity, Permission.APPEND, call.application, name)
    if queue is not None:
        way = await chain_back(service.leases, service.queues, call.application, queue, name)
        if way:
            raise Conflict(
                f"dead_letter_queue: dead letters would come back, from {_told(call, [queue, *way])}: name another queue,"
                " or let one of these have another dead-letter queue"
            )


def _told(call: Call, way: Sequence[str]) -> str:
    """Names of queues; of those that the caller may not inspect, that there are some."""
    shown = [permits(Permission.CONFIGURE, call.identity, call.application, name, None) for name in way]
    return " to ".join([name if may else "another queue" for name, may in zip(way, shown, strict=True)])
