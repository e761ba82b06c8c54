"""Tokens that this server issues.

It issues them for another credential, or to an application for its users.
"""

from __future__ import annotations

from queuey.api.fields import check_form, check_names
from queuey.api.params import Problems, integer, principal, queue_name, words
from queuey.api.queues import form_pairs
from queuey.errors import Forbidden, InvalidParameter, NotFound
from queuey.http.exchange import Answer, Call, Target, json_answer
from queuey.ids import format_timestamp
from queuey.security.permissions import VERBS, Permission, key_behind, may_mint
from queuey.service import Service

FIELDS = ("principal", "queues", "verbs", "life")
"""Form fields of a request for a token."""
MAX_QUEUES = 100
"""Queues in one token, which has to fit into a header."""


async def mint(service: Service, call: Call, target: Target) -> Answer:
    """Make a token that proves the caller, or a user of the calling application."""
    tokens = service.trust.tokens
    if tokens is None:
        raise NotFound(
            "This server makes no tokens: its settings have no [tokens] keys. Its operator makes one with 'queuey token key'."
        )
    problems = Problems()
    fields = _fields(call, problems)
    wanted = problems.take("principal", principal, fields.get("principal"), None)
    queues = problems.take("queues", _queue_names, fields.get("queues"), None)
    verbs = problems.take("verbs", _verbs, fields.get("verbs"), None)
    life = problems.take("life", integer(1, tokens.life_seconds), fields.get("life"), None)
    problems.check()
    who = wanted or _only(call.identity.acting(Permission.MINT, target.application))
    if not may_mint(call.identity, target.application, who):
        raise Forbidden
    by = key_behind(call.identity, target.application, who)
    minted = tokens.mint(who, target.application, queues=queues, verbs=verbs, life_seconds=life, by=by)
    grant = minted.grant
    return json_answer(
        {
            "status": "ok",
            "token": minted.text,
            "token_type": "Bearer",
            "expires_in": minted.life_seconds,
            "expires": format_timestamp(grant.expires_ticks or 0),
            "principal": grant.principal,
            "application": grant.application,
            "queues": None if grant.queues is None else sorted(grant.queues),
            "verbs": [verb for verb in VERBS if verb in (grant.verbs or ())],
        },
        201,
        [("cache-control", "no-store")],
    )


def _fields(call: Call, problems: Problems) -> dict[str, str]:
    """The form fields.

    A missing field widens the token, so a field in a wrong place must not count as missing.
    """
    if call.query_string:
        raise InvalidParameter(problems={"query": f"takes no parameters: send {', '.join(FIELDS)} as form fields"})
    pairs = form_pairs(call)
    check_form(call, pairs)
    check_names(pairs, FIELDS, problems)
    for name, value in pairs:
        if not value:
            problems.add(name, "empty: leave the field out to ask for no restriction")
    return dict(pairs)


def _only(principals: frozenset[str]) -> str:
    if len(principals) != 1:
        raise InvalidParameter(problems={"principal": "several are proven: name the one that the token is for"})
    return next(iter(principals))


def _queue_names(text: str) -> list[str]:
    names = [queue_name(name.strip(" \t")) for name in text.split(",")]
    if len(names) > MAX_QUEUES:
        raise ValueError(f"more than {MAX_QUEUES} queues")
    return names


def _verbs(text: str) -> list[str]:
    return words(text, VERBS)
