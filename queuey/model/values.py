"""Queues, their partitions, spans of ids, and what can be asked of them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from queuey.ids import MAX_ID, ZERO_ID, MessageId

MAX_PARTITIONS = 200
"""Partitions of one queue; the numbers are 1..200."""
MAX_TTL_SECONDS = 1 << 25
"""388 days, the longest TTL of the v1 contract."""


class QueueKind(StrEnum):
    """Who may read without being named: nobody, or anybody."""

    USER = "user"
    PUBLIC = "public"


class Consistency(StrEnum):
    """How many replicas answer before an acknowledgement.

    A single embedded store makes no difference.
    """

    WEAK = "weak"
    STRONG = "strong"
    VERY_STRONG = "very_strong"


class PartitionId(NamedTuple):
    """One partition of one incarnation of a queue: the unit of order.

    The queue's uuid, not its name: a queue deleted and made anew shares nothing with its former self (G9).
    """

    queue: uuid.UUID
    number: int


@dataclass(frozen=True, slots=True)
class Queue:
    """A named list of messages in numbered partitions, and its settings."""

    application: str
    name: str
    uuid: uuid.UUID
    created_ticks: int
    partitions: int = 1
    kind: QueueKind = QueueKind.USER
    consistency: Consistency = Consistency.STRONG
    principals: tuple[str, ...] = ()
    """As given and in the order given; empty means that the owner reads."""

    def partition(self, number: int) -> PartitionId:
        return PartitionId(self.uuid, number)


class IdempotencyKey(NamedTuple):
    """An idempotency key and what it stands for (G7)."""

    key: str
    digest: bytes
    """Of all that was asked: another digest under the same key is refused."""


class Span(NamedTuple):
    """Ids ``after < id <= upto``.

    Spans that share an end join without gap or repeat (G5).
    """

    after: MessageId = ZERO_ID
    upto: MessageId = MAX_ID


class ReadRequest(NamedTuple):
    """What a page of one partition is to have."""

    partition: PartitionId
    span: Span
    limit: int
    """Messages, from 1 to 10,000."""
    newest_first: bool = False
    max_bytes: int = 4 << 20
    """The page ends before the body that would pass it, but has one message at least."""
    with_bodies: bool = True
    """False leaves body, content type and key out, unread and unchecked."""
    skip_corrupt: bool = False
    """Step over messages that do not match their checksum, and count them."""


class SpanCount(NamedTuple):
    """What lies in a span of one partition, without its messages."""

    newest: MessageId | None
    """The last id of the span, None of an empty one."""
    messages: int
    """Live messages, counted up to a limit."""
    more: bool
    """The limit was reached: there are more than were counted."""
    split_points: Sequence[MessageId]
    """Every n-th of the counted ids, in order: they cut the span into parts of n messages."""


class PartitionState(NamedTuple):
    """What lies in a partition now, expired messages not counted."""

    depth: int
    """Live messages, those due in the future included."""
    scheduled: int
    """Of these, how many are not yet due."""
    oldest: MessageId | None
    newest: MessageId | None


@dataclass(frozen=True, slots=True)
class ApplicationKey:
    """A key of an application or an operator as it is kept: never the key itself."""

    principal: str
    """Whom the key proves: ``app:NAME`` or ``operator:NAME``. Stores compare it and give it no meaning."""
    digest: bytes = field(repr=False)
    """SHA-256 of the key."""
    label: str
    """The first eight hex digits of the digest: enough to tell two keys apart, and no character of the key."""
    created_ticks: int
