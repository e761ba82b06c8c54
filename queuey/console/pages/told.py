"""What a page says after a change."""

from __future__ import annotations

from queuey.console.visits import Visit

__all__ = ["told"]

TOLD = {
    "created": "The queue was made.",
    "changed": "The settings were changed.",
    "purging": "The server is removing all messages. Load the page again to see how far it is.",
    "cancelled": "The task stops. What it has done stays done.",
    "deleted": "It was deleted.",
    "sent": "The message was stored.",
    "reset": "The group goes on at the new place.",
    "redriving": "The server is moving the dead letters. Load the page again to see how far it is.",
    "released": "The messages were released.",
    "forgotten": "The group was forgotten.",
}
"""What a page says after a change, by the word in its address."""


def told(visit: Visit) -> str | None:
    """What the change before has done."""
    return TOLD.get(visit.query.get("told", ""))
