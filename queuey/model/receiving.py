"""One receive: which messages it hands out, and what that changes. See :mod:`queuey.model.leases`."""

from __future__ import annotations

import heapq
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from queuey.ids import TICKS_PER_SECOND, ZERO_ID, MessageId
from queuey.model.columns import Columns
from queuey.model.holes import ALONE, GIVEN_UP, LEASED, MOST_FAILURES, TOGETHER, Hole, most_beside, together_flags
from queuey.model.lease_requests import MOVE_AGAIN_SECONDS, Received, ReceiveRequest, later
from queuey.model.lease_rules import LeaseRules
from queuey.model.lease_state import NO_CHANGE, Change, Due, FreshLeases, LeaseState
from queuey.model.passed_messages import Passed

__all__ = ["Receive", "ReceiveByKey", "ReceiveFairly", "is_noisy", "new_hole", "receive_new", "room_for_new"]

_ANY_NUMBER = 1 << 60
NOISY_LEASES, NOISY_PART = 30, 10
"""A key is noisy if it has at least this many leases, and more than one of this many of the leases of its group."""
MOST_ASIDE = 10_000
"""Due messages of noisy keys that one receive of a fair group looks past."""
MOST_GIVEN_UP = 500
"""Messages that one receive gives up in a partition."""
MOST_HELD_BACK = 120_000
"""Messages of noisy keys that a fair group passes over in a partition. SQS looks as far ahead."""


def is_noisy(leases: int, of_all: int) -> bool:
    """Whether a key waits behind others in a fair group.

    >>> is_noisy(29, 29), is_noisy(30, 30), is_noisy(30, 300), is_noisy(31, 300)
    (False, True, False, True)
    """
    return leases >= NOISY_LEASES and leases * NOISY_PART > of_all


def receive_new(state: LeaseState, wanted: ReceiveRequest, rules: LeaseRules, now: int, ahead: Columns) -> Received:
    """A receive that hands out new messages in their order, as nothing else may be given. Most are of this kind."""
    most = number = min(wanted.most, len(ahead))
    if not wanted.pop:
        number = min(most, max(room_for_new(state, rules), 0))
    hole = new_hole(wanted, rules, now, number + wanted.others)
    change = NO_CHANGE
    if number:
        ticks, tails = ahead.ticks, ahead.tails
        if number < len(ticks):
            ticks, tails = ticks[:number], tails[:number]
        leases = () if wanted.pop else (FreshLeases(array("q", ticks), array("q", tails), hole),)
        change = Change(MessageId(ticks[-1], tails[-1]), leases)
    return Received(change, (), range(number), hole, (), number < most, 0, wanted.most + wanted.others)


def room_for_new(state: LeaseState, rules: LeaseRules) -> int:
    """How many more messages the group may lease."""
    return min(rules.max_held - len(state.holes), rules.max_leased - state.leased)


def new_hole(wanted: ReceiveRequest, rules: LeaseRules, now: int, together: int) -> Hole:
    """What new messages have in common.

    :param together: how many messages the whole receive hands out.
    """
    flags = LEASED | (0 if wanted.blames_each else together_flags(together))
    return Hole(ZERO_ID, _hidden_until(wanted, rules, now), now, now, 1, 0, flags, wanted.receiver)


def _hidden_until(wanted: ReceiveRequest, rules: LeaseRules, now: int) -> int:
    seconds = wanted.visibility_seconds
    return later(now, rules.visibility if seconds is None else seconds)


