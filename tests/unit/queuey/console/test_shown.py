from __future__ import annotations

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey.console.shown import MAX_TREE_NODES, Node, absolute, body_of, image_type, iso, moment_of, shorter, visibly


def test_json_is_a_tree_that_keeps_names_and_kinds() -> None:
    shown = body_of({"body": '{"a": [1, "x", null], "b": {}}'}, 4000)

    assert shown.kind == "json"
    assert shown.tree == Node(
        "object",
        None,
        "2",
        (
            Node("array", "a", "3", (Node("number", None, "1"), Node("text", None, '"x"'), Node("word", None, "null"))),
            Node("object", "b", "0"),
        ),
    )


@pytest.mark.parametrize(
    "text", ["", "plain", "[1", "{'a': 1}", "[" + "1," * MAX_TREE_NODES + "1]", "[" * 2000 + "]" * 2000]
)
def test_what_is_no_json_or_too_much_of_it_is_text(text: str) -> None:
    shown = body_of({"body": text}, 10)

    assert (shown.kind, shown.tree, shown.text) == ("text", None, text[:10])
    assert shown.is_cut == (len(text) > 10)


def test_deep_json_ends_in_one_line() -> None:
    node = body_of({"body": "[" * 100 + "]" * 100}, 4000).tree
    depth = 0
    while node is not None and node.inside:
        node, depth = node.inside[0], depth + 1

    assert node is not None
    assert node.text == "[" * (100 - depth) + "]" * (100 - depth)


def test_bytes_are_hexadecimal_with_their_signs_beside_them() -> None:
    shown = body_of({"body": b64encode(b"\x00AB\xff").decode(), "encoding": "base64"}, 10)

    assert (shown.kind, shown.size) == ("hex", 4)
    assert shown.text.split() == ["000000", "00", "41", "42", "ff", ".AB."]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"RIFF\0\0\0\0WEBP", "image/webp"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", None),
        (b"", None),
    ],
)
def test_a_picture_is_known_by_its_first_bytes(data: bytes, kind: str | None) -> None:
    assert image_type(data) == kind


@given(st.text())
def test_any_text_can_be_shown(text: str) -> None:
    shown = body_of({"body": text}, 50)

    assert len(shown.line) <= 201
    assert not {"\u202e", "\0", "\x1b"} & set(visibly(text) + shown.line)


@pytest.mark.parametrize("moment", ["1e30", "nan", "inf", "-1e12"])
def test_a_moment_that_no_calendar_has_is_shown_as_it_is(moment: str) -> None:
    assert absolute(moment)
    assert isinstance(iso(moment), str)
    assert shorter(moment) == moment


def inside(text: str) -> dict[str | None, str]:
    tree = body_of({"body": text}, 200_000).tree
    assert tree is not None
    return {one.name: one.text for one in tree.inside}


def test_numbers_are_shown_as_they_stand() -> None:
    told = inside(
        '{"wei": 12345678901234567890123, "price": 1.10, "small": 1e-7, "none": null, "word": true, "text": "1"}'
    )

    assert list(told.values()) == ["12345678901234567890123", "1.10", "1e-7", "null", "true", '"1"']


def test_a_name_that_stands_twice_is_shown_twice() -> None:
    tree = body_of({"body": '{"a": 1, "a": 2}'}, 1000).tree

    assert tree == Node("object", None, "2", (Node("number", "a", "1"), Node("number", "a", "2")))


def test_what_is_nested_too_deep_stands_in_a_line() -> None:
    tree = body_of({"body": "[" * 30 + '{"a": [1.50, "x"]}' + "]" * 30}, 1000).tree
    while tree is not None and tree.inside:
        (tree,) = tree.inside

    assert tree is not None
    assert tree.text == "[" * 6 + '{"a":[1.50,"x"]}' + "]" * 6


@pytest.mark.parametrize("text", ["[" * 30_000, "[" * 900 + "]" * 900, "[NaN]", '["\\ud800"]', f"[{'1,' * 9000}1]"])
def test_what_cannot_be_folded_is_text(text: str) -> None:
    assert body_of({"body": text}, 1000).kind == "text"


def test_blanks_around_a_moment_do_not_count() -> None:
    assert moment_of(" 2026-11-21 04:50 ", 0.0) == moment_of("2026-11-21 04:50", 0.0)
    assert moment_of(" 12.5", 0.0) == "12.5"
