"""Sums as the service computes them, from recordings of it and from other implementations."""

from __future__ import annotations

from hashlib import md5

import pytest

from queuey.sqs.checksums import Attribute, md5_of_attributes, md5_of_body


def text(value: str, kind: str = "String") -> Attribute:
    return Attribute(kind, value.encode())


GREETING = {"General": text("Kenobi"), "Hello": text("There"), "Help.Me": text("Me")}
TRACE = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"


@pytest.mark.parametrize(
    ("attributes", "sum_of_them"),
    [
        ({"Foo": text("Bar")}, "ae7155c6026991b6d54b11589678bf9c"),
        ({"MyAttribute": text("foobar")}, "adb59cd4678ea5a855436b949cd07ab6"),
        (GREETING, "4c360f3fdafd970e05fae2f149d997f5"),
        (dict(reversed(GREETING.items())), "4c360f3fdafd970e05fae2f149d997f5"),
        ({name: GREETING[name] for name in ("Hello", "Help.Me")}, "83fee93c1bcd8b9a5a923ffacdc636c7"),
        ({"binaryAttribute": Attribute("Binary", b"Hello binary world!")}, "31a92b15d92f8db860eda32aceb656c3"),
        (
            {
                "b": Attribute("Binary.gif", b"\x00\x01\xff"),
                "a.n": text("42", "Number.int"),
                "Z": text("é"),
            },
            "67b82fc77b9a18171220fb6b141f3763",
        ),
        ({"AWSTraceHeader": text(TRACE)}, "5ae4d5d7636402d80f4eb6d213245a88"),
    ],
)
def test_the_sum_of_attributes_is_the_services(attributes: dict[str, Attribute], sum_of_them: str) -> None:
    assert md5_of_attributes(attributes) == sum_of_them


def test_no_attributes_have_no_sum() -> None:
    assert md5_of_attributes({}) == ""


def test_names_are_sorted_by_their_bytes() -> None:
    """As UTF-8; by UTF-16, in which some languages compare, the second name would come first."""
    names = ["\uffee", "\U00010000"]
    parts = [part.encode() for name in names for part in (name, "String", "x")]
    marked = [len(part).to_bytes(4, "big") + part for part in parts]
    expected = md5(b"".join([*marked[:2], b"\1", *marked[2:5], b"\1", marked[5]]), usedforsecurity=False).hexdigest()

    assert md5_of_attributes({name: text("x") for name in reversed(names)}) == expected


@pytest.mark.parametrize(
    ("kind", "is_binary"),
    [("String", False), ("String.Binary", False), ("Number.int", False), ("Binary", True), ("Binary.gif", True)],
)
def test_a_label_does_not_change_what_is_binary(kind: str, *, is_binary: bool) -> None:
    assert Attribute(kind, b"").is_binary is is_binary


def test_the_sum_of_a_body() -> None:
    assert md5_of_body(b"hello") == "5d41402abc4b2a76b9719d911017c592"
