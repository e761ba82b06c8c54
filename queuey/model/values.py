"""Queues, their partitions, spans of ids, and requests about them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from queuey.ids import MAX_ID, ZERO_ID, MessageId
from queuey.model.lease_groups import NO_DEFAULTS, LeaseDefaults

MAX_PARTITIONS = 200
"""Partitions of one queue; their numbers are 1..200."""
DEFAULT_TTL_SECONDS = 259_200
"""Three days, the TTL of a message that names none."""
MAX_TTL_SECONDS = 1 << 25
"""388 days, the longest TTL of the v1 contract."""


class QueueKind(StrEnum):
    """Whether callers that are not named as readers may read: none of them, or all."""

    USER = "user"
    PUBLIC = "public"


class Consistency(StrEnum):
    """How many replicas answer before an acknowledgement.

    A single embedded store makes no difference between the levels.
    """

    WEAK = "weak"
    STRONG = "strong"
    VERY_STRONG = "very_strong"

    @property
    def at_least_strong(self) -> Consistency:
        """For a read after which something is gone: no single replica decides that."""
        return Consistency.STRONG if self is Consistency.WEAK else self


class Retention(StrEnum):
    """How long a message stays: until its TTL ends, or until each lease group has settled it, if that is sooner."""

    TTL = "ttl"
    ACKNOWLEDGED = "acknowledged"


class PartitionId(NamedTuple):
    """One partition of one incarnation of a queue: the unit of order.

    It has the queue's uuid, not its name: a queue that is deleted and made again shares nothing with its former self
    (G9).
    """

    queue: uuid.UUID
    number: int


class Queue(NamedTuple):
    """A named list of messages in numbered partitions, and its settings."""

    application: str
    name: str
    uuid: uuid.UUID
    created_ticks: int
    partitions: int = 1
    kind: QueueKind = QueueKind.USER
    consistency: Consistency = Consistency.STRONG
    principals: tuple[str, ...] = ()
    """As given and in the order given; if there are none, the owner reads."""
    leases: LeaseDefaults = NO_DEFAULTS
    retention: Retention = Retention.TTL
    attributes: str = ""
    """What the SQS door keeps with a queue, as JSON; empty if its clients have neither made nor changed it."""

    def partition(self, number: int) -> PartitionId:
        return PartitionId(self.uuid, number)


IDEMPOTENCY_SECONDS = 24 * 3600
"""How long an idempotency key is remembered, counted from the append that stored its messages (G7)."""


class IdempotencyKey(NamedTuple):
    """An idempotency key, and the request that it stands for (G7)."""

    key: str
    digest: bytes
    """The digest of the whole request: another digest under the same key is refused."""
    seconds: int = IDEMPOTENCY_SECONDS
    """How long the outcome is kept."""


class Span(NamedTuple):
    """Ids ``after < id <= upto``.

    Spans that share an end join without gap or overlap (G5).
    """

    after: MessageId = ZERO_ID
    upto: MessageId = MAX_ID


class ReadRequest(NamedTuple):
    """A request for a page of one partition."""

    partition: PartitionId
    span: Span
    limit: int
    """Messages, from 1 to 10,000."""
    newest_first: bool = False
    max_bytes: int = 4 << 20
    """Bytes. The page ends before the body that would exceed it, but has at least one message."""
    with_bodies: bool = True
    """False leaves out body, content type and key, unread and unchecked."""
    skip_corrupt: bool = False
    """Skip messages that do not match their checksum, and count them."""


class SpanCount(NamedTuple):
    """What a span of one partition holds, without its messages."""

    newest: MessageId | None
    """The last id of the span; None if it is empty."""
    messages: int
    """Live messages, counted up to a limit."""
    more: bool
    """The limit was reached: there are more messages than were counted."""
    split_points: Sequence[MessageId]
    """Every n-th of the counted ids, in order: they split the span into parts of n messages."""


class SpanRemoval(NamedTuple):
    """What was removed of a span."""

    messages: int
    """How many messages, those that had expired included."""
    upto: MessageId
    """No message of the span up to this id is left; the end of the span if all of it is done."""


class PartitionState(NamedTuple):
    """What a partition holds now; expired messages do not count."""

    depth: int
    """Live messages, those due in the future included."""
    scheduled: int
    """Live messages that are not yet due."""
    oldest: MessageId | None
    newest: MessageId | None
    bytes: int
    """Bytes of the live messages' bodies."""


EMPTY_PARTITION = PartitionState(0, 0, None, None, 0)


@dataclass(frozen=True, slots=True)
class PrincipalKey:
    """What is stored of a key that proves a principal. It is never the key itself."""

    principal: str
    """An application or an operator: ``app:NAME`` or ``operator:NAME``. Stores compare it and give it no meaning."""
    digest: bytes = field(repr=False)
    """SHA-256 of the key; of an access key its marked id, also 32 bytes."""
    label: str
    """The first eight hex digits of the digest: enough to distinguish two keys, and no character of the key. Of an
    access key its id."""
    created_ticks: int
