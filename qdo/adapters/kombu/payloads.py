"""How a message of kombu stands in one of Queuey, and under which names."""

from __future__ import annotations

import hashlib
import json
import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from qdo.client import Delivery, Message, NewMessage
from qdo.client.wire import once_of
from queuey.errors import InvalidParameter
from queuey.ids import unique_bytes

__all__ = [
    "HEADER",
    "LOG_LIFE_SECONDS",
    "begin_sending",
    "is_persistent",
    "log_name",
    "message_of",
    "payload_of",
    "queue_name",
]

HEADER = "queuey-kombu"
"""Of a message: what kombu keeps beside the body, as JSON."""
LIFE_SECONDS = 33_554_432
"""Of a message in a queue: the longest TTL there is, 388 days."""
LOG_LIFE_SECONDS = 3600
"""Of a message in the log of an exchange, which is read as it comes."""
AHEAD = timedelta(days=365)
"""The longest delay that the server takes, and some room for clocks that differ."""
MOST_NAME = 45
"""Characters of a queue's name; its dead letters have five more."""

_ONCE = "queuey-once"
"""Property of a message that is sent: kombu keeps it from one attempt to the next. It is not stored."""
_OF_ATTEMPT = {_ONCE, "delivery_tag"}
_NOWHERE = {"exchange": "", "routing_key": ""}
_FINE = re.compile(rf"[A-Za-z0-9_.-]{{1,{MOST_NAME}}}")
_STRANGE = re.compile(r"[^A-Za-z0-9_.-]")


def queue_name(name: str) -> str:
    """The queue of the server for a queue of kombu. A name that the server does not take gets a digest.

    >>> queue_name("celery"), queue_name("mail for Ann")
    ('celery', 'mail_for_Ann-505415c2')
    """
    if _FINE.fullmatch(name) and name not in (".", ".."):
        return name
    return f"{_STRANGE.sub('_', name)[: MOST_NAME - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def log_name(exchange: str) -> str:
    """The queue of the server with the messages that an exchange sends to transient queues.

    >>> log_name("celeryev"), log_name("")
    ('kombu.celeryev', 'kombu.')
    """
    return queue_name(f"kombu.{exchange}")


def is_persistent(payload: dict[str, Any]) -> bool:
    """Whether the sender wants the message to outlive a restart of the server."""
    return bool(payload["properties"].get("delivery_mode") != 1)


def begin_sending(payload: dict[str, Any]) -> None:
    """What is stored of this in a queue is stored once, however many attempts kombu makes at sending it."""
    payload["properties"].setdefault(_ONCE, unique_bytes().hex())


def message_of(payload: dict[str, Any], queue: str, life_seconds: int = LIFE_SECONDS) -> NewMessage:
    """The message to store.

    :param queue: of the server.
    :param life_seconds: its TTL, unless it says itself when it expires.
    :raises InvalidParameter: its ETA is too late.
    """
    properties = {name: value for name, value in payload["properties"].items() if name not in _OF_ATTEMPT}
    beside = {name: payload.get(name) for name in ("content-encoding", "headers")} | {"properties": properties}
    expires = properties.get("expiration")
    return NewMessage(
        payload["body"],
        ttl_seconds=life_seconds if expires is None else min(max(math.ceil(float(expires) / 1000), 1), LIFE_SECONDS),
        deliver_at=_due(payload.get("headers") or {}),
        content_type=payload.get("content-type") or None,
        idempotency_key=once_of("kombu", payload["properties"][_ONCE], queue),
        headers={HEADER: json.dumps(beside)},
    )


def payload_of(message: Message, tag: str) -> dict[str, Any]:
    """A message as kombu takes it. One without kombu's header is nothing but a body.

    :param tag: names the delivery.
    """
    try:
        beside = json.loads(message.headers[HEADER])
        properties, headers = dict(beside["properties"]), dict(beside["headers"] or {})
        encoding = beside["content-encoding"]
        info = dict(properties.get("delivery_info") or _NOWHERE)
    except (LookupError, TypeError, ValueError, RecursionError):
        properties, headers, encoding, info = {}, {}, "utf-8", dict(_NOWHERE)
    if isinstance(message, Delivery):
        info |= {"redelivered": message.deliveries > 1}
    return {
        "body": message.body,
        "content-type": message.content_type,
        "content-encoding": encoding,
        "headers": headers,
        # The body is as it was sent: a message of somebody else must not name a codec that kombu lacks.
        "properties": properties | {"delivery_info": info, "delivery_tag": tag, "body_encoding": None},
    }


def _due(headers: dict[str, Any]) -> datetime | None:
    """The moment that Celery calls ETA; None if there is none, or its time zone is unknown.

    :raises InvalidParameter: the server keeps no message for that long.
    """
    try:
        eta = datetime.fromisoformat(headers["eta"])
    except (LookupError, TypeError, ValueError):
        return None
    if eta.tzinfo is None:
        return None
    if eta > datetime.now(UTC) + AHEAD:
        raise InvalidParameter(problems={"eta": f"{eta.isoformat()} is later than {AHEAD.days} days from now"})
    return eta
