"""Options that are numbers."""

from __future__ import annotations

import math
from typing import Any

import click

__all__ = ["MOST_SECONDS", "Number"]

MOST_SECONDS = 31_536_000
"""Of an option that is a time: a year. Clocks and sockets take no time of any length."""


class Number(click.FloatRange):
    """An option that is a number between two bounds.

    ``nan`` is below and above no bound, and so it passes through :class:`click.FloatRange`.
    """

    def __init__(self, least: float, most: float = MOST_SECONDS, *, above: bool = False) -> None:
        """:param above: ``least`` itself is refused."""
        super().__init__(least, most, min_open=above)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found: float = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return found
