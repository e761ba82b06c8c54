"""The values that travel between the layers."""

from __future__ import annotations

import dataclasses
import inspect
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey import model
from queuey.ids import MAX_TICKS, MessageId, tail_from_low
from queuey.model import (
    Alike,
    Appended,
    AppendRequest,
    Columns,
    Consistency,
    Draft,
    Drafts,
    IdempotencyKey,
    Message,
    Page,
    PartitionId,
    PrincipalKey,
    Queue,
    QueueKind,
    Span,
)

QUEUE = Queue("app", "q", uuid.UUID(int=1), 7)
MESSAGE = Message(5, 6, 7, None, None, b"body")
KEY = PrincipalKey("app", b"\x01" * 32, "abcdef", 1)


def test_what_is_exported_is_what_is_there() -> None:
    parts = {name for name, value in vars(model).items() if inspect.ismodule(value)}
    offered = {name for name in vars(model) if not name.startswith("_")} - parts - {"annotations"}

    assert set(model.__all__) == offered
    assert len(model.__all__) == len(set(model.__all__))


@pytest.mark.parametrize(
    "value",
    [
        QUEUE,
        MESSAGE,
        KEY,
        Span(),
        Draft(1, b"", 1),
        Columns.of([MESSAGE]),
        Page([], more=False),
        Appended([]),
        AppendRequest(QUEUE, []),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_cannot_be_changed(value: Any) -> None:
    for name in getattr(value, "_fields", None) or [field.name for field in dataclasses.fields(value)]:
        with pytest.raises((AttributeError, dataclasses.FrozenInstanceError)):
            setattr(value, name, None)


def test_a_message_knows_its_id() -> None:
    assert MESSAGE.id == MessageId(5, 6)


def test_columns_are_the_messages_they_were_made_of() -> None:
    messages = [Message(ticks, 6, 7, "text/plain" if ticks else None, None, b"%d" % ticks) for ticks in range(4)]
    columns = Columns.of(messages)

    assert [*columns] == messages
    assert (len(columns), columns[1], columns[-1], [*columns[1:3]]) == (4, messages[1], messages[3], messages[1:3])
    assert columns.bodies == (b"0", b"1", b"2", b"3")
    assert Columns.of(columns) is columns
    assert [*Columns.of([])] == []
    assert Page(columns, more=False).size == Page(messages, more=False).size == 4


def test_drafts_by_column_are_like_a_list() -> None:
    drafts = [Draft(1, b"a", 5), Draft(2, b"b", 6, "text/plain", "k", 7, IdempotencyKey("o", b"d")), Draft(3, b"c", 8)]
    columns = Drafts.of(drafts)

    assert [*columns] == drafts
    assert [columns[at] for at in (0, 1, -1)] == [drafts[0], drafts[1], drafts[2]]
    assert [*columns[1:]] == drafts[1:]
    assert len(columns) == 3
    assert Drafts.of(columns) is columns
    assert all(isinstance(draft, Draft) for draft in columns)


@given(
    st.integers(0, 5),
    st.none() | st.integers(-6, 5),
    st.none() | st.integers(-6, 5),
    st.none() | st.sampled_from([1, 2, -1]),
)
def test_a_value_many_times_is_like_a_list(length: int, start: int | None, stop: int | None, step: int | None) -> None:
    values, plain = Alike("a", length), ["a"] * length

    assert [*values] == plain
    assert len(values) == length
    assert [*values[start:stop:step]] == plain[start:stop:step]
    assert (values.count("a"), values.count("b"), "b" in values) == (length, 0, False)
    assert values[:1] == Alike("a", min(length, 1))
    with pytest.raises(IndexError):
        values[length]
    if length:
        assert values[-1] == "a"


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), unique=True))
def test_messages_sort_by_their_ids(places: list[tuple[int, int]]) -> None:
    messages = [Message(ticks, tail, 0, None, None, b"") for ticks, tail in places]

    assert [message.id for message in sorted(messages)] == sorted(MessageId(*place) for place in places)


@given(st.integers(0, MAX_TICKS), st.integers(0, (1 << 62) - 1))
def test_a_span_is_everything_unless_it_says_less(ticks: int, low: int) -> None:
    id_ = MessageId(ticks, tail_from_low(0b10 << 62 | low))

    assert Span().after < id_ <= Span().upto


def test_a_partition_belongs_to_an_incarnation_not_to_a_name() -> None:
    """G9: made anew, the queue of the same name has other partitions."""
    anew = QUEUE._replace(uuid=uuid.UUID(int=2))

    assert QUEUE.partition(3) == PartitionId(uuid.UUID(int=1), 3)
    assert QUEUE.partition(3) != anew.partition(3)
    assert QUEUE.partition(1) != QUEUE.partition(2)


def test_a_queue_is_equal_only_with_all_its_settings() -> None:
    """Compare-and-set compares whole queues."""
    others = [
        QUEUE._replace(**change)
        for change in (
            {"partitions": 2},
            {"kind": QueueKind.PUBLIC},
            {"consistency": Consistency.WEAK},
            {"principals": ("app:a",)},
            {"created_ticks": 8},
        )
    ]

    assert all(other != QUEUE for other in others)
    assert QUEUE._replace() == QUEUE


def test_the_words_of_the_wire_are_the_values() -> None:
    assert [*QueueKind] == ["user", "public"]
    assert [*Consistency] == ["weak", "strong", "very_strong"]
    assert f"{QueueKind.USER} {Consistency.VERY_STRONG}" == "user very_strong"


def test_a_key_does_not_print_its_digest() -> None:
    assert "\\x01" not in repr(KEY)
    assert "digest" not in repr(KEY)
    assert "abcdef" in repr(KEY)
