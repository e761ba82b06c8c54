"""Rows of messages taken apart, column by column: ids all at once, and a checksum over each message."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey.errors import CorruptMessage
from queuey.ids import EPOCH_TICKS, MessageId, tail_from_low
from queuey.model import Message, encode_headers
from queuey.storage.cassandra.rows import block_of, block_of_ids, message_of
from queuey.storage.checksums import beside, checksum_of

IDS = st.builds(
    MessageId,
    st.integers(0, (1 << 60) - 1),
    st.integers(0, (1 << 62) - 1).map(lambda low: tail_from_low(1 << 63 | low)),
)
HEADERS = st.dictionaries(st.text("ab-", min_size=1, max_size=3), st.binary(max_size=9), max_size=3)
"""As the driver gives a map."""
TEXTS = st.none() | st.text(max_size=20)


@st.composite
def stored(draw: st.DrawFn) -> tuple[Message, tuple[Any, ...]]:
    """A message, and its row."""
    id_, expires = draw(IDS), draw(st.integers(0, 10))
    content_type, key, body = draw(TEXTS), draw(TEXTS), draw(st.binary(max_size=50))
    headers = draw(HEADERS)
    around = beside(content_type, key, encode_headers(headers))
    kind_bytes, key_bytes, encoded = around
    row = (id_.bytes, expires, checksum_of(id_, around, body), kind_bytes, key_bytes, body, headers or None)
    return Message(*id_, expires, content_type, key, body, encoded), row


STORED = st.lists(stored(), max_size=12)


@given(STORED)
def test_ids_and_expiries_are_those_of_the_rows_with_bodies_or_without(found: list[tuple[Message, Any]]) -> None:
    with_bodies = block_of([row for _, row in found])
    without = block_of_ids([row[:2] for _, row in found])

    assert with_bodies.length == without.length == len(found)
    for at, (message, _) in enumerate(found):
        assert with_bodies.id_at(at) == without.id_at(at) == message.id
        assert with_bodies.expires[at] == without.expires[at] == message.expires_ticks
    assert with_bodies.is_sound()


@given(STORED, st.integers(0, 10))
def test_what_has_expired_is_left_out(found: list[tuple[Message, Any]], now: int) -> None:
    live = block_of([row for _, row in found]).live(now)

    assert [live.id_at(at) for at in range(live.length)] == [
        message.id for message, _ in found if message.expires_ticks > now
    ]


@given(STORED, st.integers(0, 14), st.integers(0, 14))
def test_a_part_of_a_block_is_those_rows(found: list[tuple[Message, Any]], first: int, end: int) -> None:
    block = block_of([row for _, row in found])

    assert list(block.between(first, end).rows()) == list(block.rows())[first:end]


@given(stored())
def test_a_row_is_the_message_that_was_sealed(found: tuple[Message, Any]) -> None:
    message, row = found

    assert message_of([row]) == message
    assert message_of([]) is None


@pytest.mark.parametrize(
    ("column", "changed"),
    [
        (0, MessageId(5, tail_from_low(1 << 63)).bytes),
        (3, b"b/b"),
        (4, None),
        (5, b"hellp"),
        (6, {"a": b"2"}),
        (6, {"a b": b"1"}),
    ],
)
def test_a_row_that_is_not_what_was_sealed_is_no_message(column: int, changed: object) -> None:
    id_ = MessageId(4, tail_from_low(1 << 63))
    headers = {"a": b"1"}
    encoded = encode_headers(headers)
    checksum = checksum_of(id_, (b"a/b", b"k", encoded), b"hello")
    row: list[Any] = [id_.bytes, EPOCH_TICKS, checksum, b"a/b", b"k", b"hello", headers]
    assert message_of([tuple(row)]) == Message(*id_, EPOCH_TICKS, "a/b", "k", b"hello", encoded)

    row[column] = changed

    with pytest.raises(CorruptMessage):
        message_of([tuple(row)])


def test_headers_that_no_message_can_have_do_not_pass_for_none() -> None:
    id_ = MessageId(4, tail_from_low(1 << 63))
    checksum = checksum_of(id_, (b"a/b", b"k", None), b"hello")

    with pytest.raises(CorruptMessage):
        message_of([(id_.bytes, EPOCH_TICKS, checksum, b"a/b", b"k", b"hello", {"": b"1"})])
