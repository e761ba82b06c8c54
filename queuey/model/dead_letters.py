"""The form of a dead letter: the message as it was, with its story in one header.

The server writes it, and so do the workers of qdo; whoever reads a dead letter reads this form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from queuey.model.headers import decode_headers, encode_headers

__all__ = ["DEAD_LETTER_SECONDS", "STORY_HEADER", "Story", "story_of", "with_story", "without_story"]

STORY_HEADER = "Queuey-Dead-Letter"
"""The header of a dead letter that has its story, as a JSON object."""
DEAD_LETTER_SECONDS = 30 * 86_400
"""How long a dead letter lives, from the move on."""


class Story(NamedTuple):
    """Where a dead letter comes from, and why it is one. Times are seconds since 1970."""

    queue: str
    """It was a message of this queue."""
    partition: int
    message_id: str
    """32 hexadecimal digits."""
    group: str
    """The group that gave it up."""
    failures: int
    reason: str
    deliveries: int = 0
    first_delivered: str | None = None
    given_up: str | None = None


def with_story(headers: bytes | None, story: Story) -> bytes:
    """Encoded headers of a message, and the header with its story."""
    said = {name: value for name, value in story._asdict().items() if value is not None}
    encoded = encode_headers(decode_headers(headers) | {STORY_HEADER: json.dumps(said, ensure_ascii=False).encode()})
    return encoded or b""


def story_of(headers: Mapping[str, bytes]) -> Story:
    """The story in the headers of a dead letter.

    :raises ValueError: there is none, or it is no story.
    """
    try:
        document: Any = json.loads(headers[STORY_HEADER])
        return Story(**document)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a dead letter: it has no header {STORY_HEADER} with a story ({error})") from error


def without_story(headers: Mapping[str, bytes]) -> dict[str, bytes]:
    """The headers that the message had before it became a dead letter."""
    return {name: value for name, value in headers.items() if name != STORY_HEADER}
