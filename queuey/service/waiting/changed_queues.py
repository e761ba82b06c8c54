"""The queues of an application that got messages lately.

They are for an application with too many queues to ask each.

It lies in memory, bounded, and only for applications whose owner asks now and then. A caller that asks for more than is
known learns so, and has to look at its queues.
"""

from __future__ import annotations

import heapq
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import takewhile
from math import inf
from secrets import token_hex
from typing import NamedTuple

from queuey.clock import Clock
from queuey.errors import InvalidParameter
from queuey.ids import TICKS_PER_SECOND
from queuey.locks import new_lock
from queuey.model import Location, Queue

FORGET_SECONDS = 60.0
"""An application that nobody asks about for this long is noted no longer."""
MOST_QUEUES = 20_000
"""Of an application, that got something; and as many moments at which something will be readable."""
MOST_APPLICATIONS = 16
_STEP_TICKS = TICKS_PER_SECOND // 10
"""Messages that become readable within this time count as one change."""
_CURSOR = re.compile(r"([0-9a-f]{16})-([0-9]{1,18})")


class NewlyReadable(NamedTuple):
    """The queues of an application that got something to read."""

    names: list[str]
    """Each once, those that have been waiting longest first. Some may be deleted by now."""
    cursor: str
    """To ask for what comes after it."""
    more: bool
    """There is more already."""
    complete: bool
    """No other queue got a message that was acknowledged since the cursor was given and is readable now."""


class ChangedQueues:
    """The queues that got messages, of all applications that ask. Thread-safe."""

    def __init__(self, clock: Clock, readable_ticks: Callable[[], int], *, alone: bool) -> None:
        """:param readable_ticks: up to which moment readers may read now.
        :param alone: no other server appends to the same queues.
        """
        self._clock = clock
        self._readable_ticks = readable_ticks
        self._alone = alone
        self._by_application: OrderedDict[str, _Changes] = OrderedDict()
        """By application; the one that was asked about last comes last."""
        self._lock = new_lock()

    def note(self, queue: Queue, placed: Iterable[Location]) -> None:
        """Messages are stored, and will be acknowledged."""
        if queue.application not in self._by_application:
            return
        moments = {-(-id_.ticks // _STEP_TICKS) * _STEP_TICKS for _, id_ in placed}
        with self._lock:
            changes = self._by_application.get(queue.application)
            if changes is None:
                return
            if self._clock.elapsed() - changes.asked > FORGET_SECONDS:
                del self._by_application[queue.application]
                return
            for moment in moments:
                changes.note(queue.name, moment)
        if changes.is_full:
            readable = self._readable_ticks()
            with self._lock:
                changes.settle(readable)

    def since(self, application: str, cursor: str | None, limit: int) -> NewlyReadable:
        """What became readable after a cursor was given, as far as it is known.

        From now on it is noted.

        :param cursor: of an earlier answer; None begins with what is remembered, however old.
        :raises InvalidParameter: no such cursor was ever given.
        """
        name, number = _parsed(cursor)
        readable = self._readable_ticks()
        with self._lock:
            changes = self._opened(application)
            changes.settle(readable)
            known = name == changes.name
            found = changes.after(changes.last if cursor is not None and not known else number)
        cut = found[:limit]
        more = len(found) > limit
        upto = cut[-1][1] if more else changes.last
        complete = known and number >= changes.floor and self._alone
        return NewlyReadable([queue for queue, _ in cut], f"{changes.name}-{upto}", more, complete)

    def _opened(self, application: str) -> _Changes:
        changes = self._by_application.get(application)
        if changes is None:
            changes = self._by_application[application] = _Changes()
            while len(self._by_application) > MOST_APPLICATIONS:
                self._by_application.popitem(last=False)
        self._by_application.move_to_end(application)
        changes.asked = self._clock.elapsed()
        return changes


class _Changes:
    """The changed queues of one application.

    A queue gets a new number when something in it becomes readable.
    """

    __slots__ = ("_coming", "_missed", "_queues", "asked", "floor", "last", "name")

    def __init__(self) -> None:
        self.name = token_hex(8)
        self.asked = 0.0
        self.last = 0
        self.floor = 0
        """Queues with this number or a lower one may be forgotten."""
        self._queues: OrderedDict[str, int] = OrderedDict()
        """Rising numbers."""
        self._coming: list[tuple[int, str]] = []
        """When something will be readable: a heap."""
        self._missed: float = inf
        """The first moment that there was no room for."""

    @property
    def is_full(self) -> bool:
        """Settle it, or the next note is missed."""
        return len(self._coming) >= MOST_QUEUES

    def note(self, queue: str, moment: int) -> None:
        """Something will be readable at this moment."""
        if self.is_full:
            self._missed = min(self._missed, moment)
        else:
            heapq.heappush(self._coming, (moment, queue))

    def settle(self, readable_ticks: int) -> None:
        """Number what is readable by now."""
        while self._coming and self._coming[0][0] <= readable_ticks:
            _, queue = heapq.heappop(self._coming)
            self.last += 1
            self._queues[queue] = self.last
            self._queues.move_to_end(queue)
        while len(self._queues) > MOST_QUEUES:
            _, forgotten = self._queues.popitem(last=False)
            self.floor = max(self.floor, forgotten)
        if self._missed <= readable_ticks:
            self.last += 1
            self.floor, self._missed = self.last, inf

    def after(self, number: int) -> list[tuple[str, int]]:
        """Queues with a higher number than this, and their numbers, rising."""
        found = list(takewhile(lambda item: item[1] > number, reversed(self._queues.items())))
        found.reverse()
        return found


def _parsed(cursor: str | None) -> tuple[str, int]:
    if cursor is None:
        return "", 0
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise InvalidParameter(problems={"cursor": "is not the value of an earlier Queuey-Cursor of arrivals"})
    return found[1], int(found[2])
