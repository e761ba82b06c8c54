"""What goes through JSON unchanged, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdo.tasks.arguments import Arguments, ReturnValue
from queuey.errors import ConfigurationError, InvalidParameter


class Colour(Enum):
    RED = "red"


@dataclass
class Order:
    number: int
    due: date


class Address(msgspec.Struct, eq=False):
    street: str


class Plain:
    """Nothing knows what it is made of."""


def typed(
    order: Order,
    address: Address | None = None,
    colour: Colour = Colour.RED,
    at: datetime | None = None,
    price: Decimal = Decimal(0),
    tags: frozenset[str] = frozenset(),
    waits: timedelta = timedelta(0),
    number: UUID | None = None,
    raw: bytes = b"",
    pair: tuple[int, int] = (0, 0),
) -> None: ...


def free(value, *, other=None):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201 -- as many functions are
    ...


TYPED, FREE = Arguments(typed, "typed"), Arguments(free, "free")


def test_each_type_comes_back_as_it_was() -> None:
    sent: dict[str, Any] = {
        "order": Order(7, date(2026, 11, 26)),
        "colour": Colour.RED,
        "at": datetime(2026, 11, 26, 6, tzinfo=UTC),
        "price": Decimal("1.10"),
        "tags": frozenset({"a", "b"}),
        "waits": timedelta(minutes=3),
        "number": UUID(int=5),
        "raw": b"\xff",
        "pair": (1, 2),
    }

    assert TYPED.decode(TYPED.encode((), sent)) == sent


def test_a_class_without_equality_goes_too() -> None:
    back = TYPED.decode(TYPED.encode((Order(1, date.min), Address("here")), {}))

    assert back["address"].street == "here"


def test_a_default_is_left_to_the_worker() -> None:
    assert FREE.encode((1,), {}) == b'{"value":1}'
    assert FREE.decode(b'{"value":1}') == {"value": 1}


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda some: st.lists(some) | st.dictionaries(st.text(), some),
        max_leaves=8,
    )
)
def test_whatever_json_has_goes_without_a_type(value: Any) -> None:
    assert FREE.decode(FREE.encode((), {"value": value})) == {"value": value}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (datetime(2026, 1, 1, tzinfo=UTC), "value: a datetime comes back as str: name its type"),
        ((1, 2), "value: a tuple comes back as list"),
        ({1, 2}, "value: a set comes back as list"),
        (b"bytes", "value: a bytes comes back as str"),
        (Decimal(1), "value: a Decimal comes back as str"),
        (Order(1, date.min), "value: a Order comes back as dict"),
        ({1: "one"}, "value: some of this dict comes back as another value"),
        ([datetime.min.replace(tzinfo=UTC)], "value: some of this list comes back as another value"),
        (float("nan"), "value: a float comes back as NoneType"),
        (Plain(), "send what it is made of"),
        (object, "send what it is made of"),
    ],
)
def test_what_would_change_on_the_way_is_refused_with_what_to_do(value: Any, said: str) -> None:
    with pytest.raises(InvalidParameter, match=said.replace("(", r"\(")):
        FREE.encode((value,), {})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "missing a required argument: 'order'"),
        ({"order": Order(1, date.min), "colur": 1}, "unexpected keyword argument 'colur'"),
        ({"order": {"number": "7", "due": "2026-11-26"}}, r"Expected `int`, got `str` - at `\$.order.number`"),
        ({"order": Order(1, date.min), "at": "2026-11-26T06:00:00Z"}, "Expected `datetime"),
        ({"order": Order(1, date.min), "colour": "blue"}, "Invalid enum value 'blue'"),
    ],
)
def test_other_arguments_are_refused_where_they_are_sent(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidParameter, match=said):
        TYPED.encode((), given)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "truncated"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{}", "missing required field `order`"),
        (b'{"order":{"number":1,"due":"2026-11-26"},"x":1}', "unknown field `x`"),
        (b'{"order":{"number":1,"due":"soon"}}', "Invalid RFC3339"),
    ],
)
def test_a_body_of_another_program_is_checked_where_the_task_starts(body: bytes, said: str) -> None:
    with pytest.raises(InvalidParameter, match=said):
        TYPED.decode(body)


def test_parameters_that_have_no_name_are_refused_when_the_task_is_declared() -> None:
    def several(*many: int) -> None: ...

    def positional(one: int, /) -> None: ...

    for function in (several, positional):
        with pytest.raises(ConfigurationError, match="arguments are sent by name"):
            Arguments(function, "task")


def test_a_type_that_does_not_exist_is_found_by_check() -> None:
    def strange(order: Missing) -> None: ...  # type: ignore[name-defined] # noqa: F821

    with pytest.raises(ConfigurationError, match="a type of its parameters is none: name 'Missing' is not defined"):
        Arguments(strange, "task").check()


@dataclass
class Holder:
    held: list[Plain]


@pytest.mark.parametrize("hint", [Plain, Plain | None, list[Plain], dict[str, Holder], tuple[int, Plain], Path])
def test_a_type_without_a_form_in_json_is_found_by_check(hint: Any) -> None:
    """It was found only when somebody sent one."""

    def strange(order): ...  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202

    strange.__annotations__["order"] = hint
    name = "Path" if hint is Path else "Plain"
    with pytest.raises(ConfigurationError, match=f"JSON has no form for {name}, the type of order: send what it is"):
        Arguments(strange, "task").check()


def test_a_return_value_keeps_its_type() -> None:
    def made() -> Order:
        return Order(3, date(2026, 1, 2))

    value = ReturnValue(made, "made")

    assert value.decode(value.encode(Order(3, date(2026, 1, 2)))) == Order(3, date(2026, 1, 2))
    with pytest.raises(InvalidParameter, match="result: Expected `object`, got `int`"):
        value.encode(3)


@pytest.mark.parametrize("body", [b'{"text": "\xff"}', b'{"text": ' + b"[" * 100_000, b'{"text": 1}', b"", b"\xff"])
def test_a_body_that_has_no_arguments_is_refused(body: bytes) -> None:
    def any_text(text: str) -> str:
        return text

    with pytest.raises(InvalidParameter, match="task any_text: "):
        Arguments(any_text, "any_text").decode(body)
    with pytest.raises(InvalidParameter, match="the result of task any_text: "):
        ReturnValue(any_text, "any_text").decode(body)
