"""Rows that are encoded here are, byte for byte, what the driver would have sent."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from cassandra.cqltypes import BytesType, Int32Type, LongType, TimeUUIDType, UUIDType
from cassandra.protocol import BatchMessage, ProtocolHandler
from cassandra.query import UNSET_VALUE, BatchStatement, BatchType, PreparedStatement
from hypothesis import given
from hypothesis import strategies as st

from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND, MessageId, tail_from_low
from queuey.model import PartitionId
from queuey.storage.cassandra.buckets import Bucket
from queuey.storage.cassandra.raw_batches import EncodedBatch, EncodedHandler
from queuey.storage.cassandra.rows import RowEncoder, partition_key_of
from queuey.storage.checksums import checksum_of

KEYSPACE = "k"
QUERY_ID = b"\x17" * 16
SPARE_SECONDS = 60
_COLUMNS = {
    "queue": UUIDType,
    "part": Int32Type,
    "bucket": LongType,
    "id": TimeUUIDType,
    "expires": LongType,
    "checksum": LongType,
    "content_type": BytesType,
    "key": BytesType,
    "body": BytesType,
    "[ttl]": Int32Type,
    "[timestamp]": LongType,
}


class Column:
    """What the driver knows of a value that a statement takes."""

    def __init__(self, name: str, kind: Any) -> None:
        self.keyspace_name, self.table_name, self.name, self.type = KEYSPACE, "messages", name, kind


INSERT = PreparedStatement(
    [Column(name, kind) for name, kind in _COLUMNS.items()], QUERY_ID, [0, 1, 2], "insert ...", KEYSPACE, 5, None, None
)
IDS = st.builds(
    MessageId,
    st.integers(EPOCH_TICKS, EPOCH_TICKS + TICKS_PER_SECOND * 366 * 86_400),
    st.integers(0, (1 << 62) - 1).map(lambda low: tail_from_low(1 << 63 | low)),
)
TEXTS = st.none() | st.text(max_size=20)
DRAFTS = st.tuples(IDS, st.integers(1, 1 << 25), TEXTS, TEXTS, st.binary(max_size=300))


def sent(handler: Any, statement: Any) -> bytes:
    """A batch as it goes over the wire."""
    message = BatchMessage(
        statement.batch_type, statement._statements_and_parameters, 4, None, 1_234_567, statement.keyspace
    )
    message.tracing, message.custom_payload = False, None
    raw: bytes = handler.encode_message(
        message, 7, protocol_version=5, compressor=None, allow_beta_protocol_version=False
    )
    return raw


@given(
    st.uuids(),
    st.integers(1, 200),
    st.integers(0, 3),
    st.lists(DRAFTS, min_size=1, max_size=5),
    st.integers(0, 1 << 52),
    st.booleans(),
)
def test_a_batch_of_encoded_rows_is_the_drivers(
    queue: UUID, number: int, level: int, drafts: list[Any], write_time: int, over: bool
) -> None:
    now = drafts[0][0].ticks
    bucket = Bucket.at(level, now)
    partition_key = partition_key_of(QUERY_ID, PartitionId(queue, number), bucket)
    rows, theirs = [], BatchStatement(BatchType.UNLOGGED)
    for id_, ttl, content_type, key, body in drafts:
        expires = id_.ticks + ttl * TICKS_PER_SECOND
        encoder = RowEncoder(now, write_time, over=over)
        rows.append(encoder.row(partition_key, id_, expires, content_type, key, body))
        kind, keyed = (None if text is None else text.encode() for text in (content_type, key))
        nothing = None if over else UNSET_VALUE
        theirs.add(
            INSERT,
            (
                queue,
                number,
                bucket.number,
                id_.uuid,
                expires,
                checksum_of(id_.ticks, id_.tail, kind, keyed, body),
                nothing if kind is None else kind,
                nothing if keyed is None else keyed,
                body,
                (expires - now) // TICKS_PER_SECOND + SPARE_SECONDS,
                write_time,
            ),
        )

    ours = EncodedBatch(rows, partition_key.routing_key, KEYSPACE)

    assert sent(EncodedHandler, ours) == sent(ProtocolHandler, theirs)
    assert ours.routing_key == theirs.routing_key
    assert ours.is_idempotent


def test_other_statements_are_left_to_the_driver() -> None:
    batch = BatchStatement(BatchType.UNLOGGED)
    batch.add("select 1")

    assert sent(EncodedHandler, batch) == sent(ProtocolHandler, batch)
