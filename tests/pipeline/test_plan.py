"""From spans to tasks, checked against what is plain and slow."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdo.pipeline.checkpoint import QueueOffset, from_json, to_json
from qdo.pipeline.spans import Bounds, Part, folded, packed, shares, until_text
from queuey.errors import ConfigurationError
from queuey.ids import EPOCH_TICKS, MAX_ID, ZERO_ID, MessageId, tail_from_low

TAIL = tail_from_low(0b10 << 62 | 1 << 40 | 5)
MICROS = st.integers(0, 40)
TICKS = st.builds(lambda micros, rest: EPOCH_TICKS + micros * 10 + rest, MICROS, st.integers(0, 9))
KINDS = {
    "EqualTo": lambda a, b: a == b,
    "LessThan": lambda a, b: a < b,
    "LessThanOrEqual": lambda a, b: a <= b,
    "GreaterThan": lambda a, b: a > b,
    "GreaterThanOrEqual": lambda a, b: a >= b,
}


def id_at(ticks: int) -> MessageId:
    return MessageId(ticks, TAIL)


def shown(ticks: int) -> datetime:
    """The column ``timestamp`` of an id."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=(ticks - EPOCH_TICKS) // 10)


@given(st.lists(st.tuples(st.sampled_from(sorted(KINDS)), MICROS), max_size=4), st.lists(TICKS, max_size=30))
def test_filters_on_time_take_what_spark_would_take(filters: list[tuple[str, int]], ticks: list[int]) -> None:
    bounds = Bounds()
    for kind, micros in filters:
        narrower = bounds.narrowed(kind, "timestamp", shown(EPOCH_TICKS + micros * 10))
        assert narrower is not None
        bounds = narrower

    taken = [] if bounds.empty else [t for t in ticks if bounds.after < id_at(t) <= bounds.upto]

    wanted = [t for t in ticks if all(KINDS[kind](shown(t), shown(EPOCH_TICKS + m * 10)) for kind, m in filters)]
    assert taken == wanted


@pytest.mark.parametrize(
    ("kind", "column", "value"),
    [
        ("LessThan", "message_id", id_at(5).hex),
        ("In", "message_id", (id_at(5).hex, id_at(6).hex)),
        ("StringContains", "queue", "x"),
        ("LessThan", "partition", 3),
        ("EqualTo", "body", b"x"),
        ("EqualTo", "timestamp", "2026"),
        ("In", "timestamp", (shown(EPOCH_TICKS),)),
        ("EqualTo", "queue", None),
        ("IsNotNull", "key", None),
        ("IsNull", "queue", None),
    ],
)
def test_what_the_server_cannot_do_alike_is_left_to_spark(kind: str, column: str, value: Any) -> None:
    assert Bounds().narrowed(kind, column, value) is None


def test_queues_partitions_and_ids_narrow() -> None:
    bounds = Bounds()
    for kind, column, value in (
        ("In", "queue", ("a.x", "a.y", "b")),
        ("StringStartsWith", "queue", "a."),
        ("EqualTo", "partition", 2),
        ("In", "message_id", (id_at(EPOCH_TICKS + 7).hex, "no id", None)),
        ("IsNotNull", "message_id", None),
    ):
        narrower = bounds.narrowed(kind, column, value)
        assert narrower is not None
        bounds = narrower

    assert [name for name in ("a.x", "a.z", "b") if bounds.has_queue(name)] == ["a.x"]
    assert [number for number in (1, 2, 3) if bounds.has_partition(number)] == [2]
    assert bounds.upto == id_at(EPOCH_TICKS + 7)
    assert bounds.after == id_at(EPOCH_TICKS + 7).before()
    assert not bounds.empty


@pytest.mark.parametrize("value", ["no id", id_at(0xABC).hex.upper(), ""])
def test_an_id_that_no_message_shows_wants_nothing(value: str) -> None:
    narrower = Bounds().narrowed("EqualTo", "message_id", value)

    assert narrower is not None
    assert narrower.empty


def test_an_upper_end_has_a_wire_form() -> None:
    assert until_text(MAX_ID) is None
    assert until_text(id_at(EPOCH_TICKS + 5)) == id_at(EPOCH_TICKS + 5).hex
    assert until_text(MessageId.last_of(EPOCH_TICKS + 12_345_678)) == "1.2345678"


def part(messages: int | None, number: int = 1) -> Part:
    return Part("q", "0" * 32, number, ZERO_ID, id_at(10_000), messages)


@given(st.integers(1, 200), st.integers(1, 50))
def test_a_cut_span_joins_again(messages: int, rows: int) -> None:
    ids = [id_at(100 + number) for number in range(messages)]
    whole = Part("q", "0" * 32, 1, ZERO_ID, ids[-1], messages)

    cut = whole.cut(ids[rows - 1 :: rows], rows)

    assert cut[0].after == ZERO_ID
    assert cut[-1].upto == ids[-1]
    assert all(one.upto == other.after for one, other in pairwise(cut))
    assert [piece.messages for piece in cut] == [sum(p.after < id_ <= p.upto for id_ in ids) for p in cut]
    assert max(piece.messages or 0 for piece in cut) <= rows


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=40), st.integers(1, 60))
def test_folding_loses_no_part_and_makes_no_more_tasks(sizes: list[int], tasks: int) -> None:
    parts = [part(size, number) for number, size in enumerate(sizes, 1)]

    found = folded(parts, tasks)

    assert sorted(p.partition for task in found for p in task) == list(range(1, len(sizes) + 1))
    assert len(found) == min(tasks, len(sizes))
    assert all(found)


def test_small_parts_are_packed_and_unknown_ones_alone() -> None:
    parts = [part(10, number) for number in range(1, 101)] + [part(None, 200)]

    found = packed(parts, rows=250)

    assert sorted(sum(p.messages or 0 for p in task) for task in found) == [0, 250, 250, 250, 250]


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=20), st.integers(1, 5_000))
def test_shares_keep_to_the_limit_and_leave_nobody_behind(waiting: list[int], limit: int) -> None:
    found = shares(waiting, limit)

    assert all(0 <= share <= there for share, there in zip(found, waiting, strict=True))
    assert all(share for share, there in zip(found, waiting, strict=True) if there)
    assert sum(found) <= max(limit, sum(1 for there in waiting if there))


IDS = st.builds(lambda ticks: id_at(EPOCH_TICKS + ticks), st.integers(0, 1 << 50))


@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=3),
        st.builds(QueueOffset, st.just("ab" * 16), st.dictionaries(st.integers(1, 200), IDS, max_size=5)),
    )
)
def test_offsets_are_one_text_and_come_back(offsets: dict[str, QueueOffset]) -> None:
    told = to_json(offsets)

    assert from_json(json.loads(json.dumps(told))) == offsets
    turned = {
        name: QueueOffset(offset.incarnation, dict(sorted(offset.ids.items(), reverse=True)))
        for name, offset in sorted(offsets.items(), reverse=True)
    }
    assert json.dumps(to_json(turned)) == json.dumps(told)


def test_offsets_of_version_1_are_read_for_ever() -> None:
    text = (Path(__file__).parent / "offsets-v1.json").read_text()

    found = from_json(json.loads(text))

    assert {name: sorted(offset.ids) for name, offset in found.items()} == {"orders": [1, 12], "mail": []}
    assert found["orders"].at(12).hex == "e35ab94de5f911f1af819b18525ec967"
    assert found["orders"].at(2) == ZERO_ID
    assert json.dumps(to_json(found), indent=2) + "\n" == text


def test_offsets_of_another_version_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="version 2"):
        from_json({"v": 2, "queues": {}})
