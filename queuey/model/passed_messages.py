"""Messages that a group which orders keys has passed over, since their keys were closed."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Sequence
from typing import NamedTuple

from queuey.ids import MessageId

__all__ = ["Passed", "PassedMessages"]

MOST_PASSED = 120_000
"""Messages of closed keys whose ids are in memory; those behind them are looked up later. SQS looks as far ahead."""


class Passed(NamedTuple):
    """A message that was passed over since its key was closed."""

    id: MessageId
    key: str


class PassedMessages:
    """Ids of messages that were passed over, by key: a window on the log that a second cursor fills.

    The window is not stored. After a restart it is filled from the log, from the least id of
    :attr:`LeaseState.skipped` on.
    """

    def __init__(self, upto: MessageId, most: int = MOST_PASSED) -> None:
        self.upto = upto
        """The window has all passed messages up to this id."""
        self.size = 0
        self._most = most
        self._ids: dict[str, array[int]] = {}
        """By key, ticks and tail of each id, the first last."""
        self._open: list[tuple[MessageId, str]] = []
        """A heap of the first ids of keys that may be open."""
        self._all_open = False
        """All keys are there: their group orders keys no more."""

    @property
    def has_room(self) -> bool:
        return self.size < self._most

    def add(self, passed: Sequence[Passed], upto: MessageId) -> None:
        """Add the next messages up to an id, as many as there is room for."""
        for message_id, key in passed:
            if not self.has_room:
                return
            found = self._ids.get(key)
            if found is None:
                found = self._ids[key] = array("q")
                heapq.heappush(self._open, (message_id, key))
            found.extend(message_id)
            self.size += 1
            self.upto = message_id
        self.upto = upto

    def first(self, key: str) -> MessageId | None:
        """The first message of a key; None if none is in the window."""
        found = self._ids.get(key)
        return MessageId(found[0], found[1]) if found else None

    def of(self, key: str, most: int) -> list[MessageId]:
        """The first messages of a key."""
        found = self._ids.get(key, array("q"))[: 2 * most]
        return [*map(MessageId, found[::2], found[1::2])]

    def drop(self, key: str, first: MessageId | None) -> None:
        """Forget the messages of a key before an id, or all: they are handed out."""
        found = self._ids.get(key)
        if found is None:
            return
        number = 0
        while number < len(found) and (first is None or (found[number], found[number + 1]) < first):
            number += 2
        del found[:number]
        self.size -= number // 2
        if not found:
            del self._ids[key]
        elif number:
            self.opens(key)

    def without(self, key: str, gone: Sequence[MessageId]) -> MessageId:
        """Forget messages of a key that have expired or were deleted.

        :param gone: in order, and among the first of the key.
        :returns: an id before which no message of the key was passed over that is still there.
        """
        found = self._ids.get(key, array("q"))
        left, kept, end = {*gone}, array("q"), 0
        while left and end < len(found):
            message_id = MessageId(found[end], found[end + 1])
            end += 2
            if message_id in left:
                left.remove(message_id)
                self.size -= 1
            else:
                kept.extend(message_id)
        found[:end] = kept
        if found:
            self.opens(key)
        else:
            self._ids.pop(key, None)
        return self.first(key) or gone[-1].following()

    def opens(self, key: str) -> None:
        """Note that nothing of a key is out any more."""
        first = self.first(key)
        if first is not None and (first, key) not in self._open[:1]:
            heapq.heappush(self._open, (first, key))

    def open_all(self, *, wanted: bool) -> None:
        """Note that nothing closes a key, or that some may be closed from now on."""
        if wanted and not self._all_open:
            self._open = [(first, key) for key in self._ids if (first := self.first(key)) is not None]
            heapq.heapify(self._open)
        self._all_open = wanted

    def take_open(self) -> tuple[MessageId, str] | None:
        """Take out the key whose first message waits longest; it may be closed again. The caller puts it back."""
        while self._open:
            first, key = heapq.heappop(self._open)
            if self.first(key) == first:
                return first, key
        return None
