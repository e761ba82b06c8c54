"""Checks of the types of what callers give: a wrong one is refused by its name, and nothing is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf, isnan
from numbers import Integral, Real
from typing import Any

from queuey.errors import InvalidParameter

__all__ = ["check_list", "check_mapping", "check_seconds", "check_text", "whole_numbers"]

_NO_LISTS = (str, bytes, bytearray, memoryview, Mapping)
"""They can be iterated over, and are no lists of values."""


def check_text(name: str, value: object) -> None:
    """:raises InvalidParameter: the value is no text."""
    if not isinstance(value, str):
        raise InvalidParameter(problems={name: f"{value!r} is no text"})


def check_seconds(name: str, value: object, least: float = -inf, unit: str = "seconds") -> None:
    """:raises InvalidParameter: the value is no number of seconds, or is too small."""
    if isinstance(value, bool) or not isinstance(value, Real) or isnan(value) or value < least:
        more = "" if least == -inf else f", {least:g} or more"
        raise InvalidParameter(problems={name: f"is {value!r}: expected a number of {unit}{more}"})


def check_list(name: str, value: object, expected: str, kind: type | None = None) -> None:
    """Check a list, a tuple, or anything else that gives its entries one after the other.

    :param expected: what it is in words, for the refusal.
    :param kind: of its entries. They are looked at, so what gives them only once must not be given with it.
    :raises InvalidParameter: the value is one text, bytes, a mapping, or nothing that has entries; or one is of another kind.
    """
    is_list = isinstance(value, Iterable) and not isinstance(value, _NO_LISTS)
    if not is_list or (kind is not None and not all(isinstance(entry, kind) for entry in value)):  # type: ignore[attr-defined]
        raise InvalidParameter(problems={name: f"{value!r}: expected {expected}"})


def whole_numbers(name: str, values: Iterable[Any]) -> list[int]:
    """The entries of a list of whole numbers.

    :raises InvalidParameter: it is none.
    """
    check_list(name, values, "a list of numbers")
    numbers = [*values]
    check_list(name, numbers, "a list of numbers", Integral)
    return numbers


def check_mapping(name: str, value: object, expected: str) -> None:
    """:raises InvalidParameter: the value is no mapping."""
    if not isinstance(value, Mapping):
        raise InvalidParameter(problems={name: f"{value!r}: expected {expected}"})
