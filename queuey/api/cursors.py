"""Cursors: where a reader has got to, in every partition it reads, of one incarnation of a queue.

``<queue uuid>~<partition>.<place>~…`` with a place of 31 hex digits: 15 of ticks, 16 of tail. After
the uuid ``.all`` stands for a reader of all partitions: those that are added later are read from
their beginning. A cursor says where, never who may: it needs no seal, and one of another incarnation is refused (G9).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from queuey.errors import CursorLost, InvalidParameter
from queuey.ids import ZERO_ID, MessageId
from queuey.model import Queue

_U64 = (1 << 64) - 1
_ALL = ".all"
_PLACE = re.compile(r"([0-9]{1,3})\.([0-9a-f]{15})([0-9a-f]{16})")


class Cursor(NamedTuple):
    """Where a reader has got to."""

    places: Mapping[int, MessageId]
    """The last id read, by partition; :data:`~queuey.ids.ZERO_ID` before the first."""
    every: bool = False
    """Whether it reads all partitions, those to come included."""


def format_cursor(queue: Queue, cursor: Cursor) -> str:
    """The cursor's text."""
    places = [f"~{number}.{ticks:015x}{tail & _U64:016x}" for number, (ticks, tail) in cursor.places.items()]
    return queue.uuid.hex + (_ALL if cursor.every else "") + "".join(places)


def parse_cursor(queue: Queue, text: str) -> Cursor:
    """The inverse; partitions that a cursor of all does not name yet are at their beginning.

    :raises InvalidParameter: not a cursor.
    :raises CursorLost: a cursor of another queue or of a former one of this name.
    """
    head, *places = text.split("~")
    incarnation, every = head.removesuffix(_ALL), head.endswith(_ALL)
    matches = [_PLACE.fullmatch(place) for place in places]
    if not re.fullmatch("[0-9a-f]{32}", incarnation) or not all(matches):
        raise InvalidParameter(problems={"cursor": "is not the value of an earlier Queuey-Cursor"})
    if incarnation != queue.uuid.hex:
        raise CursorLost
    found = dict.fromkeys(range(1, queue.partitions + 1), ZERO_ID) if every else {}
    for match in matches:
        if match is not None:
            number, ticks, tail = match.groups()
            low = int(tail, 16)
            found[int(number)] = MessageId(int(ticks, 16), low - (1 << 64) if low >> 63 else low)
    return Cursor(found, every)
