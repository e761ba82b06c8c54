"""One step of lease groups, inside a transaction of a store."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import NamedTuple

from queuey.errors import InvalidReceipt, LeaseGroupNotFound, QueueyError, StaleReceipt
from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND, MessageId
from queuey.model import Alike, Columns, Location, Message
from queuey.model.holes import LEASED, Hole
from queuey.model.lease_groups import AUTO
from queuey.model.lease_requests import Action, Received, ReceiveRequest, Settle, later
from queuey.model.lease_rules import LeaseRules
from queuey.model.lease_state import NO_CHANGE, Change, LeaseState
from queuey.model.lease_steps import (
    NOTHING_HANDED,
    GivenUp,
    GroupStep,
    Handed,
    HandedPart,
    LeaseOutcome,
    LeaseStep,
    StaleLease,
    without_place,
)
from queuey.model.leases import pass_over, receive, renew, settle
from queuey.model.receiving import MOST_GIVEN_UP
from queuey.storage.leasing.access import LeaseAccess
from queuey.storage.leasing.attempts import known_answer, remember
from queuey.storage.leasing.book import GroupBook, LeaseBook
from queuey.storage.leasing.partition_book import PartitionBook
from queuey.storage.leasing.passing import cost, has_passed_enough, most_together

__all__ = ["ANOTHER_GROUP", "carry_out", "is_full", "partitions_of", "run_step"]

_LOOKED_AT_TOGETHER = 1000
"""Messages that a receive of a group that orders keys, or is fair, looks at together."""
_FETCHED_TOGETHER = 8
"""Messages that are fetched by id before their bytes are counted."""
_LOOKS = 10
"""How often it does so in one receive."""
ANOTHER_GROUP = "a receipt is of a lease group that was forgotten; messages that its receiver had are handed out again"


class _Taken(NamedTuple):
    """What one partition hands out, before it is carried out."""

    group: int
    book: PartitionBook
    received: Received
    messages: Columns


def run_step(step: LeaseStep, access: LeaseAccess, book: LeaseBook, now: int) -> LeaseOutcome:
    """Carry out a step and store what it changed; see :func:`carry_out`."""
    try:
        return carry_out(step, access, book, now)
    finally:
        book.save(access)


def carry_out(step: LeaseStep, access: LeaseAccess, book: LeaseBook, now: int) -> LeaseOutcome:
    """Carry out a step; see :meth:`queuey.storage.leasing.LeaseStore.step` for what is raised.

    The caller stores what was changed by :meth:`LeaseBook.save`, once for all steps of a transaction. A step that is
    refused has changed nothing, in memory or on disk, but for groups that it made and for appends: the store undoes
    those.

    :param now: on the clock of leases.
    """
    return _Step(step, access, book, now).run()


class _Step:
    def __init__(self, step: LeaseStep, access: LeaseAccess, book: LeaseBook, now: int) -> None:
        self._step, self._access, self._book, self._now = step, access, book, now
        self._groups: list[GroupBook] = []
        self._given_up: list[GivenUp] = []
        self._is_full = self._frees = False
        self._expired = self._worked = 0
        self._larger = 0
        """Bytes of a message that has no room at all."""
        self._room = 0
        """Bytes of messages that the step may still hand out."""

    def run(self) -> LeaseOutcome:
        step, access = self._step, self._access
        self._groups = [self._group(one) for one in step.groups]
        known = None if step.attempt is None else known_answer(step, access, self._now)
        if known is not None:
            answer = self._renewed_answer(known) if step.renews else known
            if answer is not None:
                return answer
        changes, stale = self._settled()
        if stale and step.appends:
            raise StaleReceipt
        appended = access.append(step.appends) if step.appends else []
        for book, change in changes:
            book.change(change)
        handed = self._received(must_answer=bool(changes or appended))
        more = step.receive is not None and not handed and self._has_more()
        outcome = LeaseOutcome(
            self._now,
            access.now_ticks,
            [known.group.token for known in self._groups],
            stale,
            appended,
            handed,
            self._given_up,
            self._is_full,
            self._now if more else self._next_due(),
            0 if handed else self._larger,
            self._expired,
            self._frees,
            more=more,
            worked=self._worked,
        )
        remember(step, access, self._now, outcome)
        return outcome

    def _group(self, wanted: GroupStep) -> GroupBook:
        new = wanted.new if wanted.token is None else None
        found = self._book.group(self._access, wanted.queue.uuid, wanted.name, new)
        if found is None and wanted.token is None:
            raise LeaseGroupNotFound
        if found is None or wanted.token not in (None, found.group.token):
            raise InvalidReceipt(ANOTHER_GROUP)
        return found

    def _renewed_answer(self, answer: LeaseOutcome) -> LeaseOutcome | None:
        """The answer with its leases counted from now; None if one of them has ended or was changed."""
        seconds = None if self._step.receive is None else self._step.receive.visibility_seconds
        changes: list[tuple[PartitionBook, Change]] = []
        parts: list[HandedPart] = []
        for group, number, messages, leases in answer.handed.parts:
            book, own = self._partition(group, number), self._groups[group].rules.visibility
            until = later(self._now, own if seconds is None else seconds)
            renewed: list[Hole] = []
            for message_id, lease in zip(map(MessageId, messages.ticks, messages.tails), leases, strict=True):
                hole = book.state.holes.find(message_id)
                if hole is None or not hole.flags & LEASED or hole.visible_at <= self._now:
                    return None
                if (hole.deliveries, hole.visible_at) != (lease.deliveries, lease.visible_at):
                    return None
                renewed.append(hole._replace(visible_at=until))
            changes.append((book, Change(holes=renewed)))
            parts.append(HandedPart(group, number, messages, [*map(without_place, renewed)]))
        for book, change in changes:
            book.change(change)
        found = answer._replace(now=self._now, wall=self._access.now_ticks, handed=Handed(parts))
        remember(self._step, self._access, self._now, found)
        return found

    def _partition(self, index: int, number: int) -> PartitionBook:
        group = self._groups[index]
        known = group.partitions.get(number)
        if known is None:
            place = self._step.groups[index].queue.partition(number)
            known = self._book.partition(self._access, group, place)
        return known

    def _has_more(self) -> bool:
        """Whether the receive has left out messages that it may come to."""
        for index, one in enumerate(self._step.groups):
            if not self._groups[index].group.settings.is_paused(self._access.now_ticks):
                for book in _in_memory(self._groups[index], one.receive_from):
                    if book.is_cut or book.state.to_look_up is not None:
                        return True
        return False

    def _next_due(self) -> int | None:
        """A moment before which nothing falls due in these groups; None if nothing will."""
        least: int | None = None
        for index, one in enumerate(self._step.groups):
            group = self._groups[index]
            if group.group.settings.is_paused(self._access.now_ticks):
                ends = EPOCH_TICKS + round((group.group.settings.paused_until or 0.0) * TICKS_PER_SECOND)
                moments: list[int | None] = [self._now + ends - self._access.now_ticks]
            else:
                known = _in_memory(group, {*one.receive_from, *one.settles})
                moments = [book.state.next_due() for book in known]
            for moment in moments:
                if moment is not None and (least is None or moment < least):
                    least = moment
        return least

    # Settling

    def _settled(self) -> tuple[list[tuple[PartitionBook, Change]], list[StaleLease]]:
        changes: list[tuple[PartitionBook, Change]] = []
        stale: list[StaleLease] = []
        for index, one in enumerate(self._step.groups):
            rules = self._groups[index].rules
            for number, settles in one.settles.items():
                book = self._partition(index, number)
                self._note_work(book.state, settles)
                change, ended, given_up = settle(book.state, settles, rules, self._now, random.random)
                if ended:
                    stale += [StaleLease(index, number, at) for at in ended]
                opens = rules.orders_keys or bool(book.state.skipped)
                self._frees = self._frees or opens or is_full(book.state, rules)
                self._given_up += [GivenUp(index, number, hole, change.reasons[hole.id]) for hole in given_up]
                changes.append((book, change))
            if one.renewals:
                changes += self._renewed(index, one)
            for number, upto in one.passes.items():
                book = self._partition(index, number)
                changes.append((book, pass_over(book.state, upto)))
                self._frees = True
        return changes, stale

    def _note_work(self, state: LeaseState, settles: Sequence[Settle]) -> None:
        """Look at the first of them alone: each look costs a step its time."""
        if settles and settles[0].action is Action.ACKNOWLEDGE:
            since = state.holes.leased_since(settles[0].id, settles[0].delivery)
            if since is not None:
                self._worked = max(self._worked, self._now - since)

    def _renewed(self, index: int, one: GroupStep) -> list[tuple[PartitionBook, Change]]:
        changes = []
        for receiver, seconds in one.renewals:
            for number in range(1, one.queue.partitions + 1):
                book = self._partition(index, number)
                book.state.forget_renewals(self._now)
                if book.state.leased:
                    changes.append((book, renew(book.state, receiver, seconds, self._now)))
        return changes

    # Receiving

    def _received(self, *, must_answer: bool) -> Handed:
        """:param must_answer: what was settled or appended stays so, whatever happens here."""
        if self._step.receive is None:
            return NOTHING_HANDED
        taken: list[_Taken] = []
        try:
            self._take(taken, self._step.receive)
        except QueueyError:
            if not (must_answer or taken):
                raise
        parts: list[HandedPart] = []
        number_of_all = sum([one.received.number for one in taken]) if len(taken) > 1 else 0
        for group, book, received, messages in taken:
            if number_of_all > received.number and not self._step.receive.blames_each:
                received = received.with_others(number_of_all)  # noqa: PLW2901
            book.change(received.change)
            if received.given_up:
                self._note_given_up(group, book, received)
            self._expired += received.expired
            self._is_full = self._is_full or received.is_full
            if messages:
                parts.append(HandedPart(group, book.place.number, messages, _leases(received)))
        return Handed(parts)

    def _take(self, taken: list[_Taken], wanted: ReceiveRequest) -> None:
        """Choose what each partition hands out, those first whose messages wait longest."""
        others, most, self._room = 0, wanted.most, wanted.max_bytes
        given_up = 0
        for _, index, number in self._places():
            group = self._groups[index]
            asked = wanted._replace(most=most - others, others=others) if others else wanted
            one = self._taken_from(index, self._partition(index, number), asked, self._rules(group, number))
            one.book.waits_alone = one.received.waits_alone
            taken.append(one)
            others += one.received.number
            most = min(most, one.received.most)
            given_up += len(one.received.given_up)
            if others >= most or given_up >= MOST_GIVEN_UP:
                return
            self._room -= one.messages.size
            if self._room <= 0:
                return

    def _rules(self, group: GroupBook, partition: int) -> LeaseRules:
        if group.group.settings.k != AUTO:
            return group.rules
        k, share = self._access.picking.k(partition), self._access.picking.share(partition)
        return group.rules if (k, share) == (group.rules.k, None) else group.rules._replace(k=k, share=share)

    def _places(self) -> Iterator[tuple[int, int, int]]:
        """Partitions from which something may be handed out: since when, the group, and the number.

        A message that goes alone finds no place behind busier partitions. So one that waited is first the next time.
        """
        if len(self._groups) == 1 == len(self._step.groups[0].receive_from):
            yield from self._places_of(0)
            return
        turns = self._step.turns or range(len(self._groups))
        first = [place for index in turns for place in self._places_of(index, waiting=True)]
        yield from first
        seen = {place[1:] for place in first}
        if len(turns) > 1 and not self._step.turns:
            places: Iterable[tuple[int, int, int]] = chain.from_iterable(map(self._places_of, turns))
            yield from [place for place in sorted(places, key=self._turn) if place[1:] not in seen]
        else:
            for index in turns:  # a group whose turn does not come is not looked at
                places = sorted(self._places_of(index), key=self._turn)
                yield from [place for place in places if place[1:] not in seen]

    def _turn(self, place: tuple[int, int, int]) -> tuple[bool, int, int, int]:
        return self._access.picking.is_left(place[2]), *place

    def _places_of(self, index: int, *, waiting: bool = False) -> Iterator[tuple[int, int, int]]:
        """:param waiting: only those with a message that goes alone and waited."""
        one, group = self._step.groups[index], self._groups[index]
        if group.group.settings.is_paused(self._access.now_ticks):
            return
        if len(self._groups) == 1 == len(one.receive_from):  # nothing is to be compared
            number = one.receive_from[0]
            self._partition(index, number).look_up(self._access)
            yield 0, index, number
            return
        for number in one.receive_from:
            known = group.partitions.get(number)
            if waiting and (known is None or not known.waits_alone):
                continue
            book = self._partition(index, number)
            since = book.waits_since(self._access, self._now)
            if since is not None:
                yield since, index, number

    def _taken_from(self, index: int, book: PartitionBook, asked: ReceiveRequest, rules: LeaseRules) -> _Taken:
        """What one partition hands out. Messages that are no more are settled on the way."""
        looks_far = rules.orders_keys or rules.fair
        for look in range(1, _LOOKS + 1):
            most = most_together(self._access, _LOOKED_AT_TOGETHER) if looks_far else _most_ahead(asked, rules)
            ahead = book.look_ahead(self._access, most, self._room)
            if rules.fair:
                asked = asked._replace(looks_on=look < _LOOKS and not has_passed_enough(self._access))
            received = receive(book.state, asked, rules, self._now, ahead, random.randrange)
            if rules.share is not None:
                self._access.picking.note_shared(book.place.number, received)
            if received.fresh and not received.again and (book.ahead_bytes <= self._room or ahead.size <= self._room):
                return _Taken(index, book, received, _messages((), ahead, received.fresh))
            again = self._fetched(book, index, received.again)
            number = self._within_room(again, ahead, received)
            if number < received.number:
                if not number:
                    first = again[0] if received.again else ahead[received.fresh[0]]
                    self._larger = first.size if first is not None else 0
                    return _nothing(index, book, rules, self._now)
                asked = asked._replace(most=number)
                continue
            gone = [hole for hole, message in zip(received.again, again, strict=True) if message is None]
            if gone:
                book.change(_without(book.state, gone))
                book.change(book.state.without_message())
            elif not received.number and received.change.frontier is not None and looks_far:
                book.change(received.change)  # all of these were passed over: look further
                self._note_given_up(index, book, received)
                self._access.passed_over += cost(ahead)
                if has_passed_enough(self._access) or len(received.given_up) >= MOST_GIVEN_UP:
                    break
            else:
                if not received.number and (received.left or len(received.given_up) >= MOST_GIVEN_UP):
                    book.is_cut = True
                return _Taken(index, book, received, _messages(again, ahead, received.fresh))
        book.is_cut = True
        return _nothing(index, book, rules, self._now)

    def _within_room(self, again: Sequence[Message | None], ahead: Columns, received: Received) -> int:
        """How many of the messages have room in the answer."""
        if len(again) < len(received.again) or (again and self._has_no_room(again[0])):
            return 0 if self._has_no_room(again[0]) else len(again)
        if not received.fresh:
            return received.number
        room = self._room - sum([message.size for message in again if message is not None])
        if ahead.size <= room:
            return received.number
        sizes = accumulate([ahead[at].size for at in received.fresh])
        return len(again) + sum(1 for total in sizes if total <= room)

    def _has_no_room(self, message: Message | None) -> bool:
        return message is not None and message.size > self._room

    def _note_given_up(self, index: int, book: PartitionBook, received: Received) -> None:
        reasons, number = book.state.reasons, book.place.number
        self._given_up += [GivenUp(index, number, hole, reasons.get(hole.id)) for hole in received.given_up]

    def _fetched(self, book: PartitionBook, index: int, again: Sequence[Hole]) -> Sequence[Message | None]:
        """Messages of holes; fewer if the others have no room in the answer."""
        if not again:
            return []
        wanted = [Location(book.place.number, hole.id) for hole in again]
        found: list[Message | None] = []
        room = self._room
        for start in range(0, len(wanted), _FETCHED_TOGETHER):
            some = self._access.fetch(self._step.groups[index].queue, wanted[start : start + _FETCHED_TOGETHER])
            for message in some:
                room -= 0 if message is None else message.size
                if room < 0 and found:
                    return found  # and the first of them comes with it, for its size
                found.append(message)
        return found


def _in_memory(group: GroupBook, numbers: Iterable[int]) -> list[PartitionBook]:
    """Those of some partitions whose states are in memory: reading another could fail, and the step is done."""
    return [group.partitions[number] for number in numbers if number in group.partitions]


def _most_ahead(asked: ReceiveRequest, rules: LeaseRules) -> int:
    """How many messages a receive may look at."""
    if rules.share is None:
        return asked.most + rules.k - 1
    return min(asked.most * rules.share.servers, _LOOKED_AT_TOGETHER) + rules.k


def _messages(again: Sequence[Message | None], ahead: Columns, fresh: Sequence[int]) -> Columns:
    """The messages of a receive: those that are handed out again, and new ones.

    :param fresh: indexes ahead.
    """
    if isinstance(fresh, range):
        new = ahead if len(fresh) == len(ahead) else ahead[: len(fresh)]
        if not again:
            return new
    else:
        new = Columns.of([ahead[at] for at in fresh])
    parts = [Columns.of([message for message in again if message is not None]), new]
    return Columns.joined([part for part in parts if part])


def _leases(received: Received) -> Sequence[Hole]:
    fresh = Alike(received.hole, len(received.fresh))
    return [*map(without_place, received.again), *fresh] if received.again else fresh


def _nothing(index: int, book: PartitionBook, rules: LeaseRules, now: int) -> _Taken:
    """What a partition hands out that hands out nothing."""
    received = receive(book.state, ReceiveRequest(0), rules, now, Columns.of([]))
    return _Taken(index, book, received._replace(change=NO_CHANGE, given_up=()), Columns.of([]))


def partitions_of(one: GroupStep) -> Iterable[int]:
    """Partitions that a step of a group uses."""
    if one.renewals:
        return range(1, one.queue.partitions + 1)
    if one.settles or one.passes:
        return {*one.receive_from, *one.settles, *one.passes}
    return one.receive_from


def is_full(state: LeaseState, rules: LeaseRules) -> bool:
    """Whether a group holds as many messages as it may."""
    return state.leased >= rules.max_leased or len(state.holes) >= rules.max_held


def _without(state: LeaseState, gone: Sequence[Hole]) -> Change:
    """Settle messages that have expired or were deleted, be they holes or passed over while their key was closed."""
    holes = [hole.id for hole in gone if state.holes.find(hole.id) is not None]
    passed: dict[str, list[MessageId]] = {}
    for hole in gone:
        if hole.key in state.skipped and hole.id not in holes:
            passed.setdefault(hole.key, []).append(hole.id)
    return Change(closed=holes, skipped={key: state.passed.without(key, ids) for key, ids in passed.items()})
