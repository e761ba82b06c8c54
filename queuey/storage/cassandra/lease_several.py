"""Steps of several lease groups: all are looked at, and then each has a step of its own."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from queuey import future
from queuey.errors import InvalidReceipt, KeyReused, LeaseGroupNotFound, OutcomeUnknown, QueueyError, StaleReceipt
from queuey.future import Future
from queuey.ids import MAX_ID
from queuey.model.holes import ALONE
from queuey.model.lease_requests import ReceiveRequest
from queuey.model.lease_steps import GroupStep, Handed, LeaseOutcome, LeaseStep
from queuey.model.leases import settle
from queuey.storage.cassandra.lease_access import GroupAccess
from queuey.storage.leasing.attempts import OTHER_REQUEST
from queuey.storage.leasing.book import GroupBook, LeaseBook
from queuey.storage.leasing.stepping import ANOTHER_GROUP

__all__ = ["SeveralGroups"]

_NEVER = MAX_ID.ticks + 1


class _Seen(NamedTuple):
    """What one group is like before the step."""

    token: int
    is_stale: bool = False
    """A lease that the step settles has ended."""
    is_answered: bool = False
    """It has answered this attempt."""
    since: int = 0
    """From when on the message that waits longest might be handed out, in ticks."""


class _Look(Protocol):
    def __call__(
        self,
        queue: UUID,
        name: str,
        job: Callable[[GroupAccess, LeaseBook, int], _Seen],
        attempt: str | None = None,
    ) -> Coroutine[Future[Any], None, _Seen]: ...


class SeveralGroups:
    """Carries out steps of several groups."""

    def __init__(
        self, step_one: Callable[[LeaseStep], Coroutine[Future[Any], None, LeaseOutcome]], look: _Look
    ) -> None:
        """:param step_one: carries out a step of one group.
        :param look: looks at one group.
        """
        self._step_one, self._look = step_one, look

    async def step(self, step: LeaseStep) -> LeaseOutcome:
        """A step of each group, in order; see :class:`queuey.storage.cassandra.leases.CassandraLeases`."""
        key = None if step.attempt is None else step.attempt.key
        looks = [
            future.start(self._look(one.queue.uuid, one.name, _seeing(step, one), attempt=key)) for one in step.groups
        ]
        seen = [await each for each in looks]
        is_repeated = any(one.is_answered for one in seen)
        if step.appends and not is_repeated and any(one.is_stale for one in seen):
            raise StaleReceipt
        run = _Run(step, seen)
        for index in _order(step, seen):
            part = run.part(index)
            if part is None or (step.looks_again and is_repeated and not seen[index].is_answered):
                continue  # a receiver that waited has its answer, and gets no other
            try:
                run.take(index, await self._step_one(part))
            except QueueyError as error:
                if run.has_begun:
                    raise OutcomeUnknown from error
                raise
        return run.outcome()


def _seeing(step: LeaseStep, one: GroupStep) -> Callable[[GroupAccess, LeaseBook, int], _Seen]:
    def job(access: GroupAccess, book: LeaseBook, now: int) -> _Seen:
        group = book.group(access, one.queue.uuid, one.name, None)
        if one.token is not None and (group is None or group.group.token != one.token):
            raise InvalidReceipt(ANOTHER_GROUP)
        if group is None and one.new is None:
            raise LeaseGroupNotFound
        if group is None:
            return _Seen(one.new.token if one.new is not None else 0)
        attempt = step.attempt
        if attempt is not None:
            known = access.attempt(one.queue.uuid, one.name, attempt.key, now)
            if known is not None and known.digest != attempt.digest:
                raise KeyReused(OTHER_REQUEST)
            if known is not None:
                return _Seen(group.group.token, is_answered=True)
        return _Seen(
            group.group.token, _is_stale(access, book, group, one, now), since=_since(access, book, group, one, now)
        )

    return job


def _is_stale(access: GroupAccess, book: LeaseBook, group: GroupBook, one: GroupStep, now: int) -> bool:
    for number, settles in one.settles.items():
        state = book.partition(access, group, one.queue.partition(number)).state
        if settle(state, settles, group.rules, now, random.random).stale:
            return True
    return False


def _since(access: GroupAccess, book: LeaseBook, group: GroupBook, one: GroupStep, now: int) -> int:
    if group.group.settings.is_paused(access.now_ticks):
        return _NEVER
    places = [book.partition(access, group, one.queue.partition(number)) for number in one.receive_from]
    moments = [place.waits_since(access, now) for place in places]
    book.save(access)  # what was passed over
    return min([moment for moment in moments if moment is not None], default=_NEVER)


def _order(step: LeaseStep, seen: Sequence[_Seen]) -> list[int]:
    """The group with the appends comes first, then those that have answered this attempt, and then as is asked."""
    places = range(len(step.groups))
    rank = {index: at for at, index in enumerate(step.turns)}
    return sorted(
        places,
        key=lambda at: (
            not (step.appends and at == 0),
            not seen[at].is_answered,
            rank[at] if rank else seen[at].since,
            at,
        ),
    )


class _Run:
    """One step, group by group."""

    def __init__(self, step: LeaseStep, seen: Sequence[_Seen]) -> None:
        self._step = step
        self._tokens = [one.token for one in seen]
        self._outcomes: dict[int, LeaseOutcome] = {}
        self._count = 0
        self._room = 0 if step.receive is None else step.receive.max_bytes
        self._ends = False
        settles = any(one.settles or one.renewals for one in step.groups)
        self._only_names = step.receive is None and not step.appends and not settles
        """Every group has to learn the name of the attempt, and nothing else."""

    @property
    def has_begun(self) -> bool:
        return bool(self._outcomes)

    def part(self, index: int) -> LeaseStep | None:
        """The step of one group; None if there is nothing left to do for it."""
        step, one = self._step, self._step.groups[index]
        receive = self._receive() if one.receive_from else None
        appends = step.appends if index == 0 else ()
        if receive is None and not (one.settles or one.renewals or appends or self._only_names):
            return None
        group = one if receive is not None else one._replace(receive_from=())
        return step._replace(groups=[group], appends=appends, receive=receive, turns=())

    def _receive(self) -> ReceiveRequest | None:
        wanted = self._step.receive
        if wanted is None or self._ends or self._count >= wanted.most or self._room <= 0:
            return None
        return wanted._replace(most=wanted.most - self._count, others=self._count, max_bytes=self._room)

    def take(self, index: int, outcome: LeaseOutcome) -> None:
        """Take in what one group did."""
        self._outcomes[index] = outcome
        self._tokens[index] = outcome.tokens[0]
        self._count += len(outcome.handed)
        self._room -= outcome.handed.size
        self._ends = self._ends or any(one.hole.flags & ALONE for one in outcome.handed)

    def outcome(self) -> LeaseOutcome:
        """All of them as one, in the order of the groups."""
        found = sorted(self._outcomes.items())
        handed = Handed([part._replace(group=at) for at, each in found for part in each.handed.parts])
        dues = [each.next_due for _, each in found if each.next_due is not None]
        return LeaseOutcome(
            max((each.now for _, each in found), default=0),
            max((each.wall for _, each in found), default=0),
            self._tokens,
            [one._replace(group=at) for at, each in found for one in each.stale],
            [one for _, each in found for one in each.appended],
            handed,
            [one._replace(group=at) for at, each in found for one in each.given_up],
            any(each.is_full for _, each in found),
            min(dues, default=None),
            larger=0 if handed else max((each.larger for _, each in found), default=0),
            expired=sum(each.expired for _, each in found),
            frees=any(each.frees for _, each in found),
            worked=max((each.worked for _, each in found), default=0),
            repeated=bool(found) and all(each.repeated for _, each in found),
            more=not handed and any(each.more for _, each in found),
            gone=any(each.gone for _, each in found),
        )
