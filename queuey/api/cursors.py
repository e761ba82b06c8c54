"""Cursors: how far a reader has got in each partition it reads.

A cursor belongs to one incarnation of a queue. Its form is ``<queue uuid>~<partition>.<position>~…``. A position has 31
hex digits: 15 of ticks, 16 of tail. ``.all`` after the uuid means that the reader reads all partitions; it reads those
that are added later from their beginning. ``1-8`` in place of a number stands for partitions 1 to 8, unless a later
position names one of them again.

A cursor of several queues is ``several~<position>~<queue uuid>.<partition>.<position>~…``. The first position is that
of each queue's first partition; the others are those of partitions that differ from it. A cursor says where to read,
and grants no right to read: so it needs no signature. A cursor of another incarnation is refused (G9).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from queuey.errors import CursorLost, InvalidParameter
from queuey.ids import ZERO_ID, MessageId
from queuey.model import MAX_PARTITIONS, Queue
from queuey.service.follow import Progress

_NO_CURSOR = "is not the value of an earlier Queuey-Cursor"
_U64 = (1 << 64) - 1
_ALL = ".all"
_PLACE = re.compile(r"([0-9]{1,3})(?:-([0-9]{1,3}))?\.([0-9a-f]{15})([0-9a-f]{16})")
_NAMED = re.compile(r"~(?:([0-9a-f]{32})\.)?(?:[0-9]{1,3}-)?([0-9]{1,3})(?=\.)")
_MOST_PLACES = 2 * MAX_PARTITIONS
"""The most positions that a cursor names: each partition once in a range, and once more if it differs from that."""
_SEVERAL = re.compile(r"several~([0-9a-f]{31})((?:~[0-9a-f]{32}\.[0-9]{1,3}(?:-[0-9]{1,3})?\.[0-9a-f]{31})*)")


class Cursor(NamedTuple):
    """How far a reader has got."""

    places: Mapping[int, MessageId]
    """The last id read, by partition; :data:`~queuey.ids.ZERO_ID` before the first."""
    every: bool = False
    """Whether it reads all partitions, later ones included."""


def format_cursor(queue: Queue, cursor: Cursor) -> str:
    """The cursor's text."""
    places = [f"~{number}.{_place_text(place)}" for number, place in cursor.places.items()]
    return queue.uuid.hex + (_ALL if cursor.every else "") + "".join(places)


def _place_text(place: MessageId) -> str:
    return f"{place.ticks:015x}{place.tail & _U64:016x}"


def _place_of(text: str) -> MessageId:
    low = int(text[15:], 16)
    return MessageId(int(text[:15], 16), low - (1 << 64) if low >> 63 else low)


def parse_cursor(queue: Queue, text: str) -> Cursor:
    """Parse the text of :func:`format_cursor`.

    Partitions that a cursor of all does not name start at their beginning. Partitions that the queue does not have are
    left out: see :func:`highest_named`.

    :raises InvalidParameter: not a cursor.
    :raises CursorLost: a cursor of another queue, or of a former one with this name.
    """
    head, *places = text.split("~")
    incarnation, every = head.removesuffix(_ALL), head.endswith(_ALL)
    matches = [_PLACE.fullmatch(place) for place in places]
    if not re.fullmatch("[0-9a-f]{32}", incarnation) or not all(matches):
        raise InvalidParameter(problems={"cursor": _NO_CURSOR})
    if incarnation != queue.uuid.hex:
        raise CursorLost
    named = [
        (_numbers(queue, first, last), _place_of(ticks + tail))
        for first, last, ticks, tail in [match.groups() for match in matches if match is not None]
    ]
    if len(named) > 1:  # a single position cannot name more partitions than the queue has
        _check_few([numbers for numbers, _ in named])
    found = dict.fromkeys(range(1, queue.partitions + 1), ZERO_ID) if every else {}
    for numbers, place in named:
        found |= dict.fromkeys(numbers, place)
    return Cursor(found, every)


def _numbers(queue: Queue, first: str, last: str | None = None) -> range:
    """The partitions that one position stands for, if the queue has them."""
    return range(max(int(first), 1), min(int(last or first), queue.partitions) + 1)


def _check_few(named: Iterable[Collection[int]]) -> None:
    """:raises InvalidParameter: more positions than any cursor of this server has."""
    if sum([len(numbers) for numbers in named]) > _MOST_PLACES:
        raise InvalidParameter(problems={"cursor": _NO_CURSOR})


def highest_named(text: str) -> Mapping[str, int]:
    """The highest partition that a cursor names, by incarnation.

    Text that is no cursor may give anything. A cursor is parsed for the partitions of a known queue, and skips the
    rest. So look the queue up with all partitions that the cursor names
    (:meth:`queuey.service.queues.Queues.with_partitions`).
    """
    highest: dict[str, int] = {}
    for incarnation, number in _NAMED.findall(text):
        of = incarnation or text[:32]
        highest[of] = max(highest.get(of, 0), int(number))
    return highest


def format_progress(queue: Queue, numbers: Sequence[int] | None, progress: Progress) -> str:
    """The cursor of a live reader of one queue.

    :param numbers: the partitions it reads; None for all, later ones included.
    """
    if queue.partitions == 1 or numbers is not None:
        read = numbers or (1,)
        places = [f"~{number}.{_place_text(progress.at(queue.partition(number)))}" for number in read]
        return queue.uuid.hex + (_ALL if numbers is None else "") + "".join(places)
    apart = [f"~{number}.{_place_text(place)}" for (_, number), place in progress.apart.items()]
    return f"{queue.uuid.hex}{_ALL}~1-{queue.partitions}.{_place_text(progress.base)}{''.join(apart)}"


def format_several(queues: Iterable[Queue], progress: Progress) -> str:
    """The cursor of a reader of several queues."""
    base = _place_text(progress.base)
    wide = [f"~{queue.uuid.hex}.1-{queue.partitions}.{base}" for queue in queues if queue.partitions > 1]
    apart = [f"~{queue.hex}.{number}.{_place_text(place)}" for (queue, number), place in progress.apart.items()]
    return f"several~{base}{''.join(wide)}{''.join(apart)}"


def parse_several(text: str, queues: Sequence[Queue]) -> Progress:
    """Parse a cursor of several queues.

    A queue that was not read before starts at the common position, or at its own beginning if it is newer.
    Partitions that the queues do not have are left out: see :func:`highest_named`.

    :raises InvalidParameter: not a cursor of several queues.
    """
    match = _SEVERAL.fullmatch(text)
    if match is None:
        raise InvalidParameter(problems={"cursor": _NO_CURSOR})
    progress = Progress(_place_of(match[1]))
    known = {queue.uuid.hex: queue for queue in queues}
    for queue in queues:
        for number in range(2, queue.partitions + 1):
            progress.set(queue.partition(number), ZERO_ID)
    parts = [part.split(".") for part in match[2].split("~")[1:]]
    named = [
        (known[incarnation], _numbers(known[incarnation], *numbers.split("-")), _place_of(place))
        for incarnation, numbers, place in parts
        if incarnation in known
    ]
    _check_few([numbers for _, numbers, _ in named])
    for queue, numbers, place in named:
        for number in numbers:
            progress.set(queue.partition(number), place)
    return progress