class Receive:
    """One receive. It changes nothing, but for what it takes out of the state's heap and puts back."""

    def __init__(self, state: LeaseState, wanted: ReceiveRequest, rules: LeaseRules, now: int, ahead: Columns) -> None:
        self.state, self.wanted, self.rules, self.now, self.ahead = state, wanted, rules, now, ahead
        self.others = wanted.others
        self.taken: list[Due] = []
        """What was taken out of the heap."""
        self.again: list[Hole] = []
        self.fresh: list[int] = []
        self.given_up: list[Hole] = []
        self.passed_over: list[Hole] = []
        """Holes that a random pick leaves behind the new frontier."""
        self._gone: set[MessageId] = set()
        self.is_full = False
        self._expired = 0
        self.most = wanted.most + wanted.others
        """How many messages the whole receive may have, those of other partitions included."""
        self.ends = False
        """Nothing more is handed out: the next message has no place beside the others."""
        self.left_to_others: Sequence[MessageId] = ()
        self._next = 0
        """The index ahead of the next new message."""
        self._due: Due | None = None

    @property
    def handed(self) -> int:
        return len(self.again) + len(self.fresh)

    @property
    def has_place(self) -> bool:
        """Whether one more message may be handed out."""
        return self.handed + self.others < self.most and not self.ends and len(self.given_up) < MOST_GIVEN_UP

    def run(self, pick: Callable[[int], int]) -> None:
        """Choose what is handed out."""
        self._look()
        fresh: list[int] = []
        self.fresh = fresh
        candidates: list[Due | int] = []
        while self.has_place:
            while len(candidates) < self.rules.k and (found := self._draw()) is not None:
                candidates.append(found)
            if not candidates:
                break
            self.hand_out(candidates.pop(pick(len(candidates))), fresh)
        self._leave([one for one in candidates if isinstance(one, int)])

    def hand_out(self, chosen: Due | int, fresh: list[int]) -> None:
        """Hand out a message that may be given."""
        if isinstance(chosen, Due):
            self.hand_again(chosen.hole)
        else:
            fresh.append(chosen)

    def _leave(self, indexes: Sequence[int]) -> None:
        """Make holes of the messages that were passed over, and leave those ahead that were not reached."""
        last = max(self.fresh, default=-1)
        self._next = last + 1
        self.passed_over = [self._untouched(at) for at in indexes if at < last]

    def _untouched(self, at: int) -> Hole:
        message_id = self.id_at(at)
        return Hole(message_id, min(message_id.ticks, self.now))  # the wall clock, which stamps ids, may be ahead

    def _draw(self) -> Due | int | None:
        """The next message that may be given: a hole that is due, or the index of a new message."""
        while True:
            due, at = self._due, self._next
            has_new = at < len(self.ahead) and self._room() > 0
            if due is not None and not (has_new and self.ahead.ticks[at] < due.since):
                self._look()
                if not self._gives_up(due.hole):
                    return due
                if len(self.given_up) >= MOST_GIVEN_UP:
                    return None
            elif has_new:
                self._next += 1
                return at
            else:
                self.is_full = at < len(self.ahead)
                return None

    def _look(self) -> None:
        """Take out the next hole that is due."""
        self._due = self.state.take_due(self.now)
        if self._due is not None:
            self.taken.append(self._due)

    def _room(self) -> int:
        """How many more new messages the group may hold."""
        if self.wanted.pop:
            return self.wanted.most
        held = self.rules.max_held - len(self.state.holes) - self._next
        return min(held, self.rules.max_leased - self.state.leased - self.handed)

    # One message

    def _gives_up(self, hole: Hole) -> bool:
        """Whether a hole goes to the dead letters; it is noted then."""
        if hole.id in self._gone:
            return True
        limit, failures = self.rules.max_failures, self._failures(hole)
        if not (hole.flags & GIVEN_UP or (limit and failures >= limit)):
            return False
        again_at = self.now + round(MOVE_AGAIN_SECONDS * TICKS_PER_SECOND)
        self._gone.add(hole.id)
        self.given_up.append(hole._replace(visible_at=again_at, failures=failures, flags=GIVEN_UP))
        return True

    def _failures(self, hole: Hole) -> int:
        """A lease that ran out is a failure of its message if the message was handed out alone.

        Of several that were handed out together, nobody knows which one ended the receiver (G28).
        """
        return min(hole.failures + (hole.flags & (LEASED | TOGETHER) == LEASED), MOST_FAILURES)

    def _most_with(self, hole: Hole, failures: int) -> int:
        """How many messages this receive may have if it has this one.

        Of those that ran out together one may have ended the receiver. They come back in ever smaller receives, until
        each is alone.
        """
        if not self.wanted.blames_each and (hole.flags & ALONE or 0 < failures == self.rules.max_failures - 1):
            return 1
        if hole.flags & (LEASED | TOGETHER) == LEASED | TOGETHER:
            return most_beside(hole.flags)
        return _ANY_NUMBER

    def hand_again(self, hole: Hole) -> None:
        """Hand out a hole that is due, unless too many others go already."""
        failures = self._failures(hole)
        most = self._most_with(hole, failures)
        if self.handed + self.others >= most:
            self.ends = True
            return
        self.most = min(self.most, most)
        self._expired += hole.flags & LEASED
        self.again.append(
            hole._replace(
                visible_at=_hidden_until(self.wanted, self.rules, self.now),
                leased_at=self.now,
                first_delivered=hole.first_delivered or self.now,
                deliveries=hole.deliveries + 1,
                failures=failures,
                flags=LEASED | (ALONE if most == 1 else 0),
                receiver=self.wanted.receiver,
            )
        )

    def id_at(self, at: int) -> MessageId:
        """The id of a message ahead."""
        return MessageId(self.ahead.ticks[at], self.ahead.tails[at])

    # The outcome

    def received(self) -> Received:
        together = 0 if self.wanted.blames_each else together_flags(self.handed + self.others)
        again = [hole._replace(flags=hole.flags | together) for hole in self.again] if together else self.again
        hole = new_hole(self.wanted, self.rules, self.now, self.handed + self.others)
        frontier = self.id_at(self._next - 1) if self._next else None
        change = self._popped(again) if self.wanted.pop else self._leased(again, hole)
        change = change._replace(frontier=frontier, holes=[*change.holes, *self.passed_over, *self.given_up])
        return Received(
            change,
            again,
            self.fresh,
            hole,
            self.given_up,
            self.is_full,
            self._expired,
            self.most,
            self.ends,
            self.left_to_others,
        )

    def _popped(self, again: Sequence[Hole]) -> Change:
        return Change(closed=[hole.id for hole in again])

    def _leased(self, again: Sequence[Hole], hole: Hole) -> Change:
        return Change(holes=[*again, *(hole._replace(id=self.id_at(at)) for at in self.fresh)])


