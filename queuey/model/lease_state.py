"""What a lease group knows of one partition.

The frontier is the last message that the group has looked at. Behind it, every message is settled unless it is a hole,
or its key is closed and was passed over. So what was consumed costs nothing: a state has the messages that are out, and
no trace of the others.

A step of the rule (:mod:`queuey.model.leases`) gives a :class:`Change`, and changes nothing itself. A store makes the
change durable, and :meth:`LeaseState.take` carries it out, now and after a restart.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple
from weakref import proxy

from queuey.ids import MAX_ID, ZERO_ID, MessageId
from queuey.model.columns import Columns
from queuey.model.held_back import HeldBack
from queuey.model.holes import GIVEN_UP, LEASED, Hole, HoleBlock, HoleTable
from queuey.model.passed_messages import Passed, PassedMessages
from queuey.model.values import Span
from queuey.model.visible_times import VisibleTimes

__all__ = [
    "NO_CHANGE",
    "Change",
    "Due",
    "FreshLeases",
    "LeaseState",
    "Renewal",
    "blocks_of",
    "changes_of",
    "merged",
    "rest_of",
    "state_of",
]


_MOST_IDLE_RENEWALS = 100
"""Renewals that are remembered in any case. Beyond that, only those of receivers that have messages."""


class Renewal(NamedTuple):
    """One extension of all leases that a receiver has."""

    at: int
    """Leases from before this moment, in ticks, are extended."""
    until: int
    """They run until then, in ticks, or longer if they did so already."""


class FreshLeases(NamedTuple):
    """Messages that were handed out for the first time, in one receive and in order."""

    ticks: array[int]
    tails: array[int]
    hole: Hole
    """What they have in common, with any id: one delivery, no failure and no key."""


class Change(NamedTuple):
    """What one step changes in the state of a partition."""

    frontier: MessageId | None = None
    """The new frontier; None if it stays."""
    fresh: Sequence[FreshLeases] = ()
    holes: Sequence[Hole] = ()
    """Holes that are new or changed."""
    closed: Sequence[MessageId] = ()
    """Holes that are settled."""
    renewals: Mapping[str, Renewal] = MappingProxyType({})
    """By receiver."""
    reasons: Mapping[MessageId, str] = MappingProxyType({})
    """Why messages were rejected."""
    skipped: Mapping[str, MessageId | None] = MappingProxyType({})
    """By key, see :attr:`LeaseState.skipped`; None if no message of the key is left."""
    passed: Sequence[Passed] = ()
    """For the memory only: it is read from the log again after a restart."""
    dead: int = 0
    """Messages that went to the dead letters."""
    block: HoleBlock | None = None
    """Holes that replace others. The change has their reasons as well."""
    base: int | None = None
    """If it is a number, the stored changes from that number on make the whole state. What else this change has replaces
    what was."""


NO_CHANGE = Change()


class Due(NamedTuple):
    """A hole that may be handed out."""

    since: int
    """From when on it might, in ticks."""
    hole: Hole


class LeaseState:
    """The state of one group in one partition."""

    def __init__(self, frontier: MessageId = ZERO_ID, *, counts_keys: bool = False) -> None:
        """:param frontier: a new group receives what comes after it.
        :param counts_keys: the group is fair.
        """
        self.frontier = frontier
        self.holes = HoleTable()
        self.leased = 0
        """Holes that a receiver has, or had when its lease ran out."""
        self.dead = 0
        """Messages that went to the dead letters."""
        self.renewals: dict[str, Renewal] = {}
        self.reasons: dict[MessageId, str] = {}
        self.skipped: dict[str, MessageId] = {}
        """By key, an id before which no message of it was passed over; all of them behind it, up to the frontier, were.
        """
        self.passed = PassedMessages(frontier)
        self._of_keys: dict[str, list[MessageId]] = {}
        """The holes of each key, in order."""
        self.leased_of: Counter[str] | None = Counter() if counts_keys else None
        """In a fair group: the holes of each key that are counted in ``leased``."""
        me = proxy(self)  # a state that refers to itself stays in memory until Python looks for cycles, which is seldom
        self.held_back = HeldBack(
            lambda at: None if (hole := me.holes.find(at)) is None else me.visible_at(hole),
            lambda at, due: me.enter(at, due),  # noqa: PLW0108 - me.enter would refer to the state itself
        )
        """In a fair group."""
        self._due = VisibleTimes(self.holes)
        self._ready: list[tuple[int, MessageId]] = []
        """A heap of holes that fell due, or will in a moment; some have changed since."""
        self._out: set[MessageId] = set()
        """Holes that are taken out."""

    @property
    def done_up_to(self) -> MessageId:
        """All messages up to this id are settled."""
        first = self.holes.first()
        unsettled = [*self.skipped.values()] if first is None else [first, *self.skipped.values()]
        return min([self.frontier, *(one.before() for one in unsettled)])

    def visible_at(self, hole: Hole) -> int:
        """From when on a hole may be handed out, in ticks."""
        if hole.flags & LEASED and hole.receiver in self.renewals:
            renewal = self.renewals[hole.receiver]
            if hole.leased_at < renewal.at:
                return max(hole.visible_at, renewal.until)
        return hole.visible_at

    # Keys

    def of_key(self, key: str) -> Sequence[MessageId]:
        """The holes of a key, in order, but for those that are given up."""
        return self._of_keys.get(key, ())

    def is_closed(self, key: str, now: int) -> bool:
        """Whether a message of this key is out, or waits: then no other may be handed out."""
        for message_id in self.of_key(key):
            hole = self.holes.find(message_id)
            if hole is not None and self.visible_at(hole) > now:
                return True
        return False

    @property
    def to_look_up(self) -> Span | None:
        """Where messages of closed keys are to be read from the log, for :meth:`look_up`; None if all are known."""
        if self.passed.upto >= self.frontier or not self.passed.has_room:
            return None
        return Span(self.passed.upto, self.frontier)

    def look_up(self, found: Columns, upto: MessageId) -> None:
        """Take in messages of closed keys.

        :param found: all live messages from :attr:`to_look_up` up to ``upto``, in order.
        """
        passed = []
        for at, key in enumerate(found.keys):
            if key is not None and key in self.skipped:
                message_id = MessageId(found.ticks[at], found.tails[at])
                if message_id >= self.skipped[key]:
                    passed.append(Passed(message_id, key))
        self.passed.add(passed, upto)

    def without_message(self) -> Change:
        """Forgets keys whose passed messages have all expired or were deleted."""
        if self.passed.upto < self.frontier:
            return NO_CHANGE
        return Change(skipped={key: None for key in self.skipped if self.passed.first(key) is None})

    # What is due

    def has_due(self, now: int) -> bool:
        """Whether a hole may have fallen due."""
        ready = self._ready
        while self._due.reaches(now) and not (ready and ready[0][0] <= now):
            for hole in self._due.take(now):
                self.enter(hole.id, self.visible_at(hole))
        return bool(ready) and ready[0][0] <= now

    def take_due(self, now: int) -> Due | None:
        """Take out the hole that may be handed out longest. The caller puts it back."""
        ready = self._ready
        while self.has_due(now):
            since, message_id = heapq.heappop(ready)
            hole = None if message_id in self._out else self.holes.find(message_id)
            if hole is None:  # it is settled, or was entered twice
                continue
            visible_at = self.visible_at(hole)
            if visible_at == since:
                self._out.add(message_id)
                return Due(since, hole)
            self.enter(message_id, visible_at)
        return None

    def put_back(self, dues: Sequence[Due]) -> None:
        """Put back what was taken out."""
        self._out.clear()
        for since, hole in dues:
            heapq.heappush(self._ready, (since, hole.id))

    def next_due(self) -> int | None:
        """A moment before which no further hole falls due; None if none will."""
        ready, later = self._ready, self._due.next()
        if not ready:
            return later
        return ready[0][0] if later is None else min(ready[0][0], later)

    def enter(self, message_id: MessageId, visible_at: int) -> None:
        """Enter a hole among those that fall due later, or among those that have or will in a moment."""
        if not self._due.add(visible_at, message_id):
            heapq.heappush(self._ready, (visible_at, message_id))

    # Changes

    def take(self, change: Change) -> None:
        """Carry out a change that is durable, or will be with what else happens in its transaction."""
        frontier, fresh, holes, closed, renewals, reasons, skipped, passed, dead, block, base = change
        if block is not None:
            self._put_block(block)
        if base is not None:
            self.renewals, self.skipped, self.dead = {}, {}, 0
        for some in fresh:
            self._add_fresh(some)
        for hole in holes:
            self._put(hole)
        if closed:
            self._settle(closed)
        if renewals:
            self.renewals |= renewals
        if reasons:
            self.reasons |= reasons
        for key, first in skipped.items():
            self.passed.drop(key, first)
            if first is None:
                self.skipped.pop(key, None)
            else:
                self.skipped[key] = first
        if frontier is not None:
            if self.passed.upto == self.frontier:
                self.passed.add(passed, frontier)
            self.frontier = frontier
        self.dead += dead

    def forget_renewals(self, now: int) -> None:
        """Forget renewals that have no effect any more: their number must not follow from how many names were given."""
        self.renewals = {receiver: renewal for receiver, renewal in self.renewals.items() if renewal.until > now}
        if len(self.renewals) > _MOST_IDLE_RENEWALS:
            has = self.holes.has_receiver
            self.renewals = {receiver: renewal for receiver, renewal in self.renewals.items() if has(receiver)}

    def _add_fresh(self, fresh: FreshLeases) -> None:
        ticks, tails, hole = fresh
        self.holes.extend(ticks, tails, hole)
        if not self._due.add_all(hole.visible_at, ticks, tails):
            for message_id in map(MessageId, ticks, tails):
                heapq.heappush(self._ready, (hole.visible_at, message_id))
        if hole.flags & LEASED:
            self.leased += len(ticks)

    def _put_block(self, block: HoleBlock) -> None:
        for hole in self.holes.after(block.after):
            if hole.id > block.upto:
                break
            self._leave(hole)
        self.holes.put_block(block)
        ticks, tails, visible, _, _, counts, _ = block.columns
        self.leased += sum([count & LEASED for count in counts])
        for late in self._due.add_each(visible, ticks, tails):
            heapq.heappush(self._ready, late)
        if self.leased_of is not None:
            leased = [key for key, count in zip(block.keys or (), counts, strict=False) if count & LEASED]
            self.leased_of.update(key for key in leased if key is not None)
            return
        for at, key in enumerate(block.keys or ()):
            if key is not None and not counts[at] & GIVEN_UP:
                insort(self._of_keys.setdefault(key, []), MessageId(ticks[at], tails[at]))

    def _put(self, hole: Hole) -> None:
        before = self.holes.find(hole.id)
        if before is not None:
            self._leave(before)
        self.holes.put(hole)
        self.enter(hole.id, hole.visible_at)
        self.leased += hole.flags & LEASED
        if hole.key is not None and self.leased_of is not None:
            if hole.flags & LEASED:
                self.leased_of[hole.key] += 1
        elif hole.key is not None:
            if not hole.flags & GIVEN_UP:
                insort(self._of_keys.setdefault(hole.key, []), hole.id)
            self._open(hole.key)

    def _settle(self, closed: Sequence[MessageId]) -> None:
        """Remove holes, at once if they are in order and there are neither keys nor reasons."""
        if not self._of_keys and not self.reasons and self.leased_of is None:
            removed = self.holes.remove_all(closed)
            if removed is not None:
                counts, visible = removed
                self.leased -= sum([count & LEASED for count in counts])
                self._due.leave_all(visible)
                return
        for message_id in closed:
            hole = self.holes.find(message_id)
            if hole is not None:
                self._leave(hole)
                self.holes.remove(message_id)
                self.reasons.pop(message_id, None)
                if hole.key is not None:
                    self._open(hole.key)

    def _leave(self, hole: Hole) -> None:
        """Take a hole out of the counts. It is settled, or about to be entered again."""
        self.leased -= hole.flags & LEASED
        self._due.leave(hole.visible_at)
        if hole.key is not None and self.leased_of is not None:
            self.leased_of[hole.key] -= hole.flags & LEASED
            if not self.leased_of[hole.key]:
                del self.leased_of[hole.key]
        if hole.key is not None and hole.key in self._of_keys:
            others = self._of_keys[hole.key]
            if hole.id in others:
                others.remove(hole.id)
            if not others:
                del self._of_keys[hole.key]

    def _open(self, key: str) -> None:
        """Let the passed messages of a key be handed out, if nothing of it is out any more."""
        if key not in self._of_keys:
            self.passed.opens(key)


def merged(changes: Sequence[Change]) -> Iterator[Change]:
    """Fewer changes that do the same, one after the other. :attr:`Change.passed` is lost.

    Most changes lease new messages and settle others. A message is leased before it is settled, so any number of these
    are one: first all leases, then all that is settled.
    """
    plain: list[Change] = []
    for change in changes:
        _, _, holes, _, renewals, reasons, skipped, _, dead, block, base = change
        if holes or renewals or reasons or skipped or dead or block is not None or base is not None:
            yield from _joined(plain)
            plain.clear()
            yield change
        else:
            plain.append(change)
    yield from _joined(plain)


def _joined(plain: Sequence[Change]) -> Sequence[Change]:
    if len(plain) < 2:
        return plain
    fresh = [some for change in plain for some in change.fresh]
    closed = [message_id for change in plain for message_id in change.closed]
    frontiers = [change.frontier for change in plain if change.frontier is not None]
    return [Change(frontiers[-1] if frontiers else None, fresh, closed=closed)]


def blocks_of(state: LeaseState, after: MessageId = ZERO_ID) -> Iterator[Change]:
    """Changes that make the holes behind an id, some hundreds each. The state may change between two of them: then later
    changes say so.
    """
    while after < MAX_ID:
        block = state.holes.block(after)
        yield Change(block=block, reasons=_reasons_in(state, block))
        after = block.upto


def _reasons_in(state: LeaseState, block: HoleBlock) -> Mapping[MessageId, str]:
    """Why messages of a block were rejected: these texts may be larger than all the rest."""
    if not state.reasons:
        return {}
    ids = map(MessageId, *block.columns[:2])
    return {message_id: state.reasons[message_id] for message_id in ids if message_id in state.reasons}


def rest_of(state: LeaseState, base: int) -> Change:
    """The change that makes what else a state has, once there are all blocks.

    :param base: the number of the first stored change that counts.
    """
    return Change(
        state.frontier,
        renewals=dict(state.renewals),
        skipped=dict(state.skipped),
        dead=state.dead,
        base=base,
    )


def changes_of(state: LeaseState, base: int = 0) -> Iterator[Change]:
    """Changes that make a state.

    :param base: the number under which the first of them is stored.
    """
    yield from blocks_of(state)
    yield rest_of(state, base)


def state_of(changes: Iterable[Change], state: LeaseState | None = None) -> LeaseState:
    """The state that these changes make, from the first on.

    :param state: an empty one.
    """
    state = state or LeaseState()
    for change in changes:
        state.take(change)
    state.passed = PassedMessages(min([state.frontier, *(first.before() for first in state.skipped.values())]))
    return state
