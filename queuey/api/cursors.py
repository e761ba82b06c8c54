"""Cursors: where a reader has got to, in every partition it reads, of one incarnation of a queue.

``<queue uuid>~<partition>.<place>~…`` with a place of 31 hex digits: 15 of ticks, 16 of tail. After
the uuid ``.all`` stands for a reader of all partitions: those that are added later are read from
their beginning. ``1-8`` in place of a number stands for all of these, unless a later place says otherwise.

Of several queues: ``several~<place>~<queue uuid>.<partition>.<place>~…``. The first place is that of each queue's
first partition, the others are of those apart from it. A cursor says where, never who may: it needs no seal, and one of another incarnation is refused (G9).
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
"""In a cursor: of all partitions once, and of those apart from the others."""
_SEVERAL = re.compile(r"several~([0-9a-f]{31})((?:~[0-9a-f]{32}\.[0-9]{1,3}(?:-[0-9]{1,3})?\.[0-9a-f]{31})*)")


class Cursor(NamedTuple):
    """Where a reader has got to."""

    places: Mapping[int, MessageId]
    """The last id read, by partition; :data:`~queuey.ids.ZERO_ID` before the first."""
    every: bool = False
    """Whether it reads all partitions, those to come included."""


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
    """The inverse; partitions that a cursor of all does not name yet are at their beginning.

    Those that the queue does not have are left out: see :func:`highest_named`.

    :raises InvalidParameter: not a cursor.
    :raises CursorLost: a cursor of another queue or of a former one of this name.
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
    if len(named) > 1:  # one place names at most all partitions of the queue
        _check_few([numbers for numbers, _ in named])
    found = dict.fromkeys(range(1, queue.partitions + 1), ZERO_ID) if every else {}
    for numbers, place in named:
        found |= dict.fromkeys(numbers, place)
    return Cursor(found, every)


def _numbers(queue: Queue, first: str, last: str | None = None) -> range:
    """The partitions that a place is for, as far as the queue has them."""
    return range(max(int(first), 1), min(int(last or first), queue.partitions) + 1)


def _check_few(named: Iterable[Collection[int]]) -> None:
    """:raises InvalidParameter: these are more places than any cursor has that was given out."""
    if sum([len(numbers) for numbers in named]) > _MOST_PLACES:
        raise InvalidParameter(problems={"cursor": _NO_CURSOR})


def highest_named(text: str) -> Mapping[str, int]:
    """The highest partition that a cursor names of each incarnation; any other text names none, or what it likes.

    A cursor is read for the partitions that a queue has, so the queue must be known with all that the cursor names
    (:meth:`queuey.service.queues.Queues.with_partitions`): its reader would skip the others.
    """
    highest: dict[str, int] = {}
    for incarnation, number in _NAMED.findall(text):
        of = incarnation or text[:32]
        highest[of] = max(highest.get(of, 0), int(number))
    return highest


def format_progress(queue: Queue, numbers: Sequence[int] | None, progress: Progress) -> str:
    """The cursor of a live reader of one queue.

    :param numbers: partitions that it reads; None for all, those to come included.
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
    """The inverse, for these queues: one that was not read before begins where the others were, or with itself.

    Partitions that they do not have are left out: see :func:`highest_named`.

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
