"""Moments that callers give, and their forms on the wire."""

from __future__ import annotations

import datetime as dt
import re

from queuey.clock import SystemClock
from queuey.errors import InvalidParameter
from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND, MessageId, format_timestamp
from queuey.moments import parse_moment

__all__ = ["Moment", "moment_to_wire", "place_to_wire"]

Moment = MessageId | dt.datetime | str
"""A place in time: an id; a moment with a time zone; or a text as the command line takes it: an id, RFC 3339, decimal seconds
since 1970, ``now``, or where a past moment is wanted a duration such as ``10m``, that long ago."""

_ON_THE_WIRE = re.compile(r"[0-9]+(\.[0-9]+)?|[0-9a-fA-F-]{32,36}")
_EPOCH = dt.datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def place_to_wire(place: Moment, name: str) -> str:
    """As :func:`moment_to_wire`, for what may also be ``beginning`` or ``end``."""
    return str(place) if place in ("beginning", "end") else moment_to_wire(place, name)


def moment_to_wire(moment: Moment, name: str = "moment", *, ago: bool = True) -> str:
    """The wire form of a moment, exact to the tick.

    :param name: of the parameter, for the refusal.
    :param ago: a duration is taken, as that long before now.
    :raises InvalidParameter: a text is no moment, a datetime has no time zone, or this is neither a text, a datetime nor an id.

    >>> moment_to_wire(dt.datetime.fromisoformat("2026-11-21T08:00:00.000001+01:00"))
    '1795244400.0000010'
    """
    if isinstance(moment, MessageId):
        return moment.hex
    if isinstance(moment, str):
        try:
            found = parse_moment(moment, SystemClock().now_ticks(), ago=ago)
        except (ValueError, OverflowError) as error:
            raise InvalidParameter(problems={name: str(error)}) from error
        return moment if _ON_THE_WIRE.fullmatch(moment) else found
    if not isinstance(moment, dt.datetime):
        raise InvalidParameter(problems={name: f"{moment!r} is no moment: give a text, a datetime or an id"})
    if moment.tzinfo is None:
        raise InvalidParameter(problems={name: f"{moment} has no time zone"})
    since = moment - _EPOCH
    seconds = since.days * 86400 + since.seconds
    return format_timestamp(EPOCH_TICKS + seconds * TICKS_PER_SECOND + since.microseconds * 10)
