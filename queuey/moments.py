"""Durations and moments as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal

from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND, MessageId, format_timestamp, parse_timestamp

__all__ = ["DURATION_FORM", "MOMENT_FORM", "parse_duration", "parse_moment", "rfc3339"]

_UNITS = {"ms": "0.001", "s": "1", "m": "60", "h": "3600", "d": "86400", "w": "604800"}
_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|s|m|h|d|w)")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")
_NUMBER = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,30})?")
_UNIX = datetime(1970, 1, 1, tzinfo=UTC)

DURATION_FORM = "a duration such as 90, 90s, 10m, 1h30m, 3d or 2w"
MOMENT_FORM = "a message id, RFC 3339 (2026-11-21T10:00:00Z; UTC unless it says otherwise), seconds since 1970, or now"


def parse_duration(text: str) -> Decimal:
    """Seconds.

    :raises ValueError: not of that form.

    >>> parse_duration("1h30m"), parse_duration("90"), parse_duration("1.5s")
    (Decimal('5400'), Decimal('90'), Decimal('1.5'))
    """
    if _NUMBER.fullmatch(text):
        return Decimal(text)
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is not {DURATION_FORM}")
    return sum((Decimal(number) * Decimal(_UNITS[unit]) for number, unit in _PART.findall(text)), Decimal(0))


def parse_moment(text: str, now_ticks: int, *, ago: bool = False) -> str:
    """The wire form: a message id, or decimal seconds since 1970.

    :param ago: a duration is taken too, as that long before now.
    :raises ValueError: not of that form.

    >>> parse_moment("1970-01-01T00:01:00+00:00", 0)
    '60.0000000'
    """
    if text == "now":
        return format_timestamp(now_ticks)
    try:
        return MessageId.parse(text).hex
    except ValueError:
        pass
    if _NUMBER.fullmatch(text):
        return format_timestamp(parse_timestamp(text))
    if ago and _DURATION.fullmatch(text):
        return format_timestamp(max(now_ticks - int(parse_duration(text) * TICKS_PER_SECOND), EPOCH_TICKS))
    try:
        since = datetime.fromisoformat(text)
    except ValueError:
        expected = MOMENT_FORM + (", or a duration such as 10m before now" if ago else "")
        raise ValueError(f"{text!r} is not {expected}") from None
    since_unix = (since if since.tzinfo else since.replace(tzinfo=UTC)) - _UNIX
    seconds = since_unix.days * 86400 + since_unix.seconds
    return parse_moment(f"{seconds}.{since_unix.microseconds:06d}", now_ticks)


def rfc3339(ticks: int) -> str:
    """UTC, to the tick.

    >>> rfc3339(EPOCH_TICKS + 1)
    '1970-01-01T00:00:00.0000001Z'
    """
    seconds, fraction = divmod(ticks - EPOCH_TICKS, TICKS_PER_SECOND)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{fraction:07d}Z"
