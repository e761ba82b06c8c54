"""The values that travel between the layers. All are immutable."""

from __future__ import annotations

from queuey.model.columns import Alike, Bodies, Columns, Drafts, Page, PlacedInOrder, bytes_of, shifted
from queuey.model.messages import Appended, AppendRequest, Draft, Message, Placed
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
    Span,
    Survey,
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
    "Message",
    "Offset",
    "OffsetChange",
    "OffsetMove",
    "Page",
    "PartitionId",
    "PartitionState",
    "Placed",
    "PlacedInOrder",
    "Queue",
    "QueueKind",
    "Span",
    "Survey",
    "bytes_of",
    "shifted",
]
