"""Lines are read as ``queuey get --format`` writes them."""

from __future__ import annotations

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdo.client import Message, NewMessage
from queuey.cli.get import _formatter
from queuey.cli.line_forms import InputForm
from queuey.cli.reading import QueueMessage
from queuey.cli.sending import InputLine
from queuey.ids import MessageId

HEX = "1f9f6640e56711f189bf02fc00000001"
LIKE = NewMessage(b"", ttl_seconds=60, headers={"own": b"1"})
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\t"), min_size=1, max_size=20)


def line(text: bytes) -> InputLine:
    return InputLine("orders.txt", 7, text)


@given(st.binary(min_size=1), WORDS, st.binary(min_size=1).filter(lambda value: b"\t" not in value))
def test_what_get_writes_is_read_back(body: bytes, key: str, kind: bytes) -> None:
    form = r"{id}\t{key}\t{header:kind}\t{body}"
    message = Message(MessageId.parse(HEX), 3, body, key=key, headers={"kind": kind})
    written = _formatter(form)(QueueMessage("q", message)).removesuffix(b"\n")

    read = InputForm(form).message(line(written), LIKE)

    assert (read.raw, read.key, read.headers, read.ttl_seconds) == (body, key, {"own": b"1", "kind": kind}, 60)


def test_a_field_that_is_empty_says_nothing() -> None:
    read = InputForm("{key},{content_type},{header:a},{body}").message(line(b",,,x,y"), LIKE)

    assert (read.key, read.content_type, read.headers, read.body) == (None, None, {"own": b"1"}, b"x,y")


@pytest.mark.parametrize(
    ("text", "why"),
    [(b"no tab", "has not the form"), (b"k\t", "body is empty"), (b"\xff\tx", "key is not UTF-8")],
)
def test_a_line_of_another_form_is_named(text: bytes, why: str) -> None:
    with pytest.raises(click.UsageError, match=f"line 7 of orders.txt: .*{why}"):
        InputForm(r"{key}\t{body}").message(line(text), LIKE)


@pytest.mark.parametrize("text", ["", "{key} x", "{body} {body}", "{nothing} {body}", "{key}{body}"])
def test_a_form_that_no_line_can_have_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        InputForm(text)
