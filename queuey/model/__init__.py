"""The values that travel between the layers. All are immutable."""

from __future__ import annotations

from queuey.model.columns import Alike, Bodies, Columns, Drafts, LocationsInOrder, Page, bytes_of, shifted
from queuey.model.messages import Appended, AppendRequest, Draft, Location, Message
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
    "Offset",
    "OffsetChange",
    "OffsetMove",
    "Page",
    "PartitionId",
    "PartitionState",
    "Queue",
    "QueueKind",
    "ReadRequest",
    "Span",
    "SpanCount",
    "bytes_of",
    "shifted",
]