class ReceiveByKey(Receive):
    """A receive of a group that orders keys, or did so before.

    Then no key is closed any more, and what waited comes first: a new message of its key would be taken for one of those
    that wait.
    """

    def __init__(self, state: LeaseState, wanted: ReceiveRequest, rules: LeaseRules, now: int, ahead: Columns) -> None:
        super().__init__(state, wanted, rules, now, ahead)
        self._of_keys: dict[str, int] = {}
        """Messages of each key that are handed out here."""
        self._passed: list[Passed] = []
        self._first_passed: dict[str, MessageId] = {}
        """By key, the first message that is passed over here."""
        self._skipped: dict[str, MessageId | None] = {}
        self._open: list[str] = []
        """Keys that were taken out of the state's heap."""

    def run(self, pick: Callable[[int], int]) -> None:
        fresh: list[int] = []
        self.fresh = fresh
        orders = self.rules.orders_keys
        self.state.passed.open_all(wanted=not orders)
        self._look()
        opened = self._next_open()
        try:
            while self.has_place:
                if opened is not None and self._is_before(opened[0].ticks):
                    self._hand_opened(opened[1])
                    opened = self._next_open()
                elif (found := self._draw()) is None:
                    break
                elif isinstance(found, int):
                    self._hand_new(found, fresh)
                elif found.hole.key is None or not orders:
                    self.hand_again(found.hole)
                else:
                    self._hand_key(found.hole.key)
        finally:
            for key in self._open:
                if not (orders and self.state.of_key(key)):  # otherwise the last of them opens it
                    self.state.passed.opens(key)

    def _next_open(self) -> tuple[MessageId, str] | None:
        """The key whose passed messages wait longest."""
        found = self.state.passed.take_open()
        if found is not None:
            self._open.append(found[1])
        return found

    def _is_before(self, ticks: int) -> bool:
        """Whether nothing else may be given longer."""
        if self._due is not None and self._due.since < ticks:
            return False
        return not (self._next < len(self.ahead) and self.ahead.ticks[self._next] < ticks and self._room() > 0)

    def _hand_new(self, at: int, fresh: list[int]) -> None:
        """Hand out a new message, or pass it over since its key is closed."""
        key = self.ahead.keys[at]
        if key is not None and (self.rules.orders_keys or self._is_passed(key)):
            handed = self._of_keys.get(key, 0)
            if self._is_passed(key) or handed >= self.rules.per_key or (not handed and self.state.of_key(key)):
                message_id = self.id_at(at)
                self._passed.append(Passed(message_id, key))
                self._first_passed.setdefault(key, message_id)
                if not self._is_passed(key):
                    self._skipped[key] = message_id
                return
            self._of_keys[key] = handed + 1
        fresh.append(at)

    def _is_passed(self, key: str) -> bool:
        """Whether a message of this key was passed over, here or before."""
        return (self._skipped[key] if key in self._skipped else self.state.skipped.get(key)) is not None

    def _hand_key(self, key: str) -> None:
        """Hand out the next messages of a key, in order, unless it is closed."""
        if key in self._of_keys or self.state.is_closed(key, self.now):
            return
        for message_id in self.state.of_key(key):
            hole = self.state.holes.find(message_id)
            if hole is None or not self._has_turn(key):
                return
            if not self._gives_up(hole):
                self._hand_of(key, hole)
        self._hand_passed(key)

    def _hand_opened(self, key: str) -> None:
        """Hand out what waits of a key, unless that was done."""
        if self.rules.orders_keys:
            self._hand_key(key)
        elif key not in self._of_keys:
            self._hand_passed(key)

    def _has_turn(self, key: str) -> bool:
        return self._of_keys.get(key, 0) < self._per_key and self.has_place

    @property
    def _per_key(self) -> int:
        return self.rules.per_key if self.rules.orders_keys else self.most

    def _hand_of(self, key: str, hole: Hole) -> None:
        before = self.handed
        self.hand_again(hole)
        if self.handed > before:
            self._of_keys[key] = self._of_keys.get(key, 0) + 1

    def _hand_passed(self, key: str) -> None:
        """Hand out messages that were passed over while their key was closed."""
        window = self.state.passed
        ids = window.of(key, self._per_key + 1)
        number = 0
        while number < len(ids) and self._has_turn(key) and self._room() > 0:
            self._hand_of(key, Hole(ids[number], 0, key=key))
            number += 1
        if not number:
            return
        if number < len(ids):
            self._skipped[key] = ids[number]
        elif window.upto >= self.state.frontier:
            self._skipped[key] = self._first_passed.get(key)
        else:
            self._skipped[key] = MessageId(ids[-1].ticks, ids[-1].tail + 1)

    def _popped(self, again: Sequence[Hole]) -> Change:
        return super()._popped(again)._replace(passed=self._passed, skipped=self._skipped)

    def _leased(self, again: Sequence[Hole], hole: Hole) -> Change:
        leases = [*again, *(hole._replace(id=self.id_at(at), key=self.ahead.keys[at]) for at in self.fresh)]
        if not (self.rules.orders_keys or self.rules.fair):
            leases = [one._replace(key=None) for one in leases]  # else they would close their keys
        return Change(holes=leases, passed=self._passed, skipped=self._skipped)


