"""Lease groups in Cassandra, of any number of servers in one keyspace (G21 to G24).

Each step of a group is one lightweight transaction on the group's rows (:mod:`queuey.storage.cassandra.lease_rows`).
What a server has in memory is checked against their version with each step
(:mod:`queuey.storage.cassandra.lease_lines`). Messages that a step appends are stored with it, and then carried to
their queues (:mod:`queuey.storage.cassandra.lease_parcels`).
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from uuid import UUID

from queuey.errors import QueueNotFound, StorageUnavailable
from queuey.future import Future, Inbox
from queuey.ids import MessageId
from queuey.locks import new_lock
from queuey.model import PartitionId
from queuey.model.lease_groups import AUTO, GroupSettings, LeaseGroup
from queuey.model.lease_steps import HeldPage, LeaseCounts, LeaseOutcome, LeaseStep
from queuey.storage.cassandra.lease_access import GroupAccess, GroupCall
from queuey.storage.cassandra.lease_heads import GroupHead, StepName
from queuey.storage.cassandra.lease_homes import AtHomeElsewhere, LeaseHomes
from queuey.storage.cassandra.lease_left import LeftParcels
from queuey.storage.cassandra.lease_lines import LeaseLine
from queuey.storage.cassandra.lease_memory import GroupMeans
from queuey.storage.cassandra.lease_parcels import Carrier, refuse_large
from queuey.storage.cassandra.lease_rows import LeaseRows
from queuey.storage.cassandra.lease_several import SeveralGroups
from queuey.storage.cassandra.lease_work import GroupWork
from queuey.storage.cassandra.links import Links
from queuey.storage.cassandra.messages import CassandraMessages
from queuey.storage.cassandra.server import CassandraServer
from queuey.storage.cassandra.session import CassandraSession, is_forked
from queuey.storage.leasing import LeaseStore
from queuey.storage.leasing.book import MOST_AHEAD_BYTES, MOST_GROUPS, MOST_HOLES, LeaseBook
from queuey.storage.leasing.looking import counted, held_after
from queuey.storage.leasing.stepping import carry_out

__all__ = ["CassandraLeases"]

T = TypeVar("T")

_TRIM_STEPS, _TRIM_BYTES = 1000, 128 << 20
"""Steps, and bytes by which groups grow in memory, after which those that were not used longest are forgotten. Groups grow
whenever they read ahead, and to read a forgotten one again takes more than that."""


class CassandraLeases(LeaseStore):
    """The lease groups of one keyspace.

    - A step of one group is done whole or not at all, among all servers. What it appends is stored if and only if what
      it settles is; readers may see it a moment later, or earlier than the answer. A step may append one message, or
      4 MiB.
    - A step of several groups is one such step for each, in order, after all of them were looked at. If something comes
      in between, or a node fails, some of it may be done: then the error is
      :class:`~queuey.errors.OutcomeUnknown`, and a repeat of the attempt does the rest. What it appends is stored with
      the first group. A message that is the first group's only one counts as handed out alone.
    - Leases run by the wall clocks of servers, less the bound of their error: a lease is shorter than asked by up to
      twice that, and never runs while another server hands the message out. A server whose clock is off refuses.
    - A message that another server has deleted or overwritten may be handed out as it was for a second.
    """

    default_settings = GroupSettings(k=AUTO)

    def __init__(self, server: CassandraServer, messages: CassandraMessages, links: Links | None = None) -> None:
        """:param links: by which other servers reach this one; None if they cannot."""
        self._server = server
        self._rows = LeaseRows(server.session)
        self._carrier = Carrier(server, self._rows, messages.appender)
        self.left = LeftParcels(server, self._rows, self._carrier)
        self._work = GroupWork()
        self.homes = LeaseHomes(server, self._step_for_other, links)
        self._means = GroupMeans(server, messages, self._rows, self._carrier, self._work, self.homes)
        self._several = SeveralGroups(self._step_one, self._look)
        self._lock = new_lock()
        self._lines: OrderedDict[tuple[UUID, str], LeaseLine] = OrderedDict()
        """The one that was used last comes last."""
        self._until_trim = _TRIM_STEPS

    def use_loop(self, inbox: Inbox | None) -> None:
        """See :meth:`queuey.storage.leasing.LeaseStore.use_loop`."""
        self._work.use(inbox, self._server.timing.request_seconds)

    # Steps

    def step(self, step: LeaseStep) -> Future[LeaseOutcome]:
        """See :meth:`queuey.storage.leasing.LeaseStore.step`, and this class.

        :raises MessageTooLarge: it appends several messages of more than 4 MiB; nothing is done.
        :raises ClockUnsafe: this server's clock may be too far off; nothing is done.
        :raises StorageUnavailable: nothing is done.
        :raises OutcomeUnknown: it may be done, or some of it; a repeat of the attempt finds out.
        """
        return self._server.underway.start(self._step(step))

    async def _step(self, step: LeaseStep) -> LeaseOutcome:
        _refuse_forked(self._server.session)
        refuse_large(step.appends)
        for one in step.groups:
            if one.queue.uuid in self._server.dropped:
                raise QueueNotFound
        if len(step.groups) > 1:
            return await self._several.step(step)
        return await self._step_one(step)

    async def _step_one(self, step: LeaseStep) -> LeaseOutcome:
        """A step of one group, carried out where the group is at home."""
        (one,) = step.groups
        place = (one.queue.uuid, one.name)
        if self.homes.home(place) is None:
            self.homes.note_own(place)
            with suppress(AtHomeElsewhere):
                return await self._step_here(step, may_move=True)
        home = self.homes.home(place)
        if any(each.queue.uuid in self._server.dropped for each in step.appends):
            home = None  # other servers do not know yet that the queue is gone
        outcome = None if home is None else await self.homes.hand_over(home, place, step)
        return await self._step_here(step) if outcome is None else outcome

    def _step_for_other(self, step: LeaseStep) -> Future[LeaseOutcome]:
        """Carry out a step of one group that another server has handed over."""
        if step.groups[0].queue.uuid in self._server.dropped:
            return Future.failed(QueueNotFound())
        return self._server.underway.start(self._step_here(step, may_move=True))

    async def _step_here(self, step: LeaseStep, *, may_move: bool = False) -> LeaseOutcome:
        def job(access: GroupAccess, book: LeaseBook, now: int) -> LeaseOutcome:
            return carry_out(step, access, book, now)

        (one,) = step.groups
        outcome: LeaseOutcome = await self._called(one.queue.uuid, one.name, GroupCall(job, step, may_move=may_move))
        return outcome._replace(wall=outcome.now)  # moments of leases are never later than those of the wall clock

    async def _look(
        self, queue: UUID, name: str, job: Callable[[GroupAccess, LeaseBook, int], T], attempt: str | None = None
    ) -> T:
        """Look at a group as it is."""
        _refuse_forked(self._server.session)
        found: T = await self._called(queue, name, GroupCall(job, attempt=attempt))
        return found

    def _called(self, queue: UUID, name: str, call: GroupCall) -> Future[Any]:
        self._line(queue, name).submit(call)
        return call.future

    def _line(self, queue: UUID, name: str) -> LeaseLine:
        with self._lock:
            line = self._lines.get((queue, name))
            if line is None:
                line = self._lines[queue, name] = LeaseLine(self._means, (queue, name))
            else:
                self._lines.move_to_end((queue, name))
            self._until_trim -= 1
            if self._until_trim <= 0 or self._means.growth.bytes > _TRIM_BYTES:
                self._trim()
            return line

    def _trim(self) -> None:
        """Forget the groups that were not used longest, down to the bounds, but for the last one and those in use.

        As many new ones as there are steps before the next time have room.
        """
        self._until_trim, most = _TRIM_STEPS, MOST_GROUPS - _TRIM_STEPS
        self._means.growth.bytes = 0
        sizes = {place: (line.memory.holes, line.memory.ahead_bytes) for place, line in self._lines.items()}
        holes, ahead = (sum(column) for column in zip(*sizes.values(), strict=True))
        for place, (of_holes, of_ahead) in [*sizes.items()][:-1]:
            helps = (
                len(self._lines) > most or (holes > MOST_HOLES and of_holes) or (ahead > MOST_AHEAD_BYTES and of_ahead)
            )
            if helps and self._lines[place].is_idle:
                del self._lines[place]
                holes, ahead = holes - of_holes, ahead - of_ahead

    # Groups

    def find_group(self, queue: UUID, name: str) -> Future[LeaseGroup | None]:
        if queue in self._server.dropped:
            return Future.of(None)
        return self._server.underway.start(self._find(queue, name))

    async def _find(self, queue: UUID, name: str) -> LeaseGroup | None:
        head = await self._rows.head((queue, name))
        return None if head is None else head.group

    def keep_group(self, queue: UUID, name: str, group: LeaseGroup, before: LeaseGroup | None) -> Future[bool]:
        if queue in self._server.dropped:
            return Future.failed(QueueNotFound())
        return self._server.underway.start(self._keep(queue, name, group, before))

    async def _keep(self, queue: UUID, name: str, group: LeaseGroup, before: LeaseGroup | None) -> bool:
        step = StepName(secrets.randbits(32), 0)
        if before is None:
            done = await self._rows.begin((queue, name), GroupHead(group, 0, 0, b"").next(step))
        else:
            done = await self._rows.set((queue, name), group, before, step, self._carrier.carry_last)
        self._line(queue, name).doubt()
        return done

    def list_groups(self, queue: UUID, *, start: str = "", limit: int = 1000) -> Future[Sequence[str]]:
        if queue in self._server.dropped:
            return Future.of([])
        return self._server.underway.start(self._rows.names(queue, start, limit))

    def forget_group(self, queue: UUID, name: str) -> Future[None]:
        return self._server.underway.start(self._forget(queue, name))

    async def _forget(self, queue: UUID, name: str) -> None:
        await self._rows.end((queue, name), self._carrier.carry_last)
        self._line(queue, name).doubt()

    # Looking

    def count(self, queue: UUID, name: str, partitions: Sequence[int]) -> Future[Mapping[int, LeaseCounts]]:
        if queue in self._server.dropped:
            return Future.of({})

        def job(access: GroupAccess, book: LeaseBook, now: int) -> Mapping[int, LeaseCounts]:
            return counted(access, book, queue, name, partitions)

        return self._server.underway.start(self._look(queue, name, job))

    def held(self, queue: UUID, name: str, partition: int, *, after: MessageId, limit: int) -> Future[HeldPage]:
        if queue in self._server.dropped:
            return Future.of(HeldPage(self._server.clock.now_ticks()))

        def job(access: GroupAccess, book: LeaseBook, now: int) -> HeldPage:
            return held_after(access, book, PartitionId(queue, partition), name, after, limit)._replace(now=now)

        return self._server.underway.start(self._look(queue, name, job))

    def close(self) -> None:
        """End the threads, once no call is under way. May be called again."""
        self.homes.stop()
        self.left.stop()
        self._work.close()


def _refuse_forked(session: CassandraSession) -> None:
    """In the child of a fork, nobody would carry out a call: the loop and the threads are the parent's."""
    if is_forked(session):
        raise StorageUnavailable(*session.problems())
