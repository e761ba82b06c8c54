"""Checks of options: a wrong one is refused by its name, before anything begins."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable
from dataclasses import fields

from queuey.errors import ConfigurationError

__all__ = ["check_number", "check_options"]


def check_options(options: type, given: Iterable[str], owner: str) -> None:
    """Check the names of options.

    :param options: a dataclass whose fields they are.
    :param owner: what has the options, for the error.
    :raises ConfigurationError: there is no such option.
    """
    known = [one.name for one in fields(options)]
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"is it {close[0]}?" if close else f"expected one of {', '.join(known)}"
            raise ConfigurationError(f"{owner} has no option {name!r}: {hint}")


def check_number(what: str, value: object, least: float, most: float = math.inf, *, whole: bool = True) -> None:
    """Check an option that is a number.

    >>> check_number("threads", "4", 1)
    Traceback (most recent call last):
    queuey.errors.ConfigurationError: threads is '4': expected a whole number

    :raises ConfigurationError: it is no number, or out of range.
    """
    kind = numbers.Integral if whole else numbers.Real
    if isinstance(value, bool) or not isinstance(value, kind) or value != value:  # noqa: PLR0124 - NaN alone differs
        raise ConfigurationError(f"{what} is {value!r}: expected a {'whole ' if whole else ''}number")
    if not least <= float(value) <= most:
        raise ConfigurationError(
            f"{what} is {value}: expected {least} {'or more' if most == math.inf else f'to {most}'}"
        )
