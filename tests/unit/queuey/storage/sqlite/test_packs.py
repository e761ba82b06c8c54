"""Packs: what goes in comes out, and nothing that was changed in between passes for what went in."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey.ids import MAX_ID, ZERO_ID, MessageId
from queuey.model import Alike, Bodies, Columns, Location, LocationsInOrder, Message, Span
from queuey.storage.sqlite import packs
from queuey.storage.sqlite.packs import PackHead, Piece, cut, packed, read_head, read_rest, taken_from

_NAMES = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
_SIGNED = st.integers(-(1 << 63), (1 << 63) - 1)
_IDS = st.builds(MessageId, st.integers(0, (1 << 60) - 1), _SIGNED)


def _messages(ids: Sequence[MessageId], draw: st.DataObject) -> list[Message]:
    def rest() -> tuple[int, str | None, str | None, bytes, bytes | None]:
        return draw.draw(st.tuples(_SIGNED, _NAMES, _NAMES, st.binary(max_size=20), st.none() | st.binary(max_size=9)))

    return [Message(ticks, tail, *rest()) for ticks, tail in sorted(ids)]


@given(st.lists(_IDS, min_size=1, max_size=12, unique=True), st.data())
def test_a_pack_has_the_messages_it_was_made_of(ids: list[MessageId], draw: st.DataObject) -> None:
    messages = _messages(ids, draw)
    head_piece, rest = packed(Columns.of(messages))

    head = read_head(head_piece)
    assert head is not None
    chosen = sorted(draw.draw(st.sets(st.integers(0, len(messages) - 1), min_size=1)))
    for wanted in (range(len(messages)), chosen, range(chosen[0], chosen[-1] + 1)):
        columns, damaged = read_rest(head, rest, wanted)
        assert [*columns] == [messages[at] for at in wanted]
        assert columns.size == sum(messages[at].size for at in wanted)
        assert not damaged


@given(st.integers(0, 1 << 60), st.integers(1, 200), st.integers(1, 300), _SIGNED)
def test_a_pack_of_a_batch_is_the_one_of_its_messages(first: int, step: int, count: int, tail: int) -> None:
    ticks = range(first, first + count * step, step)
    nothing = Alike(None, count)
    bodies = [b"%d" % number for number in range(count)]
    columns = Columns(
        ticks, Alike(tail, count), range(first + 7, first + 7 + count * step, step), nothing, nothing, bodies, nothing
    )

    assert packed(columns) == packed(Columns.of([*columns]))


@given(st.lists(_IDS, min_size=1, max_size=5, unique=True), st.data())
def test_a_flipped_bit_changes_no_message_unnoticed(ids: list[MessageId], draw: st.DataObject) -> None:
    """G6."""
    messages = _messages(ids, draw)
    head_piece, rest = packed(Columns.of(messages))
    bit = draw.draw(st.integers(0, 8 * (len(head_piece.data) + len(rest.data)) - 1))

    damaged_head, damaged_rest = _flipped(head_piece, bit), _flipped(rest, bit - 8 * len(head_piece.data))

    head = read_head(head_piece)
    assert head is not None
    if damaged_head != head_piece:
        assert read_head(damaged_head) is None
        return
    columns, damaged = read_rest(head, damaged_rest, range(len(messages)))
    assert [*columns] == [message for message in messages if message.id not in damaged]


@given(st.lists(_IDS, min_size=1, max_size=5, unique=True), st.data())
def test_a_damaged_checksum_names_one_message(ids: list[MessageId], draw: st.DataObject) -> None:
    messages = _messages(ids, draw)
    head_piece, rest = packed(Columns.of(messages))
    head, doomed = read_head(head_piece), draw.draw(st.sampled_from(range(len(messages))))
    assert head is not None

    columns, damaged = read_rest(head, _flipped(rest, 8 * (16 + 4 * doomed)), range(len(messages)))

    assert [*damaged] == [messages[doomed].id]
    assert [*columns] == [message for at, message in enumerate(messages) if at != doomed]


@given(st.lists(_IDS, min_size=2, max_size=12, unique=True), st.data())
def test_the_rest_of_another_pack_passes_for_no_message_that_was_another(
    ids: list[MessageId], draw: st.DataObject
) -> None:
    """G6: as pages of the file that have changed places would give it."""
    messages = _messages(ids, draw)
    half = len(messages) // 2
    (this, rest), (_, other) = packed(Columns.of(messages[:half])), packed(Columns.of(messages[half : 2 * half]))
    head = read_head(this)
    assert head is not None

    columns, damaged = read_rest(head, Piece(other.data, rest.crc), range(half))

    assert [*columns] == [message for message in messages[:half] if message.id not in damaged]  # as they were, if any


def _flipped(piece: Piece, bit: int) -> Piece:
    if not 0 <= bit < 8 * len(piece.data):
        return piece
    data = bytearray(piece.data)
    data[bit // 8] ^= 1 << bit % 8
    return piece._replace(data=bytes(data))


@pytest.mark.parametrize("rest", [b"", b"\0" * 12, b"\xff" * 200, b"\x02\0\0\0" + b"\xff" * 100, 5, None])
def test_of_what_is_no_pack_all_is_told_damaged(rest: bytes) -> None:
    messages = [Message(1, 1, 1, None, None, b"a"), Message(2, 1, 1, None, None, b"b")]
    head = read_head(packed(Columns.of(messages))[0])
    assert head is not None

    columns, damaged = read_rest(head, Piece(rest, 0), range(2))

    assert [*columns] == []
    assert [*damaged] == [message.id for message in messages]


@given(st.lists(st.integers(0, 60), min_size=1, max_size=40))
def test_runs_are_all_messages_and_none_is_too_large(sizes: list[int]) -> None:
    columns = Columns.of([Message(at, 0, 0, None, None, b"x" * size) for at, size in enumerate(sizes)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packs, "MOST", 7)
        patch.setattr(packs, "MOST_BYTES", 100)
        runs = [*cut(columns)]

    assert [message for run in runs for message in run] == [*columns]
    assert all(1 <= len(run) <= 7 and (run.size <= 100 or len(run) == 1) for run in runs)


@given(st.lists(_IDS, min_size=1, max_size=9, unique=True), _IDS, _IDS)
def test_a_head_tells_what_lies_in_a_span(ids: list[MessageId], one: MessageId, other: MessageId) -> None:
    ids.sort()
    head = PackHead([id_.ticks for id_ in ids], [id_.tail for id_ in ids], [0] * len(ids))

    for span in (Span(one, other), Span(ZERO_ID, one), Span(other, MAX_ID)):
        assert [ids[at] for at in head.inside(span)] == [id_ for id_ in ids if span.after < id_ <= span.upto]


def test_bodies_in_one_piece_are_like_a_list() -> None:
    bodies = Bodies(b"..abcdef", [0, 1, 1, 4, 6], 2)
    plain = [b"a", b"", b"bcd", b"ef"]

    assert [*bodies] == plain
    assert [bodies[at] for at in range(-4, 4)] == plain * 2
    assert [[*bodies[at : at + 2]] for at in range(4)] == [plain[at : at + 2] for at in range(4)]
    assert bodies[::-1] == plain[::-1]
    part, none = bodies[1:3], bodies[9:]
    assert isinstance(part, Bodies)
    assert isinstance(none, Bodies)
    assert [*Bodies.joined([part, bodies, none])] == [*plain[1:3], *plain]
    assert (bodies.size, part.size, none.size, len(none)) == (6, 3, 0, 0)
    with pytest.raises(IndexError):
        bodies[4]


def test_what_was_stamped_in_order_is_where_each_went() -> None:
    placed = LocationsInOrder(MessageId(100, 7), bytes([3, 200, 3]))
    plain = [Location(3, MessageId(100, 7)), Location(200, MessageId(101, 7)), Location(3, MessageId(102, 7))]

    assert [*placed] == plain
    assert (placed[0], placed[-1], placed[1:]) == (plain[0], plain[-1], plain[1:])
    with pytest.raises(IndexError):
        placed[3]


def test_chosen_messages_are_taken_from_columns() -> None:
    columns = Columns.of([Message(at, 0, 0, None, None, b"%d" % at) for at in range(5)])

    for chosen in ([], [3], [0, 4], range(1, 3), range(5)):
        assert [message.ticks for message in taken_from(columns, chosen)] == [*chosen]
