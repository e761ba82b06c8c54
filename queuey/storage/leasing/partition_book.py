"""The state of a lease group in one partition, in memory, and the messages that come next."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Protocol

from queuey.ids import MAX_ID, MessageId
from queuey.model import Columns, Page, PartitionId, ReadRequest, Span
from queuey.model.lease_state import NO_CHANGE, Change, LeaseState
from queuey.model.only_groups import for_group
from queuey.storage.leasing.access import LeaseAccess, ReadAhead
from queuey.storage.leasing.changes import StoredChanges
from queuey.storage.leasing.passing import cost, has_passed_enough, most_together
from queuey.storage.observing import LeaseObserver

__all__ = ["AHEAD_BYTES", "MOST_AHEAD", "BookOwner", "PartitionBook"]

AHEAD = 64
"""Messages that are read together at first, if fewer are asked for. Each further time it is twice as many."""
MOST_AHEAD = 1024
"""The most of them."""
AHEAD_BYTES = 256 << 10
"""Bytes of bodies that are read together, or one body."""
_ROW_BYTES = 256
"""Of a message beside its body."""
_NEVER = MAX_ID.ticks + 1


class BookOwner(Protocol):
    """Hears of what is to be saved, and of what is read."""

    observer: LeaseObserver
    unsaved: list[PartitionBook]

    def keep_ahead(self, book: PartitionBook) -> None:
        """Note how much of a partition was read."""


class PartitionBook:
    """The state of a group in one partition."""

    __slots__ = (
        "_earliest",
        "_group",
        "_owner",
        "_stored",
        "_together",
        "_unsaved",
        "ahead",
        "ahead_bytes",
        "at",
        "counted",
        "is_cut",
        "next_unread",
        "passes_over",
        "place",
        "since",
        "state",
        "upto",
        "waits_alone",
    )

    def __init__(
        self, owner: BookOwner, place: PartitionId, group: str, state: LeaseState, stored: StoredChanges
    ) -> None:
        """:param owner: hears of what is to be saved, and of what is read. The book that has this object gives a weak proxy of
        itself, so that both leave memory as soon as they are forgotten.
        """
        self.place, self._group, self.state = place, group, state
        self._owner, self._stored = owner, stored
        self._unsaved: list[Change] = []
        self.counted = 0
        """Holes that the owner has counted."""
        self.is_cut = False
        """The last look ended before it came to all messages, as its transaction had passed over many."""
        self.passes_over = False
        """Some of the messages that were read last are for other groups."""
        self.waits_alone = False
        """The last receive had no place for the next message, which goes alone. So the next receive begins here."""
        self._begin_ahead()

    # The messages that come next

    def forget_ahead(self) -> None:
        """Read the next messages again."""
        if self.left:
            self._owner.observer.wasted_ahead(self.left)
        self._begin_ahead()

    def _begin_ahead(self) -> None:
        self.ahead = Columns.of([])
        """Messages behind the frontier, and before :attr:`at` some that it has passed."""
        self.ahead_bytes = 0
        """Of these messages, approximately."""
        self.at = 0
        self._earliest = _NEVER
        """When the first of them expires, in ticks."""
        self.since = self.upto = self.state.frontier
        """All messages between these ids were read."""
        self.next_unread = 0
        """No message that was not read is readable before this moment, in ticks."""
        self._together = AHEAD
        """Messages that are read together next."""

    def look_ahead(self, access: LeaseAccess, most: int, max_bytes: int = 1 << 20) -> Columns:
        """The next live messages behind the frontier: ``most`` of them if there are as many.

        Those that are for other groups alone are passed over. They are settled on the way, so a later look goes on
        behind them, also after a restart. If they are many, this look gives less than there is: see :attr:`is_cut`.

        :param max_bytes: of their bodies and headers; one message comes in any case.
        """
        if self._earliest <= access.now_ticks:
            self.forget_ahead()
        left, passed_over = len(self.ahead) - self.at, 0
        self.is_cut = False
        while (left < most and self.ahead_bytes < max_bytes + AHEAD_BYTES) and self.next_unread <= access.watermark:
            if passed_over and has_passed_enough(access):
                self.is_cut = not left
                break
            passed_over += self._read(access, most)
            left = len(self.ahead)
        if left < most and not self.is_cut:
            self._take_appended(access, most)
        found = self.ahead[self.at : self.at + most]
        if self.ahead_bytes <= max_bytes or len(found) < 2 or found.size <= max_bytes:
            return found
        return found[: found.number_within(max_bytes)]

    @property
    def left(self) -> int:
        """Messages that come next and were read."""
        return len(self.ahead) - self.at

    def give_ahead(self) -> ReadAhead:
        """Give away the messages that come next, for :meth:`take_ahead` of another state."""
        given = ReadAhead(self.since, self.upto, self.ahead)
        self._begin_ahead()
        return given

    def take_ahead(self, read: ReadAhead) -> None:
        """Take in messages that were read for this partition before, unless some are missing."""
        if self.left or not read.since <= self.upto < read.upto:
            self._owner.observer.wasted_ahead(len(read.messages))
            return
        self.since, self.upto, self.ahead, self.at = read.since, read.upto, read.messages, 0
        self.ahead_bytes = self.ahead.size + len(self.ahead) * _ROW_BYTES
        self._earliest = min(self.ahead.expires_ticks, default=_NEVER)
        self._owner.keep_ahead(self)
        self._pass(self.state.frontier)

    def next_request(self, watermark: int, most: int = 1, *, renews: bool = False) -> ReadRequest:
        """A read of the next messages, whose page :meth:`take_page` takes in.

        :param renews: begin at the frontier. More than ``most`` messages are not needed now.
        """
        span = Span(self.state.frontier if renews else self.upto, MessageId.last_of(watermark))
        return ReadRequest(self.place, span, max(self._together, most), max_bytes=AHEAD_BYTES)

    def take_page(self, request: ReadRequest, page: Page) -> None:
        """Take in messages that were read outside of a transaction, unless some are passed over, or are missing."""
        found = Columns.of(page.messages)
        self.passes_over = len(for_group(found, self._group)) < len(found)
        if self.passes_over:
            return
        upto = found[-1].id if page.more else request.span.upto
        if request.span.after != self.upto:
            self.take_ahead(ReadAhead(request.span.after, upto, found))
            return
        if page.more:
            self._together = min(2 * self._together, MOST_AHEAD)
        else:
            self.next_unread = request.span.upto.ticks + 1
        self._add(found)
        self.upto = max(self.upto, upto)

    def _add(self, found: Columns) -> None:
        """Add messages to those that were read."""
        left, self.since = self.ahead[self.at :], self.state.frontier
        self.ahead, self.at = Columns.joined([part for part in (left, found) if part]), 0
        self.ahead_bytes = self.ahead.size + len(self.ahead) * _ROW_BYTES
        self._earliest = min(self._earliest, min(found.expires_ticks, default=_NEVER))
        self._owner.keep_ahead(self)

    def _read(self, access: LeaseAccess, most: int) -> int:
        """Read some messages.

        :returns: how many of them were passed over.
        """
        end = MessageId.last_of(access.watermark)
        limit = most_together(access, max(most - len(self.ahead) + self.at, self._together))
        page = access.read(ReadRequest(self.place, Span(self.upto, end), limit, max_bytes=AHEAD_BYTES))
        whole = Columns.of(page.messages)
        found, last = for_group(whole, self._group), whole[-1].id if whole else end
        self._add(found)
        passed_over = len(whole) - len(found)
        self.passes_over = passed_over > 0
        if passed_over:
            access.passed_over += cost(whole) - cost(found)
        if passed_over and not self.ahead:
            self.change(Change(last))
        if page.more:
            self._together = min(2 * self._together, MOST_AHEAD)
            self.upto = last
            return passed_over
        self.upto = max(end, self.upto)
        beyond = access.read(ReadRequest(self.place, Span(end, MAX_ID), 1, with_bodies=False)).messages
        self.next_unread = beyond[0].ticks if beyond else _NEVER
        return passed_over

    def _take_appended(self, access: LeaseAccess, most: int) -> None:
        """Take messages that this very transaction appends, unless others may come before or a look-up may miss them."""
        new = access.appended(self.place, self.upto, most) if self.state.passed.upto >= self.state.frontier else ()
        if not new or new[-1].ticks >= self.next_unread:
            return
        found = Columns.of(new)
        if len(for_group(found, self._group)) == len(found):
            self._add(found)
            self.upto = found[-1].id

    def waits_since(self, access: LeaseAccess, now: int) -> int | None:
        """From when on the message that waits longest might be handed out, in ticks; None if there is none."""
        self.look_up(access)
        moments = []
        if due := self.state.take_due(now):
            self.state.put_back([due])
            moments.append(due.since)
        if (opened := self.state.passed.take_open()) is not None:
            self.state.passed.opens(opened[1])
            moments.append(opened[0].ticks)
        if (since := self.state.held_back.since()) is not None:
            moments.append(since)
        if ahead := self.look_ahead(access, 1):
            moments.append(ahead.ticks[0])
        return min(moments, default=None)

    def look_up(self, access: LeaseAccess) -> None:
        """Read some messages of closed keys that are not in memory."""
        span = self.state.to_look_up
        if span is not None:
            limit = most_together(access, MOST_AHEAD)
            page = access.read(ReadRequest(self.place, span, limit, max_bytes=1 << 20))
            found = Columns.of(page.messages)
            access.passed_over += cost(found)
            self.state.look_up(for_group(found, self._group), found[-1].id if page.more else span.upto)
            if not page.more:
                self.change(self.state.without_message())

    # Changes

    def change(self, change: Change) -> None:
        """Carry out a change. :meth:`LeaseBook.save` stores it."""
        if change is NO_CHANGE:
            return
        self.learn(change)
        if not self._unsaved:
            self._owner.unsaved.append(self)
        self._unsaved.append(change)

    def learn(self, change: Change) -> None:
        """Carry out a change that is stored."""
        self.state.take(change)
        if change.frontier is not None:
            self._pass(change.frontier)

    def learn_rows(self, rows: Iterable[tuple[int, bytes]]) -> None:
        """Carry out stored changes that come behind those that are known."""
        for change in self._stored.learn(rows):
            self.learn(change)

    def renew(self, state: LeaseState, stored: StoredChanges) -> None:
        """Go on with a state that was read anew, and is not older. The messages ahead stay."""
        self.state, self._stored = state, stored
        self._pass(state.frontier)

    def _pass(self, frontier: MessageId) -> None:
        """Note that the messages ahead up to the frontier were looked at."""
        self.upto = max(self.upto, frontier)
        ticks, tails = self.ahead.ticks, self.ahead.tails
        at = bisect_right(ticks, frontier.ticks, self.at)
        while at > self.at and ticks[at - 1] == frontier.ticks and tails[at - 1] > frontier.tail:
            at -= 1
        self.at = at
        if at == len(ticks) and at:
            self.ahead, self.at, self.ahead_bytes, self._earliest = Columns.of([]), 0, 0, _NEVER
            self.since = frontier
            self._owner.keep_ahead(self)

    def save(self, access: LeaseAccess) -> int:
        """Store what was changed since the last call, as one row, and return its bytes."""
        size = self._stored.save(access, self._unsaved, self.state)
        self._unsaved.clear()
        return size

    def folded(self) -> list[bytes]:
        """The whole state as changes, which the store is about to keep in place of those before."""
        folded = self._stored.folded(self.state)
        self._owner.observer.wrote_state(sum(map(len, folded)))
        return folded
