"""What may be done here, by whom, and by which settings: for owners and operators."""

from __future__ import annotations

from typing import Any

from queuey.api.params import Problems, quoted
from queuey.http.exchange import Answer, Call, Target, json_answer
from queuey.ids import format_timestamp
from queuey.security.permissions import ANONYMOUS, Grant, Identity, rights_of
from queuey.security.principals import app_principal, operator_of, parse_principal
from queuey.service import Service
from queuey.settings.shown import describe

__all__ = ["list_keys", "list_settings", "show_rights"]

ANYONE = "anyone"
"""Stands for a caller without a credential."""


async def list_keys(service: Service, call: Call, target: Target) -> Answer:
    """The keys of an application by their labels; never a key."""
    keys = service.keys.of(app_principal(target.application))
    listed = [
        {
            "label": key.label,
            "created": _moment(key.created_ticks),
            "last_used": _moment(service.keys.last_use(key.digest)),
        }
        for key in sorted(keys, key=lambda key: (key.created_ticks, key.label))
    ]
    return json_answer({"status": "ok", "application": target.application, "keys": listed})


def _moment(ticks: int | None) -> str | None:
    return format_timestamp(ticks) if ticks else None


def _caller(text: str) -> Identity:
    if text == ANYONE:
        return ANONYMOUS
    try:
        return Identity([Grant(text if operator_of(text) else parse_principal(text))])
    except ValueError as error:
        raise ValueError(f"{quoted(text)} is neither a principal nor {ANYONE}: {error}") from error


async def show_rights(service: Service, call: Call, target: Target) -> Answer:
    """What a principal may do with a queue, by the table that decides each call."""
    problems = Problems()
    caller = problems.take("rights", _caller, call.query.get("rights"), ANONYMOUS)
    problems.check()
    queue = target.queue
    content: dict[str, Any] = {
        "status": "ok",
        "queue_name": queue.name,
        "principal": call.query["rights"],
        "rights": rights_of(caller, target.application, queue),
    }
    return json_answer(content)


async def list_settings(service: Service, call: Call, target: Target) -> Answer:
    """Each setting in force, and where it comes from; secrets are counted, never shown."""
    listed = [
        {"section": row.section, "key": row.key, "value": row.value, "origin": row.origin, "variable": row.variable}
        for row in describe(service.settings)
    ]
    return json_answer({"status": "ok", "settings": listed})
