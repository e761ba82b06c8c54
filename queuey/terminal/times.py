"""Options that are durations and moments."""

from __future__ import annotations

from typing import Any

import click

from queuey.clock import SystemClock
from queuey.ids import parse_timestamp
from queuey.moments import parse_duration, parse_moment, rfc3339


class Duration(click.ParamType[float]):
    """An option that is a duration, in seconds."""

    name = "duration"

    def __init__(self, *, whole: bool = False) -> None:
        """:param whole: only whole seconds, at least one."""
        self._whole = whole

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            seconds = parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not self._whole:
            return float(seconds)
        if seconds < 1 or seconds != int(seconds):
            self.fail(f"{value!r} is not a whole number of seconds from 1 on", param, ctx)
        return int(seconds)


class Moment(click.ParamType[str]):
    """An option that is a moment, in its wire form."""

    name = "moment"

    def __init__(self, *, ago: bool = False, ids: bool = True) -> None:
        """:param ago: a duration before now will do.
        :param ids: a message id will do.
        """
        self._ago = ago
        self._ids = ids

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            found = parse_moment(value, SystemClock().now_ticks(), ago=self._ago)
        except (ValueError, OverflowError) as error:
            self.fail(str(error), param, ctx)
        if not self._ids and "." not in found:
            self.fail(f"{value!r} is a message id: expected a time", param, ctx)
        return found


def place_in_queue(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    """What an option of a place is on the wire: a moment, the id of a message, or a word for an end."""
    if text in (None, "beginning", "end"):
        return text
    try:
        return Moment(ago=True).convert(text, param, ctx)
    except click.BadParameter as error:
        raise click.BadParameter(f"{error.message}; nor is it beginning or end", ctx, param) from None


def shown_place(place: str) -> str:
    """A place as people read it.

    >>> shown_place("1795788271.6827706"), shown_place("end")
    ('2026-11-27T14:04:31.6827706Z', 'end')
    """
    return rfc3339(parse_timestamp(place)) if "." in place else place