class ReceiveFairly(Receive):
    """A receive of a fair group: quiet keys come first, and noisy ones get the places that are left.

    What waits for that is held back: a hole that is due is in the state's ``held_back``, and a new message that was
    passed over becomes such a hole. So none is looked at by each receive, and at most nine keys are noisy at a time.
    """

    def __init__(self, state: LeaseState, wanted: ReceiveRequest, rules: LeaseRules, now: int, ahead: Columns) -> None:
        super().__init__(state, wanted, rules, now, ahead)
        self._of_keys: Counter[str] = Counter()
        """Messages of each key that are handed out here."""
        self._seen: set[MessageId] = set()
        """Holes that had their turn here: one that has changed may be held back, and due beside that."""

    def run(self, pick: Callable[[int], int]) -> None:
        self.fresh, passed = [], []
        self._look()
        self._hand_held_back(noisy=False)
        aside: set[MessageId] = set()
        while self.has_place and len(aside) < MOST_ASIDE and (found := self._draw()) is not None:
            key = found.hole.key if isinstance(found, Due) else self.ahead.keys[found]
            if key is None or not self._is_noisy(key):
                self._hand(found, key)
            elif isinstance(found, Due):
                aside.add(found.hole.id)
                self.state.held_back.add(key, found.since, found.hole.id)
            else:
                passed.append(found)
        self.taken = [due for due in self.taken if due.hole.id not in aside]
        if passed and not self.handed and self._looks_on(len(passed)):
            self.passed_over = [self._untouched(at) for at in passed]
            return
        self._hand_held_back(noisy=True)
        left = iter(passed)
        for at in left:
            if not self.has_place or self._room() <= 0:
                left = chain([at], left)
                break
            self._hand(at, self.ahead.keys[at])
        self.fresh.sort()
        self._leave([*left])

    def _looks_on(self, passed: int) -> bool:
        """Whether there may be a quiet key farther ahead."""
        held_back = len(self.state.held_back)
        return self.wanted.looks_on and self._next == len(self.ahead) and held_back + passed <= MOST_HELD_BACK

    def _is_noisy(self, key: str) -> bool:
        leases: Mapping[str, int] = self.state.leased_of or {}
        return is_noisy(leases.get(key, 0) + self._of_keys[key], self.state.leased + self.handed)

    def _hand_held_back(self, *, noisy: bool) -> None:
        """Hand out what is held back: of quiet keys, or of all, those first that wait longest."""
        held = self.state.held_back
        heads = [(since, key) for key in held.keys if (since := held.first(key)) is not None]
        heapq.heapify(heads)
        while heads and self.has_place:
            _, key = heapq.heappop(heads)
            found = held.take(key) if noisy or not self._is_noisy(key) else None
            hole = None if found is None else self.state.holes.find(found[1])
            if found is None or hole is None:
                continue
            self.taken.append(Due(found[0], hole))
            if not hole.deliveries and self._room() <= 0:
                self.is_full = True
            elif not self._gives_up(hole):
                self._hand(self.taken[-1], key)
            if (since := held.first(key)) is not None:
                heapq.heappush(heads, (since, key))

    def _hand(self, found: Due | int, key: str | None) -> None:
        before = self.handed
        if isinstance(found, Due):
            if found.hole.id not in self._seen:
                self.hand_again(found.hole)
            self._seen.add(found.hole.id)
        else:
            self.fresh.append(found)
        if key is not None and self.handed > before:
            self._of_keys[key] += 1

    def _untouched(self, at: int) -> Hole:
        return super()._untouched(at)._replace(key=self.ahead.keys[at])

    def _leased(self, again: Sequence[Hole], hole: Hole) -> Change:
        leases = [hole._replace(id=self.id_at(at), key=self.ahead.keys[at]) for at in self.fresh]
        return Change(holes=[*again, *leases])
