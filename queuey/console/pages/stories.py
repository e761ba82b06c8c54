"""Stories of dead letters, and of messages that came back from there, as pages show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from queuey.console.shown import visibly
from queuey.model.dead_letters import STORY_HEADER

__all__ = ["story_in"]


def story_in(entry: Mapping[str, Any], header: str = STORY_HEADER) -> Mapping[str, Any] | None:
    """The story in the header of a dead letter, or of a message that came back from there; None of any other message."""
    text = entry.get("headers", {}).get(header)
    try:
        story = orjson.loads(text) if isinstance(text, str) else None
    except ValueError:
        return None
    if not isinstance(story, dict):
        return None
    return {name: visibly(value) if isinstance(value, str) else value for name, value in story.items()}
