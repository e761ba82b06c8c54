"""What the client takes and returns.

They are small frozen values, each with its wire form.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from qdo.client.given import check_mapping
from qdo.client.moments import moment_to_wire
from queuey.errors import InvalidParameter, QueueyError
from queuey.ids import MessageId
from queuey.model import encode_headers, header_to_json

__all__ = [
    "Appended",
    "ChangedQueues",
    "GroupOffset",
    "HasLocation",
    "Message",
    "NewMessage",
    "NewToken",
    "Page",
    "QueueSettings",
    "SpanCount",
    "SpanCounts",
    "StreamEnd",
]

JSON_TYPE = "application/json"
BATCH_TYPE = "application/vnd.queuey.batch+json"
Json = Mapping[str, Any]


class HasLocation(Protocol):
    """Anything that knows its partition and id.

    Examples are :class:`Message` and :class:`Appended`.
    """

    @property
    def partition(self) -> int: ...

    @property
    def id(self) -> MessageId: ...


def check_body(body: Any) -> bytes | str:
    """A body as it is sent.

    The HTTP library would silently convert values of other types.

    >>> check_body({"a": 1})
    Traceback (most recent call last):
    queuey.errors.InvalidParameter: body: a dict is no body: give text or bytes; for JSON there are append(json=) and NewMessage.of_json

    :raises InvalidParameter: it is neither bytes nor text.
    """
    if isinstance(body, str | bytes):
        return body
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    kind = type(body).__name__
    raise InvalidParameter(
        problems={
            "body": f"a {kind} is no body: give text or bytes; for JSON there are append(json=) and NewMessage.of_json"
        }
    )


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to be stored."""

    body: bytes | str
    ttl_seconds: int | None = None
    """None for the server's default, three days."""
    partition: int | None = None
    """None for a random one, or that of the key."""
    key: str | None = None
    """Messages of one key share a partition. Not together with ``partition``."""
    delay_seconds: float | None = None
    deliver_at: dt.datetime | str | None = None
    """When it becomes readable. Not together with ``delay_seconds``."""
    content_type: str | None = None
    idempotency_key: str | None = None
    headers: Mapping[str, bytes | str] = field(default_factory=dict, hash=False)
    """Up to 64 names and values that travel beside the body; at most 64 KiB together. A text is sent as UTF-8."""

    def __post_init__(self) -> None:
        """:raises InvalidParameter: the body is neither bytes nor text, a text is none, or a header cannot be sent."""
        object.__setattr__(self, "body", check_body(self.body))
        for name in ("key", "content_type", "idempotency_key"):
            if not isinstance(value := getattr(self, name), str | None):
                raise InvalidParameter(problems={name: f"{value!r} is no text"})
        if self.headers:
            object.__setattr__(self, "headers", check_headers(self.headers))

    @classmethod
    def of_json(cls, value: Any, **more: Any) -> NewMessage:
        """A message whose body is this value as JSON.

        :param more: the other fields; ``content_type`` is ``application/json`` unless it is among them.
        :raises InvalidParameter: JSON has no form for the value.
        """
        try:
            body = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidParameter(problems={"json": f"cannot be written as JSON: {error}"}) from error
        return cls(body, **{"content_type": JSON_TYPE, **more})

    def to_wire(self) -> dict[str, Any]:
        """The entry of the message in a JSON batch.

        A body that is not UTF-8 is sent as base64.
        """
        entry: dict[str, Any] = {
            "ttl": self.ttl_seconds,
            "partition": self.partition,
            "key": self.key,
            "delay": self.delay_seconds,
            "deliver_at": None if self.deliver_at is None else moment_to_wire(self.deliver_at, "deliver_at", ago=False),
            "content_type": self.content_type,
            "idempotency_key": self.idempotency_key,
        }
        entry = {name: value for name, value in entry.items() if value is not None}
        try:
            entry["body"] = self.body if isinstance(self.body, str) else self.body.decode()
        except UnicodeDecodeError:
            entry["body"] = base64.b64encode(self.raw).decode()
            entry["encoding"] = "base64"
        if self.headers:
            entry["headers"] = {name: header_to_json(value) for name, value in check_headers(self.headers).items()}
        return entry

    @property
    def raw(self) -> bytes:
        """:raises InvalidParameter: UTF-8 has no form for the text."""
        try:
            return self.body.encode() if isinstance(self.body, str) else self.body
        except UnicodeEncodeError as error:
            raise InvalidParameter(problems={"body": str(error)}) from error


