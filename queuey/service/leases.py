"""Lease groups: messages handed out to one receiver at a time, and what becomes of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from operator import is_
from types import MappingProxyType
from typing import NamedTuple, Protocol

from queuey import future
from queuey.clock import Clock
from queuey.errors import LeaseGroupNotFound, QueueyError, Throttled
from queuey.future import Future, others_turn
from queuey.ids import TICKS_PER_SECOND, MessageId
from queuey.model import IdempotencyKey, Queue, Retention
from queuey.model.lease_groups import GroupSettings, LeaseGroup
from queuey.model.lease_requests import Acknowledged, Action, Settle
from queuey.model.lease_steps import (
    NOTHING_HANDED,
    GroupStep,
    HandedAlone,
    HeldPage,
    LeaseCounts,
    LeaseOutcome,
    LeaseStep,
)
from queuey.monitor.metrics import LeasesCounted, Monitor
from queuey.service.dead_letters import DeadLetters
from queuey.service.log import Log
from queuey.service.queues import Queues
from queuey.service.waiting.registry import Waiters
from queuey.service.waiting.rooms import Check, Rooms, WaitingReceiver
from queuey.storage import Stores

__all__ = ["AnswerRoom", "Leases", "Waiting", "settled_of"]


_GROUPS = 100
"""Groups that are listed together."""
_LOOK_ON_SECONDS = 1.0
"""How long a receive that does not wait passes over messages that are for other groups, or of closed keys."""


class AnswerRoom(Protocol):
    """Room in memory for the messages of an answer (G17).

    It is taken before messages are looked for, since what was handed out is never refused.
    """

    bytes: int
    """Of messages that have room now."""

    def grow(self, size: int) -> bool:
        """Take room for one message of this size; False if there is none."""

    def waiting(self) -> AbstractContextManager[None]:
        """Hold nothing while the block waits, and then what was held first, or the least room if there is not as much."""


class Waiting(NamedTuple):
    """How long a receiver waits, and which waiters it counts among."""

    seconds: float
    readers: Sequence[str]
    """The principals that receive."""
    in_thread: bool
    """A thread waits for the answer."""
    is_awaited: Callable[[], bool] = lambda: True
    """Whether anybody waits for the answer still."""
    every: bool = False
    """It receives from all partitions of its queues, also from those that they get meanwhile."""
    check: Check | None = None
    """Called before each look for messages."""


class Leases:
    """The lease groups of all queues."""

    def __init__(
        self, stores: Stores, log: Log, queues: Queues, waiters: Waiters, clock: Clock, monitor: Monitor
    ) -> None:
        self._store, self._queues = stores.leases, queues
        self._waiters, self._clock, self._monitor = waiters, clock, monitor
        self._rooms = Rooms(waiters, clock, stores.messages.stays_open)
        self.note_coming = self._rooms.note_coming
        self._dead_letters = DeadLetters(stores, queues, log, clock, monitor)
        self.note_use: Callable[[Queue, str], None] = lambda queue, group: None
        """Hears of each step of a group."""
        self.note_step: Callable[[Queue], None] = lambda queue: None
        """Hears of each queue whose messages may be settled by more groups than before, or by all that are left."""

    @property
    def default_settings(self) -> GroupSettings:
        """Of a new group."""
        return self._store.default_settings

    def new_group(self, settings: GroupSettings, start: MessageId) -> LeaseGroup:
        """A group that is not stored yet."""
        token = random.getrandbits(63)  # it tells lives of a group apart, and guards nothing
        return LeaseGroup(token, start, settings)

    async def step(
        self,
        step: LeaseStep,
        room: AnswerRoom,
        waiting: Waiting | None = None,
        *,
        has_gone: Callable[[], bool] = lambda: False,
    ) -> LeaseOutcome:
        """Carry out a step, and wait for a message if none can be handed out now.

        What is settled and appended is done at once. See :meth:`queuey.storage.LeaseStore.step` for what is raised. If
        there is no room for the message that comes first, none is handed out.

        :param has_gone: whether no answer reaches the receiver any more. It is asked once messages were handed out, and
            then they are given back: not if the step has an attempt, under which the receiver may ask again, and not
            after a pop, which has settled them.
        :raises TooManyWaiters: nothing is done.
        :raises Throttled: there is no room for the message that comes first, and nothing is done.
        """
        outcome = await self._carry_out(step, room, waiting)
        if not (outcome.handed and has_gone()) or step.attempt is not None or (step.receive and step.receive.pop):
            return outcome
        with suppress(QueueyError):  # then the leases run out
            await self._step(_giving_back(step, outcome))
        return outcome._replace(handed=NOTHING_HANDED)

    async def _carry_out(self, step: LeaseStep, room: AnswerRoom, waiting: Waiting | None) -> LeaseOutcome:
        if step.receive is None:
            if step.attempt is not None and not _has_done(step):
                return await self._withdraw(step, step.attempt)
            return await self._step(step)
        # A look that finds nothing is not remembered, unless the request has done something beside it: so it writes
        # nothing. A repeat looks under the same name, and finds what any look of the first request has handed out.
        first = _within(step if step.attempt is None or _has_done(step) else _only_receive(step), room)
        if waiting is None:
            outcome = await self._step(first)
            if outcome.more:
                outcome = await self._look_on(step, outcome, room)
            if outcome.larger:
                return await self._larger(step, _only_receive(step), outcome, outcome, room)
            return outcome
        with self._rooms.admit(waiting.readers, in_thread=waiting.in_thread) as receiver:
            until = self._clock.elapsed() + waiting.seconds
            receiver.attempt = step.attempt and step.attempt.key
            receiver.is_awaited, receiver.every, receiver.check = waiting.is_awaited, waiting.every, waiting.check
            has_joined = not (step.attempt and _has_done(step)) and self._rooms.have_all(step.groups)
            if has_joined:  # others wait already: mostly there is nothing, and one look will do
                receiver.join(step.groups)
            outcome = await self._step(first)
            if outcome.handed or outcome.gone:
                return outcome
            try:
                return await self._wait(step, outcome, room, receiver, until, has_looked=has_joined)
            except QueueyError:
                if not _has_done(step):
                    raise
                return outcome  # what is done stays done, and its receiver has to know

    async def _look_on(self, step: LeaseStep, outcome: LeaseOutcome, room: AnswerRoom) -> LeaseOutcome:
        """Look again while there are messages to be passed over: in steps of their own, between which others go on."""
        look, until, found = _only_receive(step), self._clock.elapsed() + _LOOK_ON_SECONDS, outcome
        try:
            while found.more and self._clock.elapsed() < until:
                await others_turn()
                found = await self._step(_within(look, room))
        except QueueyError:
            if not _has_done(step):
                raise
            return outcome  # what is done stays done, and its receiver has to know
        return outcome if found is outcome else _with_handed(outcome, found)

    async def _larger(
        self, step: LeaseStep, look: LeaseStep, outcome: LeaseOutcome, found: LeaseOutcome, room: AnswerRoom
    ) -> LeaseOutcome:
        """Look once more, with room for a message that had none.

        :raises Throttled: there is no room for it, and the step has done nothing.
        """
        if room.grow(found.larger):
            found = await self._step(_within(look, room))
        if found.larger and not found.handed and not _has_done(step):
            raise Throttled
        return _with_handed(outcome, found)

    async def _wait(
        self,
        step: LeaseStep,
        outcome: LeaseOutcome,
        room: AnswerRoom,
        receiver: WaitingReceiver,
        until: float,
        *,
        has_looked: bool,
    ) -> LeaseOutcome:
        """:param has_looked: ``outcome`` is that of a look after the receiver joined its rooms."""
        again, found = _only_receive(step), outcome
        if not has_looked:
            receiver.join(again.groups)
        while True:
            if not has_looked:
                if not receiver.is_awaited():
                    return outcome  # nobody gets what it would find; if it was woken, the next receiver looks
                receiver.looks()
                try:
                    if receiver.check is not None:
                        await receiver.check()
                    found = await self._step(_within(again, room))
                except QueueyError:
                    self._rooms.found(receiver)  # it has not seen what it was woken for: the next receiver looks
                    raise
            has_looked = False
            if found.handed or found.gone or found.more or found.larger:
                self._rooms.found(receiver)
            if found.larger:
                return await self._larger(step, again, outcome, found, room)
            is_over = self._waiters.ended or self._clock.elapsed() >= until or not receiver.is_awaited()
            if found.handed or found.gone or is_over:
                return _with_handed(outcome, found)
            if found.more:
                await others_turn()
                continue
            before, again = again, await _with_new_partitions(self._queues, again) if receiver.every else again
            if again is not before:
                receiver.move(again.groups)
                continue
            with room.waiting():
                await receiver.wait(until)
            if self._clock.elapsed() >= until and not receiver.has_heard:
                return outcome

    async def _withdraw(self, step: LeaseStep, attempt: IdempotencyKey) -> LeaseOutcome:
        """Let a receiver that waits under this attempt wait no more, here or at another server.

        :raises KeyReused: it has got messages, or done something else.
        """
        await self._step(step._replace(attempt=_waited(attempt)))
        try:
            return await self._step(step)
        finally:
            for one in step.groups:
                self._rooms.wake(one.queue.uuid, one.name, attempt.key)

    async def _step(self, step: LeaseStep) -> LeaseOutcome:
        outcome = await self._store.step(step)
        if outcome.repeated:
            return outcome
        if step.appends:
            for request, appended in zip(step.appends, outcome.appended, strict=True):
                if not appended.repeated:
                    self._waiters.arrived(request.queue, appended.placed)
        if self._rooms.has_receivers:
            self._ring(step, outcome)
        counted = _counted(step, outcome, self._clock.now_ticks())
        self._monitor.stepped(step.groups[0].queue.application, counted)
        if outcome.given_up:
            buried = [future.start(self._dead_letters.bury(step.groups[one.group], one)) for one in outcome.given_up]
            for each in buried:
                await each
        for one in step.groups:
            self.note_use(one.queue, one.name)
            if one.queue.retention is Retention.ACKNOWLEDGED and _may_settle(step, one, outcome):
                self.note_step(one.queue)
        return outcome

    def _ring(self, step: LeaseStep, outcome: LeaseOutcome) -> None:
        """Let receivers that wait hear of what the step did."""
        seconds = None if outcome.next_due is None else (outcome.next_due - outcome.now) / TICKS_PER_SECOND
        for one in step.groups:
            self._rooms.next_due(one, seconds)
            if outcome.frees and (one.settles or one.passes):
                self._rooms.ring(one.queue.uuid, one.name, {*one.settles, *one.passes})

    async def settled_by_all(self, queue: Queue) -> Mapping[int, MessageId]:
        """By partition, an id up to which each lease group of a queue has settled all messages; empty without a group."""
        found: dict[int, MessageId] = {}
        start = ""
        while names := await self._groups(queue, start, _GROUPS):
            for counts in [self.count(queue, name) for name in names]:
                for number, one in (await counts).items():
                    found[number] = min(found.get(number, one.done_up_to), one.done_up_to)
            if len(names) < _GROUPS:
                break
            start = names[-1] + "\0"
        return found

    async def pass_over(self, queue: Queue, places: Mapping[int, MessageId]) -> None:
        """Settle all messages up to some places in each group of a queue, since they are gone.

        :param places: by partition, not past the watermark.
        """
        start = ""
        while names := await self._store.list_groups(queue.uuid, start=start, limit=_GROUPS):
            for name in names:
                await self._pass_over(queue, name, places)
            start = names[-1] + "\0"

    async def _pass_over(self, queue: Queue, name: str, places: Mapping[int, MessageId]) -> None:
        left = dict(places)
        while left:
            step = LeaseStep([GroupStep(queue, name, None, passes=left)])
            with suppress(LeaseGroupNotFound):
                await self._step(step)
            counts = await self._store.count(queue.uuid, name, [*left])
            left = {number: left[number] for number, one in counts.items() if one.done_up_to < left[number]}

    # Groups

    def find(self, queue: Queue, name: str) -> Future[LeaseGroup | None]:
        """See :meth:`queuey.storage.LeaseStore.find_group`."""
        return self._store.find_group(queue.uuid, name)

    async def keep(self, queue: Queue, name: str, group: LeaseGroup, before: LeaseGroup | None) -> bool:
        """See :meth:`queuey.storage.LeaseStore.keep_group`. Waiting receivers look again: more may be allowed now."""
        done = await self._store.keep_group(queue.uuid, name, group, before)
        self._rooms.ring(queue.uuid, name)
        self.note_step(queue)  # one that begins anew at the end has settled what is there
        return done

    def groups(self, queue: Queue, *, start: str, limit: int) -> Future[Sequence[str]]:
        """Groups by name, starting with ``start``, but for those of tasks: their names have a colon."""
        return future.start(self._groups(queue, start, limit))

    async def _groups(self, queue: Queue, start: str, limit: int) -> Sequence[str]:
        found: list[str] = []
        while names := await self._store.list_groups(queue.uuid, start=start, limit=limit):
            found += [name for name in names if ":" not in name]
            if len(found) >= limit or len(names) < limit:
                break
            start = names[-1] + "\0"
        return found[:limit]

    async def forget(self, queue: Queue, name: str) -> None:
        """Forget a group and its leases."""
        await self._store.forget_group(queue.uuid, name)
        self._rooms.ring(queue.uuid, name)
        self.note_step(queue)  # the other groups may have settled what this one had not

    def count(self, queue: Queue, name: str) -> Future[Mapping[int, LeaseCounts]]:
        """What a group holds, by partition."""
        return self._store.count(queue.uuid, name, range(1, queue.partitions + 1))

    def held(self, queue: Queue, name: str, partition: int, *, after: MessageId, limit: int) -> Future[HeldPage]:
        """See :meth:`queuey.storage.LeaseStore.held`."""
        return self._store.held(queue.uuid, name, partition, after=after, limit=limit)


async def _with_new_partitions(queues: Queues, step: LeaseStep) -> LeaseStep:
    """The same step if no queue of it has got partitions; else it receives from those, too."""
    found = [await queues.find(one.queue.application, one.queue.name) for one in step.groups]
    groups = [
        one
        if queue is None or queue.uuid != one.queue.uuid or queue.partitions <= one.queue.partitions
        else one._replace(queue=queue, receive_from=range(1, queue.partitions + 1))
        for one, queue in zip(step.groups, found, strict=True)
    ]
    return step if all(map(is_, groups, step.groups)) else step._replace(groups=groups)


def _giving_back(step: LeaseStep, outcome: LeaseOutcome) -> LeaseStep:
    """Releases what a step has handed out, at once and without a failure."""
    groups: dict[int, dict[int, Sequence[Settle]]] = {}
    for group, partition, messages, leases in outcome.handed.parts:
        ids = map(MessageId, messages.ticks, messages.tails)
        settles = groups.setdefault(group, {})
        settles[partition] = [
            *settles.get(partition, ()),
            *[
                Settle(id_, one.deliveries, Action.RELEASE, 0.0, counts=False)
                for id_, one in zip(ids, leases, strict=True)
            ],
        ]
    steps = [
        GroupStep(step.groups[at].queue, step.groups[at].name, None, outcome.tokens[at], groups[at]) for at in groups
    ]
    return LeaseStep(steps)


def _counted(step: LeaseStep, outcome: LeaseOutcome, now_ticks: int) -> LeasesCounted:
    due = _first_due(outcome) if outcome.handed else None
    return LeasesCounted(
        len(outcome.handed),
        outcome.expired,
        None if due is None else max((now_ticks - due) / TICKS_PER_SECOND, 0.0),
        outcome.worked / TICKS_PER_SECOND if outcome.worked else None,
        len(outcome.stale),
        settled_of(step, outcome),
    )


def _first_due(outcome: LeaseOutcome) -> int | None:
    """When the oldest message that is handed out for the first time was due, in ticks; None if there is none.

    In each part, messages that were handed out before come first.
    """
    handed = outcome.handed
    if type(handed) is HandedAlone:
        return handed.message.ticks if handed.lease.deliveries == 1 else None
    firsts = [
        part.messages.ticks[
            0
            if part.leases[0].deliveries == 1
            else next(at for at, lease in enumerate(part.leases) if lease.deliveries == 1)
        ]
        for part in handed.parts
        if part.leases[-1].deliveries == 1
    ]
    return min(firsts, default=None)


def _only_receive(step: LeaseStep) -> LeaseStep:
    """The receive of a step alone, as each look after the first asks for it.

    If the request has done something beside it, its attempt has another name here, so a repeat finds both answers.
    """
    attempt = step.attempt
    return step._replace(
        groups=[one._replace(token=None, settles={}, renewals=()) for one in step.groups],
        appends=(),
        looks_again=True,
        attempt=_waited(attempt) if attempt is not None and _has_done(step) else attempt,
    )


def _waited(attempt: IdempotencyKey) -> IdempotencyKey:
    """The name of what an attempt hands out after a wait."""
    return attempt._replace(key=f"{attempt.key} waited")


def _within(step: LeaseStep, room: AnswerRoom) -> LeaseStep:
    """The step, with no more messages than have room."""
    receive = step.receive
    if receive is None or receive.max_bytes == room.bytes:
        return step
    return step._replace(receive=receive._replace(max_bytes=room.bytes))


def _may_settle(step: LeaseStep, one: GroupStep, outcome: LeaseOutcome) -> bool:
    """Whether a group may be further than before.

    A receive that hands messages out, and does nothing else, lets them stay; one that finds none may have passed over some.
    """
    receives_only = step.receive is not None and not step.receive.pop and outcome.handed
    return bool(one.settles or one.passes or outcome.given_up or not receives_only)


def _has_done(step: LeaseStep) -> bool:
    """Whether a step did something, so that it cannot be refused any more."""
    return bool(step.appends or any(one.settles or one.renewals for one in step.groups))


def _with_handed(outcome: LeaseOutcome, found: LeaseOutcome) -> LeaseOutcome:
    """What a step did, with what a later look handed out."""
    return outcome._replace(
        now=found.now,
        wall=found.wall,
        tokens=found.tokens,
        handed=found.handed,
        is_full=found.is_full,
        larger=found.larger,
        more=found.more,
    )


def settled_of(step: LeaseStep, outcome: LeaseOutcome) -> Mapping[str, int]:
    """How many leases were settled, by the word for it on the wire."""
    if len(step.groups) == 1 and not outcome.stale:
        by_partition = step.groups[0].settles
        if not by_partition:
            return _NOTHING_SETTLED
        if len(by_partition) == 1 and type(one := next(iter(by_partition.values()))) is Acknowledged:
            return {_ACKNOWLEDGE: len(one.ids)}
    found: dict[str, int] = {}
    stale = {tuple(one) for one in outcome.stale} if outcome.stale else ()
    for index, group in enumerate(step.groups):
        for partition, settles in group.settles.items():
            if not stale and type(settles) is Acknowledged:
                found[_ACKNOWLEDGE] = found.get(_ACKNOWLEDGE, 0) + len(settles)
                continue
            actions = [one.action for one in settles]
            if stale:
                actions = [action for at, action in enumerate(actions) if (index, partition, at) not in stale]
            for action, word in _WORDS:
                number = actions.count(action)
                if number:
                    found[word] = found.get(word, 0) + number
    return found


_NOTHING_SETTLED: Mapping[str, int] = MappingProxyType({})
_ACKNOWLEDGE = Action.ACKNOWLEDGE.value
_WORDS: list[tuple[Action, str]] = [
    *[(action, action.value) for action in Action if action not in (Action.MOVED, Action.REMOVE)],
    (Action.REMOVE, _ACKNOWLEDGE),
]
