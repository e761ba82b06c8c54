"""What a page says after a change."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from queuey.console.visits import Visit
from queuey.model.tasks import TaskState

__all__ = ["end_of", "told"]

TOLD = {
    "created": "The queue was made.",
    "changed": "The settings were changed.",
    "purging": "The server is removing all messages. Load the page again to see how far it is.",
    "cancelled": "The task stops. What it has done stays done.",
    "ended": "The task had ended already.",
    "deleted": "It was deleted.",
    "deleted-beside": "It was deleted. Its pause may still be there, for one of the same name: the deletion of that failed.",
    "sent": "The message was stored.",
    "sent-beside": "The message was stored. The one in whose place it is may still be there: its deletion failed.",
    "reset": "The group goes on at the new place.",
    "redriving": "The server is moving the dead letters. Load the page again to see how far it is.",
    "released": "Messages that were released: {done}.",
    "released-some": "Messages that were released: {done}. The leases of {left} more had ended meanwhile.",
    "forgotten": "The group was forgotten.",
}
"""What a page says after a change, by the word in its address."""


_NUMBER = re.compile(r"[0-9]{1,9}")


def told(visit: Visit) -> str | None:
    """What the change before has done."""
    text = TOLD.get(visit.query.get("told", ""))
    given = {name: visit.query.get(name, "") for name in ("done", "left")}
    return text and text.format_map({name: one if _NUMBER.fullmatch(one) else "some" for name, one in given.items()})


def end_of(task: Mapping[str, Any]) -> str:
    """The word for a task that was to stop."""
    return "cancelled" if task["state"] in (TaskState.CANCELLING, TaskState.CANCELLED) else "ended"
