"""What credentials claim, and what the server believes of it.

It demands exact types and short lives.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from queuey.clock import Clock
from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND

LEEWAY_SECONDS = 0.25
"""How far two clocks may differ, the ``E`` of the guarantees."""
DAY_SECONDS = 24 * 3600
MAX_CREDENTIAL = 8192
"""Characters."""

_LAST = 1 << 53
"""No moment is beyond it, in seconds or milliseconds; nor is a NaN below it."""

Claims = Mapping[str, Any]


class Unproven(Exception):
    """Why a credential proves nothing; a sentence that repeats no word of it."""


def unix_now(clock: Clock) -> float:
    """Seconds since 1970."""
    return (clock.now_ticks() - EPOCH_TICKS) / TICKS_PER_SECOND


def ticks_of(unix_seconds: float) -> int:
    """The same moment, as ticks."""
    return EPOCH_TICKS + int(unix_seconds * TICKS_PER_SECOND)


def load_claims(payload: bytes) -> Claims:
    """:raises Unproven: not a JSON object."""
    claims = json.loads(payload)
    if not isinstance(claims, dict):
        raise Unproven("Its claims are no JSON object.")
    return claims


def text_of(claims: Claims, name: str) -> str:
    """A claim that has to be there, as a text.

    :raises Unproven: it is not.
    """
    value = claims.get(name)
    if not isinstance(value, str) or not value:
        raise Unproven(f"Its claim {name} is missing, or no text.")
    return value


def check_life(claims: Claims, now: float, *, most_seconds: float, whole: bool = False, unit: int = 1) -> float:
    """That a credential is alive, and not for longer than it may be.

    ``exp`` has to be there; it, ``nbf`` and ``iat`` have to be numbers, never texts.

    :param now: seconds since 1970.
    :param whole: numbers have to be whole ones.
    :param unit: 1000 if they count milliseconds.
    :returns: when it ends, seconds since 1970.
    :raises Unproven: it is not.
    """
    ends = _moment(claims, "exp", whole=whole, unit=unit)
    if ends is None:
        raise Unproven("It does not say when it ends.")
    if ends <= now - LEEWAY_SECONDS:
        raise Unproven("It has expired.")
    begins, made = (_moment(claims, name, whole=whole, unit=unit) for name in ("nbf", "iat"))
    if begins is not None and begins > now + LEEWAY_SECONDS:
        raise Unproven("It does not count yet.")
    oldest = now - LEEWAY_SECONDS if made is None else min(made, now - LEEWAY_SECONDS)
    if ends - oldest > most_seconds + 2 * LEEWAY_SECONDS:
        raise Unproven(f"It lives for longer than {most_seconds:g} seconds.")
    return ends


def _moment(claims: Claims, name: str, *, whole: bool, unit: int) -> float | None:
    """A claim in seconds; None if it is absent."""
    if name not in claims:
        return None
    value = claims[name]
    kinds = (int,) if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not 0 <= value <= _LAST:
        raise Unproven(f"Its claim {name} is no {'whole ' if whole else ''}number that a moment can be.")
    return value / unit


def check_audience(stated: object, ours: tuple[str, ...], *, several: bool) -> None:
    """That a credential is for this server: audiences compare as texts.

    :param several: it may be for others as well, in a list.
    :raises Unproven: it is not.
    """
    listed = stated if several and isinstance(stated, list) else [stated]
    if not any(isinstance(one, str) and one in ours for one in listed):
        raise Unproven("It is for another audience than this server.")
