"""Cursors: where a reader has got to, in every partition it reads, of one incarnation of a queue.

``<queue uuid>~<partition>.<place>~…`` with a place of 31 hex digits: 15 of ticks, 16 of tail. A
cursor says where, never who may: it needs no seal, and one of another incarnation is refused (G9).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from queuey.errors import CursorLost, InvalidParameter
from queuey.ids import MessageId
from queuey.model import Queue

_U64 = (1 << 64) - 1
_PLACE = re.compile(r"([0-9]{1,3})\.([0-9a-f]{15})([0-9a-f]{16})")


def format_cursor(queue: Queue, positions: Mapping[int, MessageId]) -> str:
    """Text of the last ids read, by partition."""
    places = [f"~{number}.{ticks:015x}{tail & _U64:016x}" for number, (ticks, tail) in positions.items()]
    return queue.uuid.hex + "".join(places)


def parse_cursor(queue: Queue, text: str) -> dict[int, MessageId]:
    """The inverse.

    :raises InvalidParameter: not a cursor.
    :raises CursorLost: a cursor of another queue or of a former one of this name.
    """
    incarnation, *places = text.split("~")
    matches = [_PLACE.fullmatch(place) for place in places]
    if not re.fullmatch("[0-9a-f]{32}", incarnation) or not all(matches):
        raise InvalidParameter(problems={"cursor": "is not the value of an earlier Queuey-Cursor"})
    if incarnation != queue.uuid.hex:
        raise CursorLost
    found = {}
    for match in matches:
        if match is not None:
            number, ticks, tail = match.groups()
            low = int(tail, 16)
            found[int(number)] = MessageId(int(ticks, 16), low - (1 << 64) if low >> 63 else low)
    return found
