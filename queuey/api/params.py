"""Typed values from text.

Every problem names its field, and one answer reports all fields of a request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

from queuey.errors import InvalidMessageId, InvalidParameter
from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND, MessageId, parse_timestamp
from queuey.model import MAX_PARTITIONS, Location
from queuey.security.principals import parse_principal
from queuey.service.queues import is_queue_name

T = TypeVar("T")

MAX_NEW_NAME = 50
"""Characters of a queue's name. The SQS door makes longer ones."""
MAX_IDS = 100
"""Message ids in one path."""
MAX_PRINCIPALS = 100
MAX_DELAY_SECONDS = 366 * 24 * 3600
"""How far ahead a message may lie, by its delivery time or by an id that the client chose."""
MAX_ONCE = 128
MAX_FILTER_TEXT = 1024
"""Characters of a text that is searched for."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_GROUP = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_ONCE = re.compile(r"[\x20-\x7e]{1,128}")
_DECIMAL = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?")


class Problems:
    """Gathers the problems of a request, so that one answer can name them all."""

    def __init__(self, most: int = 1000) -> None:
        """:param most: problems to report.

        The first ones are enough for a batch that is wrong throughout.
        """
        self._found: dict[str, str] = {}
        self._most = most

    def add(self, field: str, text: str) -> None:
        if len(self._found) < self._most:
            self._found.setdefault(field, text)

    def take(self, field: str, parse: Callable[[str], T], text: str | None, default: T) -> T:
        """``parse(text)``, or ``default`` if ``text`` is None.

        The message of a ValueError becomes the field's problem.
        """
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as error:
            self.add(field, str(error))
            return default

    @property
    def none(self) -> bool:
        return not self._found

    def check(self) -> None:
        """:raises InvalidParameter: there are problems."""
        if self._found:
            raise InvalidParameter(problems=self._found)


def quoted(text: str) -> str:
    """Input shortened for an error message."""
    return f'"{text[:40]}…"' if len(text) > 40 else f'"{text}"'


def integer(low: int, high: int) -> Callable[[str], int]:
    """A parser of whole numbers in a range, with the wording that v1's clients test.

    >>> integer(1, 3)("2")
    2
    """

    def parse(text: str) -> int:
        if not _INTEGER.fullmatch(text.strip()):
            raise ValueError(f"{quoted(text)} is not a number")
        return in_range(int(text), low, high)

    return parse


def in_range(number: int, low: int, high: int) -> int:
    """:raises ValueError: with the wording that v1's clients test."""
    if number < low:
        raise ValueError(f"{number} is less than minimum value {low}")
    if number > high:
        raise ValueError(f"{number} is greater than maximum value {high}")
    return number


def one_of(*words: str) -> Callable[[str], str]:
    """A parser that accepts only these words."""

    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"{quoted(text)} is not one of {', '.join(sorted(words, reverse=True))}")
        return text

    return parse


def boolean(text: str | None, *, default: bool = False) -> bool:
    """v1's booleans: ``false`` and ``0`` are false, any other text is true."""
    return default if text is None else text.lower() not in ("false", "0")


def moment(text: str) -> MessageId | int:
    """A point in a partition: a message id, or decimal seconds since 1970 (as ticks)."""
    try:
        return MessageId.parse(text) if len(text) >= 32 and "." not in text else parse_timestamp(text)
    except ValueError as error:
        raise ValueError(
            f"{quoted(text)} is neither a message id (32 hex digits) nor decimal seconds since 1970"
        ) from error


def seconds(text: str) -> int:
    """Decimal seconds, as ticks."""
    if not _DECIMAL.fullmatch(text):
        if re.fullmatch(r"[0-9]{13,}(\.[0-9]*)?", text):
            raise ValueError("too many seconds")
        raise ValueError(f"{quoted(text)} is not a number of seconds, 0 or more")
    return parse_timestamp(text) - EPOCH_TICKS


def latest_due(now_ticks: int) -> int:
    """The latest moment for which a message may be scheduled."""
    return now_ticks + MAX_DELAY_SECONDS * TICKS_PER_SECOND


def due(delay: str | None, deliver_at: str | None, now_ticks: int, problems: Problems, prefix: str = "") -> int | None:
    """The moment from which a message is to be readable; None means now."""
    if delay is not None and deliver_at is not None:
        problems.add(f"{prefix}deliver_at", "give delay or deliver_at, not both")
        return None
    latest = latest_due(now_ticks)
    field = "delay" if delay is not None else "deliver_at"

    def parse(text: str) -> int:
        ticks = now_ticks + seconds(text) if field == "delay" else EPOCH_TICKS + seconds(text)
        if ticks > latest:
            raise ValueError("more than 366 days from now")
        return ticks

    return problems.take(prefix + field, parse, delay if delay is not None else deliver_at, None)