def check_headers(headers: Mapping[Any, Any]) -> dict[str, bytes]:
    """Headers of a message, each value as bytes.

    :raises InvalidParameter: a name or a value that no message can have, or more than it can have.
    """
    check_mapping("headers", headers, "texts or bytes by name")
    found: dict[str, bytes] = {}
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str | bytes):
            raise InvalidParameter(problems={"headers": "expected names, and texts or bytes"})
        found[name] = value.encode() if isinstance(value, str) else value
    try:
        encode_headers(found)
    except ValueError as error:
        raise InvalidParameter(problems={"headers": str(error)}) from error
    return found


def _header_from_wire(value: str | dict[str, str]) -> bytes:
    return value.encode() if isinstance(value, str) else base64.b64decode(value["base64"])


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a message went."""

    id: MessageId
    partition: int
    repeated: bool = False
    """True if an earlier request with the same idempotency key stored it."""

    @classmethod
    def from_wire(cls, entry: Json, *, repeated: bool = False) -> Appended:
        return cls(MessageId.parse(entry["key"]), entry["partition"], repeated)

    @property
    def timestamp(self) -> str:
        """The moment it is due, decimal seconds since 1970."""
        return self.id.timestamp

    @property
    def datetime(self) -> dt.datetime:
        """As ``timestamp``, in UTC, cut off to the microsecond."""
        return self.id.datetime


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it was read."""

    id: MessageId
    partition: int
    body: bytes
    """Empty if bodies were not requested."""
    content_type: str | None = None
    key: str | None = None
    expires: str | None = None
    """Decimal seconds since 1970, if it was requested."""
    headers: Mapping[str, bytes] = field(default_factory=dict, hash=False)

    @classmethod
    def from_wire(cls, entry: Json, *more: Any) -> Self:
        """A message of an answer, with more fields of a subclass."""
        get, body, headers = entry.get, entry.get("body", ""), entry.get("headers")
        return cls(
            MessageId.parse(entry["message_id"]),
            entry["partition"],
            base64.b64decode(body) if get("encoding") == "base64" else body.encode(),
            get("content_type"),
            get("key"),
            get("expires"),
            {name: _header_from_wire(value) for name, value in headers.items()} if headers else {},
            *more,
        )

    @property
    def timestamp(self) -> str:
        """The moment it was due, decimal seconds since 1970."""
        return self.id.timestamp

    @property
    def datetime(self) -> dt.datetime:
        """As ``timestamp``, in UTC, cut off to the microsecond."""
        return self.id.datetime

    @property
    def text(self) -> str:
        """The body as text.

        :raises UnicodeDecodeError: it is not UTF-8.
        """
        return self.body.decode()


