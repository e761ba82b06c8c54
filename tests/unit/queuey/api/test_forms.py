"""Messages in their wire forms: what is made for many at once is what each is by itself."""

from __future__ import annotations

import base64
from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey.api import forms
from queuey.api.arrow.answers import ARROW_COLUMNS, ArrowForm
from queuey.api.forms import (
    LINES_BYTES,
    EndMark,
    NdjsonForm,
    append_answer,
    entries,
    id_texts,
    json_page,
    plain_page,
    timestamps,
)
from queuey.http.exchange import joined
from queuey.ids import EPOCH_TICKS, MAX_TICKS, TICKS_PER_SECOND, MessageId, format_timestamp, tail_from_low
from queuey.model import Bodies, Columns, Location, Message

_NOW = EPOCH_TICKS + 17952366500128320
_TICKS = st.one_of(
    st.integers(0, MAX_TICKS),
    st.integers(_NOW, _NOW + 5),
    st.integers(-3, 3).map(lambda apart: EPOCH_TICKS + apart),
)
_TAILS = st.one_of(st.just(0b10 << 62 | 7), st.integers(0b10 << 62, 0b11 << 62)).map(tail_from_low)
_IDS = st.builds(MessageId, _TICKS, _TAILS)
_BODIES = st.one_of(st.binary(min_size=1, max_size=8), st.text(min_size=1, max_size=8).map(str.encode))
_NAMES = st.one_of(st.none(), st.sampled_from(["text/plain", "é"]))
_MESSAGES = st.lists(
    st.tuples(_IDS, _NAMES, _NAMES, _BODIES).map(lambda made: Message(*made[0], 5, made[1], made[2], made[3])),
    max_size=9,
)


_PLAIN_BODIES = st.one_of(st.just(b""), _BODIES, st.text('ab \n\x1f\x7f\\"é', min_size=1, max_size=8).map(str.encode))
_PLAIN = st.lists(
    st.builds(lambda made, body: Message(made.ticks, made.tail, 5, None, None, body), _IDS, _PLAIN_BODIES),
    min_size=1,
    max_size=9,
)


@given(_PLAIN, st.integers(1, 200), st.booleans())
def test_a_plain_page_is_the_page_of_its_entries(messages: list[Message], partition: int, by_column: bool) -> None:
    expected = json_page(entries(messages, partition))
    needs_no_escape = all(
        body.isascii() and len(orjson.dumps(body.decode())) == len(body) + 2 for *_, body, _ in messages
    )

    page = plain_page(_in_one_piece(messages) if by_column else messages, partition)

    assert page == expected if needs_no_escape else page in (expected, None)


def test_a_page_with_a_key_or_a_content_type_is_not_plain() -> None:
    plain = Message(_NOW, 1, 5, None, None, b"body")

    for other in (plain._replace(key="k"), plain._replace(content_type="text/plain")):
        assert plain_page([plain, other], 1) is None


def _in_one_piece(messages: list[Message]) -> Columns:
    """As a pack has them: behind other bytes, and not from its first body on."""
    columns = Columns.of(messages)
    return replace(columns, bodies=_end_to_end([b"first", *columns.bodies], b"before")[1:])


def alone(message: Message, partition: int) -> dict[str, Any]:
    """A message in JSON, by the rules and nothing else."""
    shown: dict[str, Any] = {
        "message_id": message.id.hex,
        "timestamp": format_timestamp(message.ticks),
        "partition": partition,
    }
    try:
        shown["body"] = message.body.decode()
    except UnicodeDecodeError:
        shown |= {"body": base64.b64encode(message.body).decode(), "encoding": "base64"}
    named = {"content_type": message.content_type, "key": message.key}
    return shown | {name: value for name, value in named.items() if value is not None}


@given(_MESSAGES)
def test_a_page_shows_each_message_as_if_it_were_alone(messages: list[Message]) -> None:
    expected = [alone(message, 3) for message in messages]

    assert orjson.dumps(entries(messages, 3)) == orjson.dumps(expected)
    assert entries(Columns.of(messages), 3) == expected


@given(st.lists(st.tuples(st.integers(1, 200), _IDS), max_size=9))
def test_an_answer_to_an_append_names_each_place(places: list[tuple[int, MessageId]]) -> None:
    answer = orjson.loads(append_answer([Location(*place) for place in places]))

    assert answer["messages"] == [
        {"key": id_.hex, "timestamp": id_.timestamp, "partition": partition} for partition, id_ in places
    ]


