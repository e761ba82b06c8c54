"""The calls of one lease group on one server.

They wait in a line. One thread takes all that wait, carries them out in memory one after the other, and stores them in
one transaction. So a server's calls never meet each other in a compare-and-set, and many calls cost little more than
one. Servers that use one group take turns (:mod:`queuey.storage.cassandra.lease_turns`).

What is in memory is what was stored at a version of the group. A transaction requires that version. What a call answers
without writing is checked against the version as well. So no call answers by what another server has changed.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import NamedTuple

from queuey.errors import OutcomeUnknown, QueueNotFound, QueueyError, StorageUnavailable
from queuey.future import Future, settled_together, start
from queuey.ids import TICKS_PER_SECOND
from queuey.locks import new_lock
from queuey.model import Consistency
from queuey.storage.cassandra.lease_access import GroupAccess, GroupCall
from queuey.storage.cassandra.lease_ahead import Demand
from queuey.storage.cassandra.lease_carrying import Carrying
from queuey.storage.cassandra.lease_heads import GroupHead, GroupPlace, Parcel
from queuey.storage.cassandra.lease_homes import AtHomeElsewhere
from queuey.storage.cassandra.lease_memory import BUSY, GroupMeans, GroupMemory
from queuey.storage.cassandra.lease_parcels import MOST_BYTES
from queuey.storage.cassandra.lease_rows import StoredGroup
from queuey.storage.cassandra.lease_turns import LeaseTurns
from queuey.storage.cassandra.lease_weak import Lanes, WeakAccess, WeakGroup
from queuey.storage.cassandra.lease_work import GroupTask, awaited
from queuey.storage.cassandra.session import ALL_CENTRES, Rows
from queuey.storage.leasing import ATTEMPT_SECONDS

__all__ = ["LeaseLine"]

log = logging.getLogger(__name__)

TRIES = 20
"""How often calls are carried out anew while other servers change the same group."""
_LEAST_PAUSE_SECONDS, _MOST_PAUSE_SECONDS = 0.002, 0.1
CALLS_TOGETHER = 64
"""Calls of one transaction."""
_CHECKS = 20
"""Transactions before which changes of others are looked for, once another server has changed the group."""
_LOOK_SECONDS, _MOST_LOOK_SECONDS = 0.004, 0.02
"""How long it takes until changes of servers that go first are looked for again."""
MOST_WAIT_SECONDS = ATTEMPT_SECONDS / 2
"""A call that waited longer is not begun: its attempt may have been repeated at another server, and be forgotten there."""
_CLOSED = "the store is closed: nothing was done, try again"
_LATE = "this server stood still: nothing was done, try again"
_NO_PARCELS: Mapping[bytes, Parcel] = {}


class _Storing(NamedTuple):
    """Changes of a weak group that are being stored."""

    calls: Sequence[GroupCall]
    weak: WeakGroup
    head: GroupHead
    parts: Sequence[tuple[int, bytes]]
    brought: Sequence[tuple[Parcel, GroupCall]]
    told: Future[Rows] | None
    """None if there is nothing to store."""


class LeaseLine:
    """The calls of one group. Thread-safe."""

    def __init__(self, means: GroupMeans, place: GroupPlace) -> None:
        self._means, self._place = means, place
        self._error_ticks = round(means.server.timing.clock_error_seconds * TICKS_PER_SECOND)
        self._carrying = Carrying(means.carrier, means.rows.session, place)
        self.memory = GroupMemory(means, place)
        self._lock = new_lock()
        self._waiting: deque[GroupCall] = deque()
        self._is_served = False
        self._moment = 0
        self._turns = LeaseTurns(means.homes.name)
        self._began = 0.0
        """When the transaction began."""
        self._checks = 0
        """Transactions before which changes of others are looked for."""
        self._has_looked = False
        """They were looked for a moment ago."""
        self._storing: _Storing | None = None
        self._task = GroupTask(means.work, self._serve)

    @property
    def is_idle(self) -> bool:
        return not self._is_served

    def doubt(self) -> None:
        """This server has changed the group beside: look at it before the next calls."""
        self._checks = max(self._checks, 1)
        self.memory.doubt()

    def submit(self, call: GroupCall) -> None:
        """Let a call be carried out; its future tells the outcome."""
        call.since = self._means.server.clock.elapsed()
        with self._lock:
            self._waiting.append(call)
            if self._is_served:
                return
            self._is_served = True
        self._begin()

    def _begin(self) -> None:
        try:
            self._task.begin()
        except RuntimeError:  # the threads have ended
            if self._storing is not None:
                _leave_unknown(self._storing.calls, OutcomeUnknown())
                self._storing = None
            while self._has_calls():
                _fail(self._joined([]), StorageUnavailable(_CLOSED))

    def _serve(self) -> None:
        while self._has_calls():
            calls = self._joined([])
            try:
                self._carry_out(calls)
                if not self._waiting:
                    self._finish()
                self.memory.measure()
            except BaseException as error:
                log.exception("calls of the lease group %s of queue %s failed", self._place[1], self._place[0])
                failed = [*calls, *(() if self._storing is None else self._storing.calls)]
                # Whatever state the memory is in, the next calls are served.
                self.memory, self._storing = GroupMemory(self._means, self._place), None
                _fail(failed, error)
            if self._task.goes_on_elsewhere():
                if self._has_calls():
                    self._begin()
                return

    def _has_calls(self) -> bool:
        """Whether calls wait. If none does, nobody serves them from here on."""
        with self._lock:
            self._is_served = bool(self._waiting)
            return self._is_served

    def _has_moved(self, calls: list[GroupCall]) -> bool:
        """If servers make steps of an exact group at once, leave its home those calls that others may carry out.

        :returns: whether none is left to this server.
        """
        homes, now = self._means.homes, perf_counter()
        if self._turns.have_met(now):
            homes.meet(self._place, self._turns.met(now))
        if homes.home(self._place) is not None:
            moved = [call for call in calls if call.may_move]
            calls[:] = [call for call in calls if not call.may_move]
            with settled_together():
                for call in moved:
                    call.future.set_error(AtHomeElsewhere())
        return not calls

    def _await_turn(self) -> None:
        """Let the servers go first whose turn it is, and learn what they change."""
        turns = self._turns
        turns.ask(perf_counter())
        self._has_looked = False
        while self.memory.is_known and self.memory.weak is None and (left := turns.left(perf_counter())) > 0:
            seconds = min(left, max(turns.expected(perf_counter()), _LOOK_SECONDS), _MOST_LOOK_SECONDS)
            awaited(self._means.rows.session.pause(seconds))
            self._has_looked = self._catch_up()
        turns.take(perf_counter())

    def _joined(self, calls: list[GroupCall]) -> list[GroupCall]:
        """These calls, and those that wait, as far as one transaction has room."""
        size = sum(call.size for call in calls)
        with self._lock:
            while self._waiting and len(calls) < CALLS_TOGETHER:
                size += self._waiting[0].size
                if calls and size > MOST_BYTES:
                    break
                calls.append(self._waiting.popleft())
        return calls

    def _carry_out(self, calls: list[GroupCall]) -> None:
        """Carry out calls, until no other server's change comes in between."""
        pause, looks_up = _LEAST_PAUSE_SECONDS, False
        for _ in range(TRIES):
            if self._place[0] in self._means.server.dropped:
                _fail(calls, QueueNotFound())
                return
            try:
                if self._try(calls, looks_up=looks_up):
                    return
                looks_up = True
                self.memory.undo()
                self._checks = _CHECKS
                awaited(self._means.rows.session.pause(random.uniform(0, pause)))  # noqa: S311 - spreads, hides nothing
                self._catch_up()
            except QueueyError as error:
                self.memory.forget()
                _fail(calls, error)
                return
            pause = min(2 * pause, _MOST_PAUSE_SECONDS)
        _fail(calls, StorageUnavailable(BUSY))

    def _try(self, calls: list[GroupCall], *, looks_up: bool) -> bool:
        """Carry out calls once.

        Attempts of an exact group are mostly new. So they are taken for new at first, and the transaction finds out: it
        is not done if one of them is there.

        :param calls: those that come while it is the turn of other servers join them. In a weak group none joins them:
            what others had done when a call came is to be seen.
        :param looks_up: attempts are looked up before.
        :returns: False if another server's change came in between, or an attempt is not new; then nothing is done.
        """
        memory, server = self.memory, self._means.server
        looking = memory.look(follows=self._storing is not None)
        watermark, now_ticks = server.watermark(), server.clock.now_ticks()
        memory.ahead.prepare(memory.books, watermark, now_ticks, Demand.by(calls))
        if looking is None:
            if self._has_moved(calls):
                return True
            self._await_turn()
            self._joined(calls)
        self._finish()
        if memory.weak is not None and memory.weak.is_alone:
            self._joined(calls)
        self._began, is_fresh = perf_counter(), self._know(looking)
        _refuse_late(calls, server.clock.elapsed())
        if not calls:
            return True
        weak = memory.weak
        looks_up = looks_up or weak is not None or memory.stored is None
        attempts = memory.attempts(calls) if looks_up else None
        if looks_up and attempts is None:
            return False
        what = (server, self._means.messages, memory.stored, attempts, (watermark, now_ticks))
        access = GroupAccess(*what) if weak is None else WeakAccess(weak, *what)
        if weak is not None:
            weak.begin(memory.books)
        unkept = access.run_all(calls, memory.book, self._now)
        memory.book.save(access)
        if not (looks_up or memory.are_new(unkept)):
            return False
        memory.ahead.note(memory.books)
        memory.ahead.look_on(memory.books, watermark, now_ticks, calls)
        if isinstance(access, WeakAccess):
            self._store_weakly(calls, access)
            return True
        if access.writes:
            return self._commit(calls, access)
        if not is_fresh and not memory.is_current():
            return False
        self._answer(calls)
        return True

    def _know(self, looking: Future[Lanes] | None) -> bool:
        """Have the group in memory.

        :param looking: at a weak group.
        :returns: whether it was stored like this after this call began.
        """
        memory, is_fresh = self.memory, False
        if memory.weak is not None:
            if not memory.learn(memory.weak, looking):
                memory.forget()
        elif memory.is_known and self._checks and not self._has_looked:
            self._checks -= 1
            is_fresh = self._catch_up()
        if not memory.is_known:
            self._means.work.aside(memory.load)
            is_fresh = True
            self._note_read(parcels=True)
        return is_fresh

    def _catch_up(self) -> bool:
        """Learn what other servers have changed; False if the group is forgotten, to be read anew."""
        known, memory = self.memory.stored, self.memory
        if not memory.is_known:
            return False
        if not memory.catch_up():
            memory.forget()
            self._checks = _CHECKS
            return False
        if memory.stored is not known:
            self._checks = _CHECKS
            self._note_read(parcels=memory.has_new_parcels)
        return True

    def _note_read(self, *, parcels: bool) -> None:
        """:param parcels: those that wait were read as well."""
        stored = self.memory.stored
        if stored is not None:
            if stored.head.group.settings.exact:  # servers of a weak group need not wait for each other
                self._turns.note(stored.head, perf_counter())
            if parcels:
                self._carrying.know(stored.head.group.token, stored.parcels)

    def _now(self) -> int:
        """This moment on the clock of leases: no server's is ahead of the time, and it rises in each group.

        So what one server gives for a time, no other takes for due before. A lease is shorter than asked by up to twice
        the bound of the clocks' error.

        :raises ClockUnsafe: the clock was stepped while the call waited. By such a moment all leases of the group would
            have run out, at all servers.
        """
        head, server = self.memory.head, self._means.server
        wall = server.clock.now_ticks() - self._error_ticks
        server.check_clock()
        self._moment = max(wall, (0 if head is None else head.moment) + 1, self._moment + 1)
        return self._moment

    def _commit(self, calls: Sequence[GroupCall], access: GroupAccess) -> bool:
        """Store what the calls have changed, and answer them.

        :returns: False if another server's change came in between; then nothing is done.
        """
        memory, rows, carrying = self.memory, self._means.rows, self._carrying
        head = memory.next_head(access.made, self._turns.name(len(access.changed)))
        carried = max(head.carried, carrying.carried(head.version) if memory.stored is not None else 0)
        head = head._replace(
            moment=self._moment, carried=carried, parts=max([head.parts, *(part for part, _ in access.changed)])
        )
        brought = access.parcels(head)
        if brought:
            carrying.announce()
            head = head._replace(newest=head.version)
        token, parcels = head.group.token, [parcel for parcel, _ in brought]
        change = rows.begin if memory.stored is None else rows.advance
        carrying.take(token, parcels)
        is_done = False
        try:
            is_done = awaited(start(change(self._place, head, access.statements(self._place, head))))
            self._means.server.observer.leases.compared_and_set(is_lost=not is_done)
            self._turns.took(perf_counter() - self._began, is_lost=not is_done)
        except OutcomeUnknown as unknown:
            memory.forget()
            _leave_unknown(calls, unknown)
            return True
        finally:
            if not is_done:
                carrying.drop(token, parcels)
        if is_done:
            if memory.stored is None:
                carrying.know(token, {})
            memory.advance(head)
            self._turns.note(head, perf_counter())
            carrying.stored(token, parcels, head.moment)
            self._answer(calls, {call.step: parcel for parcel, call in brought})
        return is_done

    def _store_weakly(self, calls: Sequence[GroupCall], access: WeakAccess) -> None:
        """Begin to store what the calls have changed in a weak group. :meth:`_finish` answers them.

        Meanwhile the lanes are looked at for the next calls, and messages are read for them.
        """
        memory, weak, session = self.memory, self.memory.weak, self._means.rows.session
        assert memory.stored is not None  # noqa: S101 - the group is known
        assert weak is not None  # noqa: S101 - the access is of a weak group
        head = memory.stored.head._replace(moment=self._moment)
        token, brought, parts = head.group.token, access.parcels(head), access.parts
        statements = access.beside_state(self._place, head)
        if parts:
            statements += weak.rows(token, self._moment, parts)
        told: Future[Rows] | None = None
        if brought:
            self._carrying.announce()
        if statements:
            level = ALL_CENTRES if brought else session.to_write(Consistency.WEAK)
            self._carrying.take(token, [parcel for parcel, _ in brought])
            told = session.tell_several(statements, level)
        self._storing = _Storing(calls, weak, head, parts, brought, told)

    def _finish(self) -> None:
        """Wait until the last changes of a weak group are stored, and answer their calls.

        If they are not, or nobody knows, the group is forgotten. Their calls stay known until all are answered, so a
        mistake on the way there leaves none without an answer.
        """
        storing = self._storing
        if storing is None:
            return
        calls, weak, head, parts, brought, told = storing
        parcels = [parcel for parcel, _ in brought]
        try:
            if told is not None:
                awaited(told)
        except (OutcomeUnknown, StorageUnavailable) as error:
            self._carrying.drop(head.group.token, parcels)
            self.memory.forget()
            if isinstance(error, OutcomeUnknown):
                _leave_unknown(calls, error)
            else:
                _fail(calls, error)
            self._storing = None
            return
        if told is not None:
            self._carrying.stored(head.group.token, parcels, head.moment)
            self.memory.book.settled()
            weak.stored(head.group, parts, calls)
        self._answer(calls, {call.step: parcel for parcel, call in brought})
        self._storing = None
        if weak.is_due:
            self._fold(weak)

    def _fold(self, weak: WeakGroup) -> None:
        """Let a base replace the rows of a weak group, if most replicas answer. If not, it is due again later."""
        memory, rows = self.memory, self._means.rows
        group = memory.book.known(*self._place)
        if memory.stored is None or group is None:
            return
        weak.is_due = False
        try:
            head = awaited(start(rows.head(self._place, serially=True)))
            if head is None or head.group != memory.stored.head.group:
                return  # the next call sees it
            statements, unused = weak.folded(group, memory.stored, self._moment)
            memory.stored = StoredGroup(head, unused, {})
            head = head.next(self._turns.name(0))._replace(moment=self._moment)
            if awaited(start(rows.advance(self._place, head, statements))):
                memory.advance(head)
        except QueueyError as error:
            log.debug("a weak lease group is folded later: %s", error)

    def _answer(self, calls: Sequence[GroupCall], parcels: Mapping[bytes, Parcel] = _NO_PARCELS) -> None:
        if self.memory.stored is not None:
            self._carrying.carry_left(self._moment)
        with settled_together():
            for call in calls:
                if isinstance(call.result, QueueyError):
                    call.future.set_error(call.result)
                elif call.appends:
                    start(self._carrying.append(call, parcels.get(call.step)))
                else:
                    call.future.set_result(call.result)


def _refuse_late(calls: list[GroupCall], elapsed: float) -> None:
    """Refuse those calls that nobody waits for any more, since this server stood still.

    If others change the group from now on, the transaction of the other calls fails.
    """
    since = elapsed - MOST_WAIT_SECONDS
    _fail([call for call in calls if call.since < since], StorageUnavailable(_LATE))
    calls[:] = [call for call in calls if call.since >= since]


def _leave_unknown(calls: Sequence[GroupCall], unknown: OutcomeUnknown) -> None:
    """Nobody knows what is stored of what these calls do. Those that were refused, or only look, do nothing."""
    for call in calls:
        does_nothing = call.only_looks or isinstance(call.result, QueueyError)
        call.future.set_error(StorageUnavailable() if does_nothing else unknown)


def _fail(calls: Sequence[GroupCall], error: BaseException) -> None:
    """Give all of these calls an error that have no outcome yet, also if what waits for one of them raises something."""
    for call in calls:
        try:
            if not call.future.done:
                call.future.set_error(error)
        except Exception:
            log.exception("what waits for a call of a lease group has failed")
