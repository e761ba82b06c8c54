"""Single messages: as they are stored, and as they are to be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from queuey.ids import MessageId
from queuey.model.values import IdempotencyKey, Queue


class Message(NamedTuple):
    """A stored message.

    It is flat, so that a database row becomes one without a loop.
    """

    ticks: int
    tail: int
    expires_ticks: int
    """The message is never returned from this instant on."""
    content_type: str | None
    """As the writer named it; None if it named none."""
    key: str | None
    """The key that chose its partition; None without one."""
    body: bytes
    headers: bytes | None = None
    """Encoded, see :mod:`queuey.model.headers`; None without any."""

    @property
    def id(self) -> MessageId:
        return MessageId(self.ticks, self.tail)

    @property
    def size(self) -> int:
        """Bytes of the body and the headers."""
        return len(self.body) + (len(self.headers) if self.headers else 0)


class Draft(NamedTuple):
    """A message that has no id yet."""

    partition: int
    body: bytes
    ttl_seconds: int
    content_type: str | None = None
    key: str | None = None
    due_ticks: int | None = None
    """The moment from which it is readable; None or a moment in the past means now."""
    idempotency: IdempotencyKey | None = None
    """This message's own idempotency key, within a batch."""
    headers: bytes | None = None
    """Encoded, see :mod:`queuey.model.headers`; None without any."""


class Overwrite(NamedTuple):
    """A message to write by id, in place of any message there."""

    body: bytes
    ttl_seconds: int
    """Counted from now, or from the id's moment if that is later."""
    content_type: str | None = None
    key: str | None = None
    headers: bytes | None = None
    """Encoded, see :mod:`queuey.model.headers`; None without any."""


class AppendRequest(NamedTuple):
    """Messages of one request. An embedded store stores all of them or none (G2)."""

    queue: Queue
    drafts: Sequence[Draft]
    idempotency: IdempotencyKey | None = None
    """The idempotency key of the whole request."""
    is_bulk: bool = False
    """The caller's thread has time to prepare the messages for the store. The event loop's has none."""


class Location(NamedTuple):
    """Where a message of a known queue lies."""

    partition: int
    """The partition's number."""
    id: MessageId


class Appended(NamedTuple):
    """The outcome of an append: one location per draft, in their order."""

    placed: Sequence[Location]
    repeated: bool = False
    """True if earlier requests with the same idempotency keys had stored all messages; this one stored nothing."""
