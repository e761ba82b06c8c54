"""Messages as rows of a table."""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from qdo.client import NewMessage
from qdo.client.moments import moment_to_wire
from queuey.errors import InvalidParameter

__all__ = ["OutboxRow", "OutboxTable", "new_row"]


class OutboxRow(NamedTuple):
    """A message that waits for a relay."""

    id: int
    queue: str
    body: bytes
    content_type: str | None
    fields: str
    """The other fields of the message, as JSON."""
    idempotency_key: str

    def message(self) -> NewMessage:
        """:raises InvalidParameter: the fields are not those of a message."""
        try:
            fields = json.loads(self.fields)
            headers = {name: base64.b64decode(value) for name, value in fields.pop("headers", {}).items()}
            return NewMessage(
                bytes(self.body),
                content_type=self.content_type,
                idempotency_key=self.idempotency_key,
                headers=headers,
                **fields,
            )
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidParameter(problems={"fields": f"not those of a message: {error}"}) from error


class OutboxTable(Protocol):
    """What a relay needs of a table."""

    def waiting(self, limit: int, after: int) -> Sequence[OutboxRow]:
        """Rows that are committed and were not refused, with ids above ``after``, in the order of their ids."""

    def delete(self, ids: Sequence[int]) -> None: ...

    def refuse(self, row_id: int, reason: str) -> None:
        """Keep a row that the server refuses, with the reason. A relay does not try it again."""


def new_row(queue: str, message: NewMessage | bytes | str) -> dict[str, Any]:
    """The columns of a new row.

    A delay counts from now on. An idempotency key is drawn, unless the message has one.

    :raises InvalidParameter: the body is neither text nor bytes, there is no name of a queue, or the key is empty.
    """
    if not queue:
        raise InvalidParameter(problems={"queue": "name the queue"})
    new = message if isinstance(message, NewMessage) else NewMessage(message)
    if new.idempotency_key == "":
        raise InvalidParameter(problems={"idempotency_key": "it is empty: leave it out, and one is drawn"})
    if new.delay_seconds is not None:
        new = replace(new, delay_seconds=None, deliver_at=f"{time.time() + new.delay_seconds:.6f}")
    fields = {
        "ttl_seconds": new.ttl_seconds,
        "partition": new.partition,
        "key": new.key,
        "deliver_at": None if new.deliver_at is None else moment_to_wire(new.deliver_at, "deliver_at", ago=False),
        "headers": {name: base64.b64encode(_bytes(value)).decode() for name, value in new.headers.items()} or None,
    }
    return {
        "queue": queue,
        "body": new.raw,
        "content_type": new.content_type,
        "fields": json.dumps({name: value for name, value in fields.items() if value is not None}),
        "idempotency_key": new.idempotency_key or uuid.uuid4().hex,
    }


def _bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else value