@dataclass(frozen=True, slots=True)
class Page:
    """One answer to a read."""

    messages: tuple[Message, ...]
    """Grouped by partition, in order within each partition."""
    cursor: str
    """Where the next page starts. It is valid as long as this incarnation of the queue exists."""
    watermark: str
    """Decimal seconds since 1970. Every acknowledged message up to it is readable now."""
    more: bool
    """True if the answer was cut at its limit of messages or bytes."""
    queue: str = ""
    """Of the messages, if several queues are followed."""
    refused: QueueyError | None = None
    """Of several queues that are followed this one cannot be read, or no longer; the others go on. There are no messages."""

    @property
    def incarnation(self) -> str:
        """Of the queue, 32 hex digits.

        A queue that was deleted and made anew has another one (G9).
        """
        return incarnation_of(self.cursor)


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The end mark of a stream."""

    rows: int
    cursor: str
    more: bool
    watermark: str


@dataclass(frozen=True, slots=True)
class SpanCount:
    """What lies in a span of one partition."""

    newest: MessageId | None
    """The last id in the span; None if it is empty."""
    messages: int | None = None
    """Counted up to the number asked for; None if it was not counted."""
    more: bool = False
    """The span has more messages than were counted."""
    split_points: tuple[MessageId, ...] = ()
    """Every n-th id of the span: they cut it into parts of n messages."""

    @classmethod
    def from_wire(cls, entry: Json) -> SpanCount:
        split_points = tuple(map(MessageId.parse, entry.get("marks", ())))
        return cls(id_or_none(entry, "newest"), entry.get("messages"), entry.get("more", False), split_points)


@dataclass(frozen=True, slots=True)
class SpanCounts:
    """What lies in the spans of a queue."""

    partitions: int
    """Of the queue, whichever spans were asked for."""
    spans: Mapping[int, SpanCount]
    """By partition."""
    cursor: str
    """Behind the last ids."""
    watermark: str

    @property
    def incarnation(self) -> str:
        """As in :class:`Page`."""
        return incarnation_of(self.cursor)


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """A queue in a list, or in the answer to its creation or change."""

    name: str
    partitions: int = 0
    kind: str = ""
    consistency: str = ""
    principals: tuple[str, ...] = ()
    created: float | None = None
    """Seconds since 1970."""
    count: int | None = None
    """Messages in it, if it was requested."""
    leases: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """What its lease groups begin with: settings of a group by their names on the wire, and ``start``. Empty in a list."""
    retention: str | None = None
    """``ttl`` or ``acknowledged``; None if the answer does not say."""

    @classmethod
    def from_wire(cls, entry: Json) -> QueueSettings:
        return cls(
            entry["queue_name"],
            entry.get("partitions", 0),
            entry.get("type", ""),
            entry.get("consistency", ""),
            principals_from_wire(entry.get("principles")),
            entry.get("created"),
            entry.get("count"),
            {name.removeprefix("lease_"): value for name, value in entry.items() if name.startswith("lease_")},
            entry.get("retention"),
        )


@dataclass(frozen=True, slots=True)
class ChangedQueues:
    """The queues that got messages."""

    queues: tuple[QueueSettings, ...]
    """Each once; the queues that have waited longest come first."""
    cursor: str
    """Asks for what comes after this answer."""
    more: bool
    """There is more already."""
    complete: bool
    """These are all queues since the given cursor. If False, look at the queues themselves."""


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """How far a group is in one partition."""

    partition: int
    id: MessageId | None
    """The last message that the group has finished; None before the first."""
    cursor: str
    """Reads what comes after the id, in this partition alone."""
    generation: int
    """Of the owner that claimed the partition last."""
    timestamp: str | None
    """When the id was last set, decimal seconds since 1970; None if it never was."""
    old_id: MessageId | None = None
    """In the answer to a reset: the id before it."""

    @property
    def incarnation(self) -> str:
        """As in :class:`Page`."""
        return incarnation_of(self.cursor)

    @classmethod
    def from_wire(cls, entry: Json) -> GroupOffset:
        return cls(
            entry["partition"],
            id_or_none(entry, "message_id"),
            entry["cursor"],
            entry["generation"],
            entry["timestamp"],
            id_or_none(entry, "old_message_id"),
        )


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token. It proves its principal to whoever reads it, so it does not print."""

    text: str = field(repr=False)
    principal: str
    application: str
    expires: str
    """Decimal seconds since 1970."""
    queues: tuple[str, ...] | None
    """None for all queues that name the principal, and for calls that concern no single queue."""
    verbs: tuple[str, ...]

    @classmethod
    def from_wire(cls, entry: Json) -> NewToken:
        queues = None if entry["queues"] is None else tuple(entry["queues"])
        expires, verbs = entry["expires"], tuple(entry["verbs"])
        return cls(entry["token"], entry["principal"], entry["application"], expires, queues, verbs)


def address(where: HasLocation | str) -> str:
    """The wire form of a place, ``<partition>:<id>``. Text is returned as it is."""
    return where if isinstance(where, str) else f"{where.partition}:{where.id.hex}"


def principals_from_wire(value: str | Iterable[str] | None) -> tuple[str, ...]:
    """Principals of an answer.

    Creation and lists have comma-separated text, updates a list (queuey-api-v1 section 15).
    """
    names = value.split(",") if isinstance(value, str) else value or ()
    return tuple(name.strip() for name in names if name.strip())


def id_or_none(entry: Json, name: str) -> MessageId | None:
    return MessageId.parse(entry[name]) if entry.get(name) else None


def incarnation_of(cursor: str) -> str:
    """The uuid of the queue that a cursor belongs to.

    The cursor begins with it (``queuey.api.cursors``).
    """
    return cursor[:32]
