"""Changes of a lease group come back from bytes as they were; what is no change is refused."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey.ids import ZERO_ID, MessageId
from queuey.model.holes import MOST_FAILURES, Hole, HoleBlock, HoleTable
from queuey.model.lease_codec import SingleStep, decode_change, decode_single, encode_change
from queuey.model.lease_state import NO_CHANGE, Change, FreshLeases, Renewal

numbers = st.integers(-(1 << 63), (1 << 63) - 1)
ids = st.builds(MessageId, st.integers(0, (1 << 60) - 1), numbers)
texts = st.text(st.characters(codec="utf-8"), max_size=8)
made = st.builds(
    Hole,
    ids,
    numbers,
    numbers,
    numbers,
    st.integers(0, (1 << 32) - 1),
    st.integers(0, MOST_FAILURES),
    st.integers(0, 255),
    texts,
    st.none() | texts,
)


def _leases(ids: list[tuple[int, int]], lease: tuple[int, int, int, str]) -> FreshLeases:
    visible_at, leased_at, flags, receiver = lease
    ticks, tails = (array("q", column) for column in zip(*ids, strict=True))
    return FreshLeases(ticks, tails, Hole(ZERO_ID, visible_at, leased_at, leased_at, 1, 0, flags, receiver))


leases = st.builds(
    _leases,
    st.lists(st.tuples(st.integers(0, 1 << 59), numbers), min_size=1, max_size=5)
    | st.lists(st.tuples(st.integers(1 << 50, (1 << 50) + 99), st.just(7)), min_size=1, max_size=5),
    st.tuples(numbers, numbers, st.integers(0, 255), texts),
)


def _block(after: MessageId, holes: list[Hole]) -> HoleBlock:
    table = HoleTable()
    for hole in holes:
        table.put(hole)
    return table.block(after)


blocks = st.builds(_block, ids, st.lists(made, max_size=5))
changes = st.builds(
    Change,
    st.none() | ids,
    st.lists(leases, max_size=3),
    holes=st.lists(made, max_size=5),
    closed=st.lists(ids, max_size=5),
    renewals=st.dictionaries(texts, st.builds(Renewal, numbers, numbers), max_size=3),
    reasons=st.dictionaries(ids, texts, max_size=3),
    skipped=st.dictionaries(texts, st.none() | ids, max_size=3),
    passed=st.just(()),
    dead=st.integers(0, 1 << 40),
    block=st.none() | blocks,
    base=st.none() | st.integers(0, 1 << 40),
)


@given(changes)
def test_a_change_comes_back_as_it_was(change: Change) -> None:
    assert decode_change(encode_change(change)) == change


def _as_change(single: SingleStep) -> Change:
    message_id, lease, closed = single
    fresh = FreshLeases(array("q", [message_id.ticks]), array("q", [message_id.tail]), lease)
    return Change(message_id, [fresh], closed=[] if closed is None else [closed])


_one_lease = st.builds(
    lambda message_id, lease, closed: (_leases([message_id], lease), message_id, closed),
    ids,
    st.tuples(numbers, numbers, st.integers(0, 255), texts),
    st.lists(ids, max_size=2),
)


@given(_one_lease)
def test_a_change_of_one_message_is_known_by_its_form(made: tuple[FreshLeases, MessageId, list[MessageId]]) -> None:
    fresh, frontier, closed = made
    change = Change(frontier, [fresh], closed=closed)
    found = decode_single(encode_change(change))
    assert (found is None) == (len(closed) > 1)
    assert found is None or _as_change(found) == change


@given(changes)
def test_no_other_change_is_taken_for_one_of_one_message(change: Change) -> None:
    encoded = encode_change(change)
    found = decode_single(encoded)
    assert found is None or _as_change(found) == change
    for end in range(1, len(encoded)):
        assert decode_single(encoded[:end]) is None


def test_leases_of_a_batch_take_no_more_than_one() -> None:
    hole = Hole(MessageId(0, 0), 1, 1, 1, 1, 0, 1, "worker")

    def size(number: int) -> int:
        fresh = FreshLeases(array("q", range(5, 5 + number)), array("q", [7]) * number, hole)
        return len(encode_change(Change(MessageId(4 + number, 7), [fresh])))

    assert size(1000) <= size(1) + 4 < 100, "one id has no number beside it"


@given(changes, st.data())
def test_a_part_of_a_change_is_refused(change: Change, data: st.DataObject) -> None:
    whole = encode_change(change)
    with pytest.raises(ValueError, match="not a change"):
        decode_change(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(ValueError, match="not a change"):
        decode_change(whole + b"\0")


@given(st.binary(max_size=60))
def test_what_is_no_change_is_refused_or_read(data: bytes) -> None:
    try:
        change = decode_change(data)
    except ValueError:
        return
    assert decode_change(encode_change(change)) == change


def test_no_change_is_one_byte() -> None:
    assert encode_change(NO_CHANGE) == b"\0"
    assert decode_change(b"\0") == NO_CHANGE._replace(
        fresh=[], renewals={}, reasons={}, skipped={}, holes=[], closed=[]
    )
