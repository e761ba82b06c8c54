"""Steps of one commit that acknowledge and receive in one group, carried out together.

Nearly all steps do nothing else, and a commit has many of them: what one receive handed out is acknowledged by the next
requests side by side. So their leases are looked up, ended and made as one row of each partition, and each step adds
only its answer.

First all of them settle, then all receive. So they seem to have come in that order: none was answered before the commit.
A step that meets anything unusual is carried out alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from queuey.errors import QueueyError
from queuey.model import Alike, Columns, Message
from queuey.model.holes import Hole
from queuey.model.lease_groups import AUTO
from queuey.model.lease_requests import Acknowledged, ReceiveRequest
from queuey.model.lease_state import NO_CHANGE, Change
from queuey.model.lease_steps import NOTHING_HANDED, Handed, HandedAlone, HandedPart, LeaseOutcome, LeaseStep
from queuey.model.together import (
    AcknowledgedTogether,
    Taking,
    acknowledge_together,
    may_receive_together,
    receive_together,
)
from queuey.storage.leasing.access import LeaseAccess, Picking
from queuey.storage.leasing.attempts import remember
from queuey.storage.leasing.book import GroupBook, LeaseBook
from queuey.storage.leasing.partition_book import PartitionBook
from queuey.storage.leasing.stepping import carry_out, is_full

__all__ = ["PlainStep", "Stepped", "carry_out_together", "join_steps", "plain_step"]

_MOST_BYTES = 1 << 20
"""Of messages of a partition that are looked at together."""
_NOTHING_AHEAD = Columns.of([])
Stepped = LeaseOutcome | QueueyError
"""What a step did, or why it did nothing."""


class PlainStep(NamedTuple):
    """A step that acknowledges and receives in one group, and does nothing else."""

    step: LeaseStep
    settles: Mapping[int, Acknowledged]
    """By partition, none of them empty."""
    receive: ReceiveRequest | None
    receive_from: Sequence[int]
    """Partitions; empty if nothing is to be received."""
    messages: int
    """How many it settles, and may receive."""


def plain_step(step: LeaseStep, *, with_attempt: bool = False) -> PlainStep | None:
    """A step as a plain one; None if it is none.

    :param with_attempt: a step with an attempt may be one. The caller looks for its answer before, and remembers it
        after (:mod:`queuey.storage.leasing.attempts`).
    """
    groups, appends, receive, attempt, *_ = step
    if len(groups) > 1 or appends:
        return None
    if attempt is not None and (not with_attempt or (receive is not None and receive.pop)):
        return None  # the answer to a pop may have the messages, so its size is not known
    _, _, _, _, settles, renewals, receive_from, passes = groups[0]
    if renewals or passes or (receive is not None) != bool(receive_from) or not (settles or receive_from):
        return None
    messages = 0
    for some in settles.values():
        if type(some) is not Acknowledged or not some.ids:
            return None
        messages += len(some.ids)
    if receive is not None:
        if receive.others:
            return None
        messages += receive.most
    return PlainStep(step, cast(Mapping[int, Acknowledged], settles), receive, receive_from, messages)


def carry_out_together(
    steps: Sequence[PlainStep], access: LeaseAccess, book: LeaseBook, now: Callable[[], int]
) -> list[Stepped]:
    """Carry out steps of one group, as :func:`~queuey.storage.leasing.stepping.carry_out` does one.

    :param now: gives rising moments on the clock of leases.
    """
    joined = join_steps(steps, access, book, now) if len(steps) > 1 else ()
    for one, outcome in zip(steps, joined, strict=False):
        remember(one.step, access, outcome.now, outcome)
    return [*joined] + [_alone(one.step, access, book, now) for one in steps[len(joined) :]]


def _alone(step: LeaseStep, access: LeaseAccess, book: LeaseBook, now: Callable[[], int]) -> Stepped:
    try:
        return carry_out(step, access, book, now())
    except QueueyError as refused:
        return refused


def join_steps(
    steps: Sequence[PlainStep], access: LeaseAccess, book: LeaseBook, now: Callable[[], int]
) -> Sequence[LeaseOutcome]:
    """Carry out the first of these steps of one group together, as many as meet nothing unusual.

    :returns: their outcomes. Nothing is done of the others; each is to be carried out alone.
    """
    first = steps[0].step.groups[0]
    group = book.group(access, first.queue.uuid, first.name, None)
    if group is None or group.group.settings.is_paused(access.now_ticks):
        return ()
    if any(one.step.groups[0].token not in (None, group.group.token) for one in steps):
        return ()
    moment = now()
    sources = _sources(steps, group, access, moment)
    if sources is None:
        return ()
    try:
        return _Joined(steps, group, sources, access, moment).outcomes()
    except QueueyError:  # a message could not be read; each step answers that by itself
        return ()


def _sources(
    steps: Sequence[PlainStep], group: GroupBook, access: LeaseAccess, now: int
) -> Mapping[int, _Source] | None:
    """The partitions that the steps use.

    :returns: None if one of them is not in memory, has more than new messages to give, or is shared with other servers.
    """
    found: dict[int, _Source] = {}
    for number in _partitions_of(steps):
        place = group.partitions.get(number)
        if place is None or is_full(place.state, group.rules) or _is_shared(group, access.picking, number):
            return None
        if not may_receive_together(place.state, group.rules, now):
            return None
        found[number] = _Source(place, access)
    return found


def _is_shared(group: GroupBook, picking: Picking, number: int) -> bool:
    """Whether other servers hand out messages of a partition without asking."""
    if picking.is_left(number):
        return True
    return group.group.settings.k == AUTO and (picking.k(number) > 1 or picking.share(number) is not None)


def _partitions_of(steps: Sequence[PlainStep]) -> Iterable[int]:
    """Partitions that the steps use, in order."""
    return sorted({number for one in steps for number in (*one.settles, *one.receive_from)})


class _Source:
    """A partition, and what is dealt out of its next messages."""

    __slots__ = ("_access", "_is_open", "_ones", "_ticks", "ahead", "at", "holes", "place", "takings")

    def __init__(self, place: PartitionBook, access: LeaseAccess) -> None:
        self.place, self._access = place, access
        self.ahead = _NOTHING_AHEAD
        self._ticks = self.ahead.ticks
        self._ones: Sequence[Message] = ()
        """Those of them that are dealt out one by one, which are made together."""
        self.at = 0
        """Messages ahead that are dealt out."""
        self.takings: list[Taking] = []
        self.holes: Iterator[Hole] = iter(())
        """What each taking leases, once that is known."""
        self._is_open = True
        """There may be more than lies ahead."""

    def since(self, most: int) -> int | None:
        """The ticks of the next message; None if there is none.

        :param most: messages that are wanted at most.
        """
        if self.at == len(self._ticks) and self._is_open:
            self._look(most)
        return self._ticks[self.at] if self.at < len(self._ticks) else None

    def _look(self, most: int) -> None:
        """Look at what is in memory, and farther once that is dealt out."""
        at, left = self.at, self.place.left
        found = self.place.look_ahead(self._access, left if left and not at else at + most, _MOST_BYTES)
        self._is_open = len(found) > at and _begins_with(found, self.ahead)
        if self._is_open:
            self.ahead, self._ticks, self._ones = found, found.ticks, ()

    def take(self, wanted: ReceiveRequest, most: int) -> Columns:
        """The next messages, for one receive."""
        some = self.ahead[self.at : self.at + most]
        self.takings.append(Taking(wanted, len(some)))
        self.at += len(some)
        return some

    def take_one(self, wanted: ReceiveRequest, most: int) -> Message:
        """The next message, for a receive of one; :meth:`since` has said that there is one.

        :param most: as there.
        """
        if self.at >= len(self._ones):
            self._ones = [*self.ahead[: self.at + most]]
        message = self._ones[self.at]
        self.takings.append(Taking(wanted, 1))
        self.at += 1
        return message

    def take_back(self) -> None:
        """Undo the last :meth:`take`."""
        self.at -= self.takings.pop().number


def _begins_with(found: Columns, known: Columns) -> bool:
    """Whether messages are the known ones and more: what was read may have been forgotten, and read again."""
    number = len(known)
    return [*found.ticks[:number]] == [*known.ticks] and [*found.tails[:number]] == [*known.tails]


_Parts = Sequence[tuple[int, Columns]]
"""What a step gets, by partition."""


class _One(NamedTuple):
    """The one message that a step asks for."""

    partition: int
    message: Message


class _Joined:
    """Some steps of one group."""

    def __init__(
        self,
        steps: Sequence[PlainStep],
        group: GroupBook,
        sources: Mapping[int, _Source],
        access: LeaseAccess,
        now: int,
    ) -> None:
        self._steps, self._group, self._sources, self._access, self._now = steps, group, sources, access, now
        self._most = sum([one.receive.most for one in steps if one.receive is not None])

    def outcomes(self) -> Sequence[LeaseOutcome]:
        """Carry out the first of the steps, see :func:`join_steps`."""
        dealt: list[_Parts | _One] = []
        for one in self._steps:
            parts = self._dealt(one)
            if parts is None:
                break
            dealt.append(parts)
        self._steps = self._steps[: len(dealt)]
        since = self._carried_out() if dealt else None
        return () if since is None else self._answers(dealt, since)

    def _dealt(self, one: PlainStep) -> _Parts | _One | None:
        """Deal out messages to one step, those first that may be given longest.

        :returns: None if there are not as many as it asks for, or it has no room for them; then it gets none.
        """
        wanted = one.receive
        if wanted is None:
            return ()
        if wanted.most == 1:
            return self._dealt_one(wanted, one.receive_from)
        parts: list[tuple[int, Columns]] = []
        left, room = wanted.most, wanted.max_bytes
        while left and (number := self._oldest(one.receive_from)):
            some = self._sources[number].take(wanted, left)
            parts.append((number, some))
            left, room = left - len(some), room - some.size
        if left or room < 0:
            for number, _ in parts:
                self._sources[number].take_back()
            return None
        return parts

    def _dealt_one(self, wanted: ReceiveRequest, numbers: Sequence[int]) -> _One | None:
        number = self._oldest(numbers)
        if not number:
            return None
        message = self._sources[number].take_one(wanted, self._most)
        if message.size > wanted.max_bytes:
            self._sources[number].take_back()
            return None
        return _One(number, message)

    def _oldest(self, numbers: Sequence[int]) -> int:
        """The partition whose next message may be given longest; 0 if none has any."""
        found = oldest = 0
        for number in numbers:
            since = self._sources[number].since(self._most)
            if since is not None and (not found or since < oldest):
                found, oldest = number, since
        return found

    def _carried_out(self) -> Sequence[int] | None:
        """Carry out what the steps change.

        :returns: when the first lease that each step settles was made, in ticks, this moment if it settles none; None if
            something unusual was met, and nothing is done.
        """
        since = [self._now] * len(self._steps)
        ended = self._ended(since)
        if ended is None:
            return None
        changes: list[tuple[PartitionBook, Change]] = []
        for number, source in self._sources.items():
            change = NO_CHANGE
            if source.takings:
                state, rules = source.place.state, self._group.rules
                made = receive_together(state, source.takings, rules, self._now, source.ahead)
                if made is None:
                    return None
                change, source.holes = made.change, iter(made.holes)
            if number in ended:
                change = change._replace(closed=ended[number].closed)
            changes.append((source.place, change))
        for place, change in changes:
            place.change(change)
            if change.frontier is not None:
                place.waits_alone = False
        return since

    def _ended(self, since: list[int]) -> Mapping[int, AcknowledgedTogether] | None:
        """What the steps settle, by partition; None if one of the leases had ended, or stands twice.

        :param since: gets the moments of the first leases.
        """
        settling: dict[int, list[int]] = {}
        for at, one in enumerate(self._steps):
            for number in one.settles:
                settling.setdefault(number, []).append(at)
        found: dict[int, AcknowledgedTogether] = {}
        for number, ats in settling.items():
            acknowledged = [self._steps[at].settles[number] for at in ats]
            ended = acknowledge_together(self._sources[number].place.state, acknowledged)
            if ended is None:
                return None
            found[number] = ended
            for at, moment in zip(ats, ended.since, strict=True):
                since[at] = min(since[at], moment)
        return found

    def _answers(self, dealt: Sequence[_Parts | _One], since: Sequence[int]) -> Sequence[LeaseOutcome]:
        tokens = [self._group.group.token]
        dues = [source.place.state.next_due() for source in self._sources.values()]
        due = min([moment for moment in dues if moment is not None], default=None)
        now, wall = self._now, self._access.now_ticks
        return [
            LeaseOutcome(now, wall, tokens, handed=self._handed(parts), next_due=due, worked=now - first)
            for parts, first in zip(dealt, since, strict=True)
        ]

    def _handed(self, parts: _Parts | _One) -> Handed:
        if not parts:
            return NOTHING_HANDED
        if isinstance(parts, _One):
            return HandedAlone(parts.partition, parts.message, next(self._sources[parts.partition].holes))
        return Handed([self._part(number, some) for number, some in parts])

    def _part(self, number: int, some: Columns) -> HandedPart:
        return HandedPart(0, number, some, Alike(next(self._sources[number].holes), len(some)))