@pytest.mark.parametrize("character", [b"x", b"\x01", b"\xff", "é".encode()])
@pytest.mark.parametrize("count", [1, 2, 1000])
def test_lines_come_in_pieces_that_are_not_large(character: bytes, count: int) -> None:
    body = character * ((1 << 20) // count // len(character))
    messages = [Message(EPOCH_TICKS + 7, n, 1, None, '"body":"', body) for n in range(count)]
    pieces = list(NdjsonForm(None, "q").rows(messages, 2))

    assert max(map(len, pieces)) <= LINES_BYTES
    assert [(line["key"], line["body"]) for line in map(orjson.loads, b"".join(pieces).splitlines())] == [
        ('"body":"', entry["body"]) for entry in entries(messages, 2)
    ]


@given(st.lists(_MESSAGES.filter(bool), max_size=3))
def test_an_arrow_stream_has_each_message_and_the_end_mark(pages: list[list[Message]]) -> None:
    form = ArrowForm(ARROW_COLUMNS, "q")
    pieces = [
        form.start(),
        *(piece for page in pages for piece in form.rows(page, 2)),
        form.end(EndMark(9, "cursor", True, "1.0")),
    ]
    batches: list[tuple[pa.RecordBatch, Any]] = []
    with pa.ipc.open_stream(b"".join(map(joined, pieces))) as reader:
        batches += [reader.read_next_batch_with_custom_metadata() for _ in range(len(pages) + 1)]

    rows = [row for batch, _ in batches for row in batch.to_pylist()]
    messages = [message for page in pages for message in page]
    assert [(row["queue"], row["partition"], row["message_id"], row["body"]) for row in rows] == [
        ("q", 2, message.id.hex, message.body) for message in messages
    ]
    assert [(row["content_type"], row["key"]) for row in rows] == [(m.content_type, m.key) for m in messages]
    micros = [t for batch, _ in batches for t in batch.column("timestamp").cast(pa.int64()).to_pylist()]
    assert micros == [(message.ticks - EPOCH_TICKS) // 10 for message in messages]
    assert [row["id"].hex() for row in rows] == [message.id.hex for message in messages]
    expiries = [t for batch, _ in batches for t in batch.column("expires").cast(pa.int64()).to_pylist()]
    assert expiries == [(message.expires_ticks - EPOCH_TICKS) // 10 for message in messages]
    assert batches[-1][0].num_rows == 0
    assert dict(batches[-1][1])[b"queuey.next"] == b"cursor"


_EDGES = st.sampled_from(
    [0, 1, 1 << 32, EPOCH_TICKS, EPOCH_TICKS + TICKS_PER_SECOND, EPOCH_TICKS + 17952366500128320, MAX_TICKS]
)


@st.composite
def _moments(draw: st.DrawFn) -> list[int]:
    """Near to each other, or anywhere; near to where seconds and the words of ids begin."""
    near = st.builds(lambda edge, off: min(max(edge + off, 0), MAX_TICKS), st.just(draw(_EDGES)), st.integers(-30, 30))
    anywhere = st.integers(0, MAX_TICKS)
    return draw(st.lists(draw(st.sampled_from([near, anywhere])), min_size=1, max_size=8))


@given(_moments(), st.data())
def test_ids_by_column(ticks: list[int], data: st.DataObject) -> None:
    tails = data.draw(st.lists(_TAILS, min_size=len(ticks), max_size=len(ticks)))

    for given_as in (tuple, lambda numbers: array("q", numbers)):
        assert id_texts(given_as(ticks), given_as(tails)) == [
            MessageId(*id_).hex for id_ in zip(ticks, tails, strict=True)
        ]


@given(_moments())
def test_times_by_column(ticks: list[int]) -> None:
    assert timestamps(ticks) == timestamps(array("q", ticks)) == [format_timestamp(tick) for tick in ticks]


@given(st.lists(st.text(min_size=1), min_size=1), st.booleans(), st.binary())
def test_texts_of_bodies_that_lie_end_to_end(texts: list[str], ascii_alone: bool, before: bytes) -> None:
    texts = [text.encode("ascii", "replace").decode() for text in texts] if ascii_alone else texts
    raw = [text.encode() for text in texts]

    assert _end_to_end(raw, before).texts() == texts
    within = _end_to_end([b"first", *raw, b"last"], before)[1:-1]
    assert isinstance(within, Bodies)
    assert within.texts() == texts


def _end_to_end(raw: Sequence[bytes], before: bytes) -> Bodies:
    ends = array("i", [0])
    for body in raw:
        ends.append(ends[-1] + len(body))
    return Bodies(before + b"".join(raw), ends, len(before))


def test_one_thread_at_a_time_makes_lines_and_none_waits_for_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bool] = []

    def line(shown: dict[str, Any]) -> list[bytes]:
        made.append(forms._making_lines.locked())
        return [orjson.dumps(shown)]

    monkeypatch.setattr(forms, "_line", line)
    messages = [Message(_NOW, 1, 5, None, None, b"x" * LINES_BYTES) for _ in range(3)]

    for _ in NdjsonForm(["body"], "q").rows(messages, 1):
        assert not forms._making_lines.locked()  # while the client takes what was made

    assert made == [True] * 3
