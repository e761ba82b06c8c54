"""Columns made at once are what a message by itself would have."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import IntegerType, MapType, StringType, StructField, StructType

from qdo.pipeline.rows import BATCH_ROWS, COLUMNS, DEFAULT_COLUMNS, Rows, check_schema, schema_text
from queuey.errors import BadRequest, ConfigurationError
from queuey.ids import EPOCH_TICKS, MAX_TICKS, MessageId, tail_from_low

IDS = st.builds(
    lambda ticks, low: MessageId(ticks, tail_from_low(0b10 << 62 | low)),
    st.integers(EPOCH_TICKS, min(MAX_TICKS, EPOCH_TICKS + 2**56)),
    st.integers(0, (1 << 62) - 1),
)
MESSAGES = st.lists(st.tuples(IDS, st.binary(min_size=1, max_size=9)), min_size=1, max_size=30)


def sent(messages: list[tuple[MessageId, bytes]]) -> pa.RecordBatch:
    return pa.record_batch(
        [
            pa.array([id_.bytes for id_, _ in messages], pa.binary(16)),
            pa.array([body for _, body in messages], pa.binary()),
        ],
        names=["id", "body"],
    )


@given(MESSAGES, st.integers(0, 3))
def test_a_batch_has_each_message(messages: list[tuple[MessageId, bytes]], skipped: int) -> None:
    rows = Rows(["body", "message_id", "queue", "timestamp", "partition"], text_bodies=False)

    batch = rows.batch(sent(messages).slice(skipped), "q", 7)

    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert rows.sent == ("id", "body")
    assert [tuple(row.values()) for row in batch.to_pylist()] == [
        (body, id_.hex, "q", epoch + timedelta(microseconds=(id_.ticks - EPOCH_TICKS) // 10), 7)
        for id_, body in messages[skipped:]
    ]
    kinds = [pa.binary(), pa.string(), pa.string(), pa.timestamp("us", tz="UTC"), pa.int32()]
    assert batch.schema.types == kinds


@given(st.lists(st.tuples(st.sampled_from(["q", "r"]), st.integers(1, 2), st.integers(1, 40)), max_size=9))
def test_what_is_the_same_in_a_batch_is_that_of_its_own_partition(given: list[tuple[str, int, int]]) -> None:
    rows = Rows(["partition", "queue"], text_bodies=False)
    id_ = MessageId(EPOCH_TICKS, tail_from_low(0b10 << 62))

    found = [rows.batch(sent([(id_, b"x")] * size), queue, partition).to_pylist() for queue, partition, size in given]

    assert found == [[{"partition": partition, "queue": queue}] * size for queue, partition, size in given]


@given(st.lists(st.integers(1, 5_000), max_size=8))
def test_small_batches_are_put_together_and_none_is_lost(sizes: list[int]) -> None:
    id_ = MessageId(EPOCH_TICKS, tail_from_low(0b10 << 62))
    batches = [sent([(id_, b"x")] * size) for size in sizes]

    found = list(Rows(["message_id"], text_bodies=False).batches(iter(batches), "q", 1))

    assert sum(batch.num_rows for batch in found) == sum(sizes)
    assert all(batch.num_rows >= BATCH_ROWS for batch in found[:-1])


def test_text_bodies_are_text_or_named() -> None:
    ids = [MessageId(EPOCH_TICKS + n, tail_from_low(0b10 << 62)) for n in (1, 2)]
    rows = Rows(["body"], text_bodies=True)

    assert rows.batch(sent([(ids[0], "ä".encode())]), "q", 1).to_pylist() == [{"body": "ä"}]
    with pytest.raises(BadRequest, match=ids[1].hex):
        rows.batch(sent([(ids[0], b"fine"), (ids[1], b"\xff")]), "q", 1)


def test_the_schema_names_all_columns_or_those_wanted() -> None:
    assert schema_text() == ", ".join(f"{name} {COLUMNS[name]}" for name in DEFAULT_COLUMNS)
    assert schema_text(["body", "headers"]) == "body binary, headers map<string,binary>"
    assert schema_text(["key"]) == "key string"
    with pytest.raises(ConfigurationError, match="'size'"):
        schema_text(["size"])


@pytest.mark.parametrize(
    "field",
    [
        StructField("size", IntegerType()),
        StructField("partition", StringType()),
        StructField("body", IntegerType()),
        StructField("headers", MapType(StringType(), StringType())),
    ],
)
def test_another_schema_is_refused_with_the_columns_there_are(field: StructField) -> None:
    with pytest.raises(ConfigurationError, match="there are queue string"):
        check_schema(StructType([StructField("message_id", StringType()), field]))
