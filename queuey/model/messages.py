"""Messages, one by one: as they are stored, and as they are to be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from queuey.ids import MessageId
from queuey.model.values import IdempotencyKey, Queue


class Message(NamedTuple):
    """A stored message. Flat, so that a database row becomes one without a loop."""

    ticks: int
    tail: int
    expires_ticks: int
    """Never returned from this instant on."""
    content_type: str | None
    """As the writer named it; None if it named none."""
    key: str | None
    """The key that chose its partition, None without one."""
    body: bytes

    @property
    def id(self) -> MessageId:
        return MessageId(self.ticks, self.tail)


class Draft(NamedTuple):
    """A message that has no id yet."""

    partition: int
    body: bytes
    ttl_seconds: int
    content_type: str | None = None
    key: str | None = None
    due_ticks: int | None = None
    """The moment it is to be readable from; None or a moment past means now."""
    idempotency: IdempotencyKey | None = None
    """This message's own idempotency key, within a batch."""


class AppendRequest(NamedTuple):
    """Messages of one request, stored whole or not at all in an embedded store (G2)."""

    queue: Queue
    drafts: Sequence[Draft]
    idempotency: IdempotencyKey | None = None
    """The whole request's idempotency key."""


class Location(NamedTuple):
    """Where a message of a known queue lies."""

    partition: int
    """Its number."""
    id: MessageId


class Appended(NamedTuple):
    """The outcome of an append: one location per draft, in their order."""

    placed: Sequence[Location]
    repeated: bool = False
    """True if earlier requests with the same idempotency keys had stored all of it; this one stored nothing."""
