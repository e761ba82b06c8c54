"""The workers' job on the same queue: what the clocks of a zone show now, by the changes so far."""

from __future__ import annotations

import json

from examples.crashes.processor import client
from qdo import Context, Message, NewMessage

SEEN = "clocks.seen"


def note(message: Message, context: Context) -> None:
    """Append the zone and its new offset to :data:`SEEN`. A job that runs again appends nothing twice."""
    event = json.loads(message.body)
    result = {"zone": event["zone"], "offset": event["offset"]}
    client().append(SEEN, NewMessage(json.dumps(result), key=event["zone"], idempotency_key=message.id.hex))
