"""The values that travel between the layers. All are immutable."""

from __future__ import annotations

from queuey.model.columns import (
    Alike,
    Bodies,
    Columns,
    Drafts,
    LocationsInOrder,
    Page,
    bytes_of,
    shifted,
    size_of_headers,
)
from queuey.model.headers import MAX_HEADERS, MAX_HEADERS_BYTES, MessageHeaders, decode_headers, encode_headers
from queuey.model.messages import Appended, AppendRequest, Draft, Location, Message, Overwrite
from queuey.model.offsets import MAX_GENERATION, MAX_GENERATION_STEP, Offset, OffsetChange, OffsetMove
from queuey.model.values import (
    MAX_PARTITIONS,
    MAX_TTL_SECONDS,
    ApplicationKey,
    Consistency,
    IdempotencyKey,
    PartitionId,
    PartitionState,
    Queue,
    QueueKind,
    ReadRequest,
    Span,
    SpanCount,
)

__all__ = [
    "MAX_GENERATION",
    "MAX_GENERATION_STEP",
    "MAX_HEADERS",
    "MAX_HEADERS_BYTES",
    "MAX_PARTITIONS",
    "MAX_TTL_SECONDS",
    "Alike",
    "AppendRequest",
    "Appended",
    "ApplicationKey",
    "Bodies",
    "Columns",
    "Consistency",
    "Draft",
    "Drafts",
    "IdempotencyKey",
    "Location",
    "LocationsInOrder",
    "Message",
    "MessageHeaders",
    "Offset",
    "OffsetChange",
    "OffsetMove",
    "Overwrite",
    "Page",
    "PartitionId",
    "PartitionState",
    "Queue",
    "QueueKind",
    "ReadRequest",
    "Span",
    "SpanCount",
    "bytes_of",
    "decode_headers",
    "encode_headers",
    "shifted",
    "size_of_headers",
]