def partition_list(text: str, count: int) -> list[int]:
    """The partitions to read, in the order given.

    ``all`` means those that exist. A number beyond them gives no messages.
    """
    if text == "all":
        return list(range(1, count + 1))
    parts = [part.strip() for part in text.split(",")] if text else []
    if len(parts) > MAX_PARTITIONS or not all(part.isdecimal() and part.isascii() and len(part) < 10 for part in parts):
        raise ValueError(f"{quoted(text)} is not 'all' or a comma list of up to {MAX_PARTITIONS} partition numbers")
    return [int(part) for part in parts]


def queue_name(text: str) -> str:
    """The name of a queue that may exist: 1 to 80 letters, digits, ``_``, ``-`` and ``.``; not only one or two dots."""
    if not is_queue_name(text):
        raise ValueError("must be 1 to 80 letters, digits, '_', '-' or '.', and not '.' or '..'")
    return text


def new_queue_name(text: str) -> str:
    """The name of a queue to be made: 1 to 50 letters, digits, ``_``, ``-`` and ``.``; not only one or two dots."""
    if not is_queue_name(text) or len(text) > MAX_NEW_NAME:
        raise ValueError(f"must be 1 to {MAX_NEW_NAME} letters, digits, '_', '-' or '.', and not '.' or '..'")
    return text


def group_name(text: str) -> str:
    """1 to 100 letters, digits, ``_``, ``-`` and ``.``; not only one or two dots."""
    if not _GROUP.fullmatch(text) or text in (".", ".."):
        raise ValueError("must be 1 to 100 letters, digits, '_', '-' or '.', and not '.' or '..'")
    return text


def principals(text: str) -> tuple[str, ...]:
    """A comma list of ``app:name``, ``bid:address`` and ``oidc:subject``.

    Blanks around entries are dropped.
    """
    entries = [entry.strip(" \t") for entry in text.split(",")]
    if len(entries) > MAX_PRINCIPALS:
        raise ValueError(f"more than {MAX_PRINCIPALS} principals")
    return tuple(principal(entry) for entry in entries)


def principal(entry: str) -> str:
    """One principal."""
    try:
        return parse_principal(entry)
    except ValueError as error:
        raise ValueError(f"{quoted(entry)}: {error}") from error


def once_key(text: str) -> str:
    """An idempotency key."""
    if not _ONCE.fullmatch(text):
        raise ValueError(f"must be 1 to {MAX_ONCE} printable ASCII characters")
    return text


def message_ids(text: str) -> list[Location]:
    """A comma list of ``[partition:]id``, each once; without a prefix in partition 1.

    :raises InvalidMessageId: an entry is no id, or there are more than 100.
    """
    parts = text.split(",")
    if len(parts) > MAX_IDS:
        raise InvalidMessageId(f"more than {MAX_IDS} message ids")
    return list(dict.fromkeys([_message_id(part.strip(" ")) for part in parts]))


def _message_id(text: str) -> Location:
    prefix, colon, plain = text.rpartition(":")
    number = int(prefix) if prefix.isascii() and prefix.isdecimal() and len(prefix) < 4 else 0
    if colon and not 1 <= number <= MAX_PARTITIONS:
        raise InvalidMessageId(f"{quoted(prefix)} is not a partition number from 1 to {MAX_PARTITIONS}")
    try:
        return Location(number or 1, MessageId.parse(plain))
    except ValueError as error:
        raise InvalidMessageId(f"{quoted(plain)} is not a message id: {error}") from error


def one_place(text: str) -> Location:
    """One ``[partition:]id``, as the Link of a page names where the next one goes on.

    :raises InvalidMessageId: it is no id.
    """
    places = message_ids(text)
    if len(places) > 1:
        raise ValueError("must be one message, as the Link of the page before names it")
    return places[0]


def words(text: str, allowed: Iterable[str]) -> list[str]:
    """A comma list of known words, each once."""
    known = list(allowed)
    found = [word.strip() for word in text.split(",")]
    for word in found:
        if word not in known:
            raise ValueError(f"{quoted(word)} is not one of {', '.join(known)}")
    return list(dict.fromkeys(found))
