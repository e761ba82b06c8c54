"""The stored changes of one state: in order, they are the state.

When they have several times the bytes of the state that they began with, they are folded. New changes then have all of
its holes, block by block, and the older changes go. A state of a million holes is folded over many transactions, some
blocks in each: no transaction waits for a large state, or is larger than the store takes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import inf
from typing import Protocol

from queuey.ids import MAX_ID, ZERO_ID, MessageId
from queuey.model.holes import Hole
from queuey.model.lease_codec import decode_changes, decode_single, encode_change
from queuey.model.lease_groups import LeaseGroup
from queuey.model.lease_state import Change, FreshLeases, LeaseState, blocks_of, changes_of, merged, rest_of, state_of

__all__ = ["ChangesAccess", "FoldRoom", "StoredChanges", "begun"]

_FOLD_AT = 10
"""Changes are folded when they take this many times the bytes of the state that they began with. So folding adds a
small part to what is written, however much is held."""
_MANY_READ = 16
"""A small state that was read from more changes than this is folded with its next one: it may be read again soon, as
where very many queues have little to do."""
_BLOCKS_TOGETHER = 4
"""Blocks of a fold that one transaction writes at least: some thousand holes."""
_MOST_BLOCKS = 32
"""The most of them. As many go along as have the bytes of the transaction's own changes, so a fold ends in time."""
_PORTION_BYTES = 1 << 20
"""Of a state that is folded over several transactions, what one of them takes, approximately: reasons are larger than holes."""
_HOLES_OF_REASON = 32
"""The holes that take the room of a reason for a reject, with a traceback below it."""
_DROPPED_TOGETHER = 16
"""Changes that one transaction deletes, for the one that it adds. So those before a fold are gone long before the next
one, and none of the transactions in between takes much longer than the others: a change may have thousands of messages."""
_MOST_SINGLES = 1000
"""Leases, and settled messages, that are gathered at most."""


class FoldRoom:
    """How much of states one transaction folds."""

    def __init__(self, most_whole: int = -1, portion_bytes: int = _PORTION_BYTES, most_bytes: float = inf) -> None:
        """:param most_bytes: of changes and states, after which it folds nothing more."""
        self.most_whole = most_whole
        """A state of more holes is folded over several transactions; -1 if each is."""
        self.portion_bytes = portion_bytes
        """How much of such a state it takes, approximately; 0 if nothing."""
        self._left = most_bytes

    def take(self, size: int) -> None:
        """The transaction stores these bytes of changes or states."""
        self._left -= size
        if self._left <= 0:
            self.most_whole, self.portion_bytes = -1, 0


class ChangesAccess(Protocol):
    """What is needed of a store, inside one of its transactions."""

    least_number: int
    """The changes of this transaction have at least this number."""
    folding: FoldRoom

    def keep(self, token: int, partition: int, number: int, change: bytes) -> None:
        """Store one more change."""

    def fold(self, token: int, partition: int, first: int, changes: Sequence[bytes]) -> None:
        """Delete the changes with numbers before ``first``, and store these from it on."""


class _Fold:
    """A fold that is under way."""

    def __init__(self, first: int) -> None:
        self.first = first
        """The number of its first change."""
        self.after = ZERO_ID
        """Blocks up to this id are stored."""
        self.bytes = 0


class _Singles:
    """Gathers changes of one message each. Those that lease a message and those that settle it leave nothing together."""

    def __init__(self) -> None:
        self._fresh: dict[MessageId, Hole] = {}
        self._closed: list[MessageId] = []
        self._frontier: MessageId | None = None

    def add(self, data: bytes) -> bool:
        """Gather a change; False if it is of another kind, or there are enough."""
        if len(self._fresh) >= _MOST_SINGLES or len(self._closed) >= _MOST_SINGLES:
            return False
        single = decode_single(data)
        if single is None:
            return False
        message_id, lease, closed = single
        self._fresh[message_id] = lease
        self._frontier = message_id
        if closed is not None and self._fresh.pop(closed, None) is None:
            self._closed.append(closed)
        return True

    def take(self) -> Iterator[Change]:
        """What was gathered, as one change."""
        if self._frontier is not None:
            fresh = [
                FreshLeases(array("q", [ticks]), array("q", [tail]), lease)
                for (ticks, tail), lease in self._fresh.items()
            ]
            yield Change(self._frontier, fresh, closed=self._closed)
            self._fresh, self._closed, self._frontier = {}, [], None


