"""Messages whose headers another door wrote as it liked are shown all the same."""

from __future__ import annotations

import json

import pytest

from queuey.model.dead_letters import STORY_HEADER
from queuey.model.headers import encode_headers
from queuey.sqs.errors import SqsError
from queuey.sqs.messages import OWN_HEADER, encoded, parts_of, shown_body, value_of


@pytest.mark.parametrize(
    "own",
    [
        b"no json",
        b"[]",
        b'{"types": 5, "sender": 5, "sent": "x", "trace": [], "dedup": null}',
        b'{"types": {"a": 5}}',
        b'{"types": {"b": "String.label"}}',  # it is no text: a client would find another sum of it
        b'{"types": {"a": "Pigeon"}, "more": true}',
    ],
)
def test_what_is_not_as_the_door_writes_it_says_nothing(own: bytes) -> None:
    parts = parts_of(encode_headers({"a": b"text", "b": b"\xff", OWN_HEADER: own}))

    assert {name: one.type for name, one in parts.attributes.items()} == {"a": "String", "b": "Binary"}
    assert {*parts.own} <= {"types"}
    assert [value_of(one) for one in parts.attributes.values()]


def test_a_story_without_the_id_of_a_message_is_none() -> None:
    story = {"queue": "q", "partition": 1, "message_id": "0" * 32, "group": "g", "failures": 1, "reason": ""}

    assert parts_of(encode_headers({STORY_HEADER: json.dumps(story).encode()})).story is None


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"a\t\r\n", "a\t\r\n"),
        ("é\u2028".encode(), "é\u2028"),
        (b"\x00", "AA=="),
        (b"\xff", "/w=="),
        ("\ufffe".encode(), "77++"),
    ],
)
def test_a_body_that_sqs_cannot_say_comes_in_base64(body: bytes, text: str) -> None:
    assert shown_body(body) == (text, text.encode())


@pytest.mark.parametrize("text", ["\0", "\x1b", "a\x0b", "é\x00", "\ufffe", "\uffff", "\ud800"])
def test_characters_that_no_message_has(text: str) -> None:
    with pytest.raises(SqsError) as caught:
        encoded(text)

    assert caught.value.shape == "InvalidMessageContents"


@pytest.mark.parametrize("text", ["\t\n\r ~\x7f", "é", "\u2028\n", "\ufffd", "\U0010ffff", "\x85"])
def test_characters_that_a_message_may_have(text: str) -> None:
    assert encoded(text).decode() == text
