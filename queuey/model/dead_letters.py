"""The form of a dead letter: the message as it was, with its story in one header.

The server writes it, and so do the workers of qdo; whoever reads a dead letter reads this form.

If there is no room for both, the letter is the story alone, and the message is in its queue only. Such a letter has
:data:`ALONE_TYPE`, the key of the message, and none of its headers. A queue with ``retention=acknowledged`` gives the
message away once it is among the dead letters, so the letters of its lease groups have both in any case.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from queuey.ids import MessageId
from queuey.model.headers import decode_headers, encode_headers
from queuey.model.values import MAX_TTL_SECONDS

__all__ = [
    "ALONE_TYPE",
    "DEAD_LETTER_SECONDS",
    "REDRIVEN_HEADER",
    "STORY_HEADER",
    "Story",
    "parted_reason",
    "reason_with",
    "story_of",
    "story_to_header",
    "with_origin",
    "with_story",
    "without_story",
]

STORY_HEADER = "queuey-dead-letter"
"""The header of a dead letter that has its story, as a JSON object. Names of HTTP headers come in lower case."""
REDRIVEN_HEADER = "queuey-redriven"
"""The header of a message that came back from the dead letters: the story of its letter, without a traceback."""
DEAD_LETTER_SECONDS = 30 * 86_400
"""How long a dead letter lives, from the move on."""

ALONE_TYPE = "application/vnd.queuey.dead-letter"
"""The content type of a letter that is only a story. Its body is the same JSON as its header."""

_ID = re.compile(r"[0-9a-f]{32}")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
"""What JSON can say with an escape, and no encoding of text can."""


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
    """0 if nobody counted them: workers of qdo do not."""
    first_delivered: str | None = None
    given_up: str | None = None
    traceback: str = ""
    size: int | None = None
    """Bytes of the message's body if the letter has no room for the message; else None."""
    sha256: str | None = None
    """Of that body, hexadecimal. It stands together with ``size``."""
    ttl: int | None = None
    """Seconds that the message was to live; None if whoever wrote the letter does not know."""
    first_id: str | None = None
    """If the message was a dead letter itself: the id that it had before it was one for the first time."""
    earlier_deliveries: int = 0
    """How often it was handed out before it came to this queue."""

    @property
    def first_message_id(self) -> str:
        """The id that the message had when it was sent, through however many dead-letter queues it came."""
        return self.first_id or self.message_id

    @property
    def all_deliveries(self) -> int:
        """How often it was handed out in all queues through which it came."""
        return self.deliveries + self.earlier_deliveries

    @property
    def is_alone(self) -> bool:
        """Whether the letter has the story alone, and the message is in its queue only."""
        return self.size is not None

    def after(self, headers: Mapping[str, bytes]) -> Story:
        """This story; and if the message, which has these headers, was a dead letter itself, what it was before that."""
        try:
            before = story_of(headers)
            MessageId.parse(before.first_message_id)
        except ValueError:
            return self  # no dead letter, or none that this program wrote
        earlier = min(before.all_deliveries, _MOST_NUMBER)
        return self._replace(first_id=before.first_message_id, earlier_deliveries=earlier)

    def alone(self, body: bytes) -> Story:
        """The story for a letter that has no room for the message of this body."""
        return self._replace(size=len(body), sha256=hashlib.sha256(body).hexdigest())


_REQUIRED = [name for name in Story._fields if name not in Story._field_defaults]
_MOST_NUMBER = (1 << 53) - 1
_NUMBERS = dict.fromkeys(["partition", "failures", "deliveries", "size", "earlier_deliveries"], _MOST_NUMBER)
_NUMBERS["ttl"] = MAX_TTL_SECONDS
"""Numbers of 0 or more, with the most that each may be; the other members are texts."""
_IDS = {"message_id", "first_id"}


def story_to_header(story: Story) -> bytes:
    r"""The value of the header: JSON in printable ASCII, without members that say nothing.

    >>> story_to_header(Story("jobs", 1, "0" * 32, "mail", 5, "\u00fc\x7f"))[-40:]
    b'"failures": 5, "reason": "\\u00fc\\u007f"}'
    """
    nothing = Story._field_defaults
    said = {name: value for name, value in story._asdict().items() if name not in nothing or value != nothing[name]}
    return json.dumps(said).replace("\x7f", "\\u007f").encode()


def reason_with(reason: str, traceback: str) -> str:
    """A reason of one line, with the lines of a traceback below it, as one text."""
    return f"{reason}\n{traceback}" if traceback else reason


def parted_reason(text: str) -> tuple[str, str]:
    r"""Reason and traceback of such a text.

    >>> parted_reason(reason_with("not JSON", "line 1\nline 2")), parted_reason("not JSON")
    (('not JSON', 'line 1\nline 2'), ('not JSON', ''))
    """
    reason, _, traceback = text.partition("\n")
    return reason, traceback


def with_story(headers: bytes | None, story: Story, *, bounded: bool = True) -> bytes:
    """Encoded headers of a message, and the header with its story.

    :param bounded: False if the story comes in any case.
    :raises ValueError: the message's own headers leave no room for it.
    """
    both = decode_headers(headers) | {STORY_HEADER: story_to_header(story)}
    return encode_headers(both, bounded=bounded) or b""


def with_origin(headers: Mapping[str, bytes], story: Story) -> dict[str, bytes]:
    """Headers of a message that goes back, which say what message it was; after a second time, what it was before that.

    They take less room than those of its letter, unless that is the story alone.
    """
    return {**without_story(headers), REDRIVEN_HEADER: story_to_header(story._replace(traceback=""))}


def story_of(headers: Mapping[str, bytes]) -> Story:
    """The story in the headers of a dead letter. Members that this version does not know are ignored.

    Whoever may append may write such a header. So what cannot be said again, as text or in a row, is no story.

    :raises ValueError: there is none, or it is no story.
    """
    try:
        document: Any = json.loads(headers[STORY_HEADER])
        members = {name: document[name] for name in Story._fields if document.get(name) is not None}
    except (KeyError, AttributeError, ValueError, RecursionError) as error:
        raise ValueError(f"not a dead letter: it has no header {STORY_HEADER} with a story ({error})") from error
    wrong = [name for name in _REQUIRED if name not in members]
    wrong += [name for name, value in members.items() if not _is_member(name, value)]
    if wrong or ("size" in members) != ("sha256" in members):
        raise ValueError(f"not a dead letter: wrong in its story: {', '.join(wrong) or 'size without sha256'}")
    return Story(**members)


def without_story(headers: Mapping[str, bytes]) -> dict[str, bytes]:
    """The headers that the message had before it became a dead letter."""
    return {name: value for name, value in headers.items() if name != STORY_HEADER}


def _is_member(name: str, value: Any) -> bool:
    if name in _NUMBERS:
        return type(value) is int and 0 <= value <= _NUMBERS[name]
    if not isinstance(value, str) or _SURROGATE.search(value) is not None:
        return False
    return name not in _IDS or _ID.fullmatch(value) is not None