class StoredChanges:
    """What is known of the stored changes of a group's state in one partition."""

    __slots__ = (
        "_base",
        "_first",
        "_fold",
        "_folded",
        "_in_portions",
        "_least_base",
        "_oldest",
        "_since",
        "next",
        "partition",
        "token",
    )

    def __init__(self, token: int, partition: int, fold_bytes: int, *, in_portions: bool) -> None:
        """:param fold_bytes: changes of fewer bytes are never folded.
        :param in_portions: delete old changes over several transactions, which add one each.
        """
        self.token, self.partition = token, partition
        self._in_portions = in_portions
        self.next = 0
        """The number of the next change."""
        self._oldest = self._first = 0
        """The numbers of the oldest change, and of the oldest that counts."""
        self._least_base = self._base = fold_bytes // _FOLD_AT
        """Bytes of the state that the changes began with, and how many at least count."""
        self._since = 0
        """Bytes of the changes since."""
        self._fold: _Fold | None = None
        self._folded = 0
        """Bytes of the changes that were read and have the last fold."""

    def read(self, stored: Iterable[tuple[int, bytes]], begun: LeaseState) -> LeaseState:
        """The state that stored changes make.

        :param stored: all of them in order, each with its number.
        :param begun: as the group began.
        :raises ValueError: one of them is no change.
        """
        found = state_of(self._changes(stored), begun)
        if self._in_portions and self._base == self._least_base and self.next - self._first > _MANY_READ:
            self._since = max(self._since, _FOLD_AT * self._base + 1)
        return found

    def learn(self, stored: Iterable[tuple[int, bytes]]) -> Iterator[Change]:
        """Changes that were stored elsewhere, behind those that are known.

        :param stored: as for :meth:`read`.
        """
        return self._changes(stored)

    def _changes(self, stored: Iterable[tuple[int, bytes]]) -> Iterator[Change]:
        singles = _Singles()
        for number, data in stored:
            if not self.next:
                self._oldest = self._first = number
            self.next = number + 1
            self._since += len(data)
            if singles.add(data):
                continue
            yield from singles.take()
            yield from self._noted(data)
        yield from singles.take()

    def _noted(self, data: bytes) -> Iterator[Change]:
        """The changes of one row, with a note of the fold that ends with one of them."""
        is_counted = False
        for change in decode_changes(data):
            if change.block is not None and change.block.after == ZERO_ID:
                self._folded, is_counted = 0, False
            if not is_counted and (change.block is not None or change.base is not None):
                self._folded, is_counted = self._folded + len(data), True
            if change.base is not None:
                self._first, self._since = change.base, 0
                self._base = max(self._folded, self._least_base)
            yield change

    def save(self, access: ChangesAccess, changes: Sequence[Change], state: LeaseState) -> int:
        """Store changes as one, and some of a fold if it is time.

        :param state: with these changes.
        :returns: the bytes of both.
        """
        data = b"".join([encode_change(change) for change in merged(changes)])
        if len(data) < 2:  # they concerned the memory only
            return 0
        self.next = max(self.next, access.least_number)
        self._since += len(data)
        is_due, room = self._since > _FOLD_AT * self._base, access.folding
        is_whole = is_due and len(state.holes) + _HOLES_OF_REASON * len(state.reasons) <= room.most_whole
        if is_due and not is_whole and self._fold is None:
            self._fold = _Fold(self.next)
        if self._fold is not None and not is_whole and room.portion_bytes:
            data += self._portion(self._fold, state, len(data), room.portion_bytes)
        access.keep(self.token, self.partition, self.next, data)
        self.next += 1
        self._drop(access)
        size = len(data) + (self._fold_whole(access, state) if is_whole else 0)
        room.take(size)
        return size

    def _drop(self, access: ChangesAccess) -> None:
        """Delete what was folded, or some of it."""
        if self._oldest < self._first:
            upto = self._oldest + _DROPPED_TOGETHER if self._in_portions else self._first
            self._oldest = min(upto, self._first)
            access.fold(self.token, self.partition, self._oldest, ())

    def _portion(self, fold: _Fold, state: LeaseState, least_bytes: int, most_bytes: int) -> bytes:
        """The next blocks, and at the end what else the state has."""
        parts: list[bytes] = []
        for change in islice(blocks_of(state, fold.after), _MOST_BLOCKS):
            size = sum(map(len, parts))
            if size >= most_bytes or (len(parts) >= _BLOCKS_TOGETHER and size >= least_bytes):
                break
            parts.append(encode_change(change))
            fold.after = MAX_ID if change.block is None else change.block.upto
        if fold.after == MAX_ID:
            parts.append(encode_change(rest_of(state, fold.first)))
        data = b"".join(parts)
        fold.bytes += len(data)
        if fold.after == MAX_ID:
            self._first, self._fold = fold.first, None
            self._base, self._since = max(fold.bytes, self._least_base), 0
        return data

    def _fold_whole(self, access: ChangesAccess, state: LeaseState) -> int:
        folded = self.folded(state)
        access.fold(self.token, self.partition, self.next, folded)
        self._oldest = self._first = self.next
        self._fold = None
        self.next += len(folded)
        return sum(map(len, folded))

    def folded(self, state: LeaseState) -> list[bytes]:
        """The whole state as changes, which the store is about to keep from the next number on, and none before."""
        folded = [encode_change(change) for change in changes_of(state, self.next)]
        self._base, self._since = max(sum(map(len, folded)), self._least_base), 0
        return folded


def begun(group: LeaseGroup) -> LeaseState:
    """The state of a group in a partition that it has not used yet."""
    return LeaseState(group.start, counts_keys=group.settings.fair)
