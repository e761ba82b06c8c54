"""Single messages: as they are stored, and as they are to be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from queuey.errors import InvalidParameter
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


class HasKey(Protocol):
    """What a store knows of a message that may be overwritten."""

    @property
    def key(self) -> str | None: ...


class Overwrite(NamedTuple):
    """A message to write by id, in place of any message there."""

    body: bytes
    ttl_seconds: int
    """Counted from now, or from the id's moment if that is later."""
    content_type: str | None = None
    key: str | None = None
    """None keeps the key of a message that is there, if it has one."""
    headers: bytes | None = None
    """Encoded, see :mod:`queuey.model.headers`; None without any."""

    def keys_over(self, wanted: Sequence[Location], found: Sequence[HasKey | None]) -> list[str | None]:
        """The key of the message that this makes at each place: a message that is there keeps its own.

        A lease group with ``"order":"key"`` remembers of the messages that wait only their keys (docs/decisions/042).

        :param found: the live message at each place; None where there is none.
        :raises InvalidParameter: a message that is there has another key, or none.
        """
        keys = []
        for (number, id_), there in zip(wanted, found, strict=True):
            if there is not None and self.key is not None and there.key != self.key:
                has = "has no key" if there.key is None else "has another key"
                raise InvalidParameter(
                    problems={
                        "key": f"message {number}:{id_.hex} {has}, and a message keeps what it has: name no key, or delete "
                        "the message first; nothing is stored"
                    }
                )
            keys.append(self.key if there is None else there.key)
        return keys


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
