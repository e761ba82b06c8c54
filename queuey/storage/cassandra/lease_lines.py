"""The calls of one lease group on one server.

They wait in a line. One thread takes all that wait, carries them out in memory one after the other, and stores them in
one transaction. So a server's calls never meet each other in a compare-and-set, and many calls cost little more than
one.

What is in memory is what was stored at a version of the group. A transaction requires that version. What a call answers
without writing is checked against the version as well. So no call answers by what another server has changed.
"""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from uuid import uuid4

from queuey.errors import OutcomeUnknown, QueueNotFound, QueueyError, StorageUnavailable
from queuey.future import start
from queuey.ids import TICKS_PER_SECOND
from queuey.locks import new_lock
from queuey.storage.cassandra.lease_access import GroupAccess, GroupCall, Moment
from queuey.storage.cassandra.lease_parcels import MOST_BYTES, Carrier
from queuey.storage.cassandra.lease_rows import (
    STEP_BYTES,
    GroupHead,
    GroupPlace,
    LeaseRows,
    Parcel,
    StoredGroup,
)
from queuey.storage.cassandra.messages import CassandraMessages
from queuey.storage.cassandra.server import CassandraServer
from queuey.storage.cassandra.session import ALL_CENTRES, Rows
from queuey.storage.leasing.book import LeaseBook

__all__ = ["GroupMeans", "LeaseLine"]

log = logging.getLogger(__name__)

TRIES = 12
"""How often calls are carried out anew while other servers change the same group."""
_LEAST_PAUSE_SECONDS, _MOST_PAUSE_SECONDS = 0.002, 0.25
CALLS_TOGETHER = 64
"""Calls of one transaction."""
FOLD_BYTES = 8 << 10
"""Fewer than elsewhere: servers that meet in one group read its changes again and again."""
AHEAD_SECONDS = 1.0
"""How long messages that were read ahead may be handed out: so long may one still be given that another server has
deleted."""
_CHECKS = 20
"""Transactions before which the version is looked at, once another server has changed the group."""
_CARRIED_AGAIN_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Pauses between the attempts to append what could not be appended."""
_BUSY = "too many servers change this lease group at once: nothing was done, try again"


@dataclass(frozen=True)
class GroupMeans:
    """What all lines of one server share."""

    server: CassandraServer
    messages: CassandraMessages
    rows: LeaseRows
    carrier: Carrier
    threads: ThreadPoolExecutor


class LeaseLine:
    """The calls of one group, and the group in memory. Thread-safe."""

    def __init__(self, means: GroupMeans, place: GroupPlace) -> None:
        self._means, self._place = means, place
        timing = means.server.timing
        self._error_ticks = round(timing.clock_error_seconds * TICKS_PER_SECOND)
        self._grace_ticks = round((2 * timing.request_seconds + 5) * TICKS_PER_SECOND)
        """A parcel that waits longer has lost its server."""
        self._lock = new_lock()
        self._waiting: deque[GroupCall] = deque()
        self._is_served = False
        self._moment = 0
        self._checks = 0
        self._carrying: set[tuple[int, Parcel]] = set()
        """Parcels that this server appends now, with the token of the group."""
        self.holes = self.ahead_bytes = 0
        """What is in memory: holes, and bytes of messages that were read ahead."""
        self._forget()

    def _forget(self) -> None:
        self._is_known = False
        self._stored: StoredGroup | None = None
        self._book = LeaseBook(FOLD_BYTES)
        self._read_at: dict[int, float] = {}
        """By partition, when messages were read ahead."""

    @property
    def is_idle(self) -> bool:
        return not self._is_served

    def doubt(self) -> None:
        """This server has changed the group beside: look at its version before the next calls."""
        self._checks = _CHECKS

    def submit(self, call: GroupCall) -> None:
        """Let a call be carried out; its future tells the outcome."""
        with self._lock:
            self._waiting.append(call)
            if self._is_served:
                return
            self._is_served = True
        try:
            self._means.threads.submit(self._serve)
        except RuntimeError:  # the threads have ended
            while calls := self._next():
                self._fail(calls, StorageUnavailable("the store is closed: nothing was done, try again"))

    def _serve(self) -> None:
        while calls := self._next():
            try:
                self._carry_out(calls)
            except BaseException as error:
                log.exception("calls of the lease group %s of queue %s failed", self._place[1], self._place[0])
                self._forget()
                self._fail(calls, error)
            self._measure()

    def _measure(self) -> None:
        groups = self._book.groups()
        self.holes = sum(group.holes for group in groups)
        self.ahead_bytes = sum(book.ahead_bytes for group in groups for book in group.partitions.values())

    def _next(self) -> list[GroupCall]:
        """The calls of the next transaction; empty if none wait, and then the turn ends."""
        calls, size = list[GroupCall](), 0
        with self._lock:
            while self._waiting and len(calls) < CALLS_TOGETHER:
                size += self._waiting[0].size
                if calls and size > MOST_BYTES:
                    break
                calls.append(self._waiting.popleft())
            self._is_served = bool(calls)
        return calls

    def _fail(self, calls: Sequence[GroupCall], error: BaseException) -> None:
        for call in calls:
            if not call.future.done:
                call.future.set_error(error)

    def _carry_out(self, calls: Sequence[GroupCall]) -> None:
        """Carry out calls, until no other server's change comes in between."""
        pause = _LEAST_PAUSE_SECONDS
        for _ in range(TRIES):
            if self._place[0] in self._means.server.dropped:
                self._fail(calls, QueueNotFound())
                return
            try:
                if self._try(calls):
                    return
            except QueueyError as error:
                self._forget()
                self._fail(calls, error)
                return
            self._forget()
            self._checks = _CHECKS
            time.sleep(random.uniform(0, pause))  # noqa: S311 - spreads, hides nothing
            pause = min(2 * pause, _MOST_PAUSE_SECONDS)
        self._fail(calls, StorageUnavailable(_BUSY))

    def _try(self, calls: Sequence[GroupCall]) -> bool:
        """Carry out calls once.

        :returns: False if another server's change came in between; then nothing is done.
        """
        is_fresh = self._check() if self._is_known and self._checks else False
        if not self._is_known:
            self._load()
            is_fresh = True
        server = self._means.server
        watermark = server.watermark()
        access = GroupAccess(
            server,
            self._means.messages,
            self._stored,
            self._attempts(calls),
            Moment(watermark, server.clock.now_ticks()),
        )
        self._prepare()
        for call in calls:
            self._run(call, access)
        self._note_read()
        if access.writes:
            return self._commit(calls, access)
        if not is_fresh and not self._is_current():
            return False
        self._answer(calls)
        return True

    # Reading

    def _load(self) -> None:
        for _ in range(TRIES):
            self._stored = start(self._means.rows.whole(self._place)).wait()
            if self._stored is None or self._stored.head.version >= 0:
                self._is_known = True
                return
        raise StorageUnavailable(_BUSY)

    def _check(self) -> bool:
        """Look whether another server has changed the group, and forget it then; True if not."""
        if self._is_current():
            self._checks -= 1
            return True
        self._forget()
        self._checks = _CHECKS
        return False

    def _is_current(self) -> bool:
        head = start(self._means.rows.head(self._place)).wait()
        known = None if self._stored is None else self._stored.head
        if head is None or known is None:
            return head is known
        return (head.version, head.group.token) == (known.version, known.group.token)

    def _attempts(self, calls: Sequence[GroupCall]) -> dict[str, Rows]:
        """What is stored under the attempts of these calls; the group must be known before."""
        if self._stored is None:
            return {}
        asked = {
            call.attempt: self._means.rows.session.ask("lease_attempt", (*self._place, call.attempt), ALL_CENTRES)
            for call in calls
            if call.attempt is not None
        }
        return {key: answer.wait() for key, answer in asked.items()}

    def _prepare(self) -> None:
        """Let messages be read again that are readable by now, or may have changed."""
        changed, now = self._means.server.changed, perf_counter()
        for group in self._book.groups():
            for number, book in group.partitions.items():
                book.next_unread = 0
                read = self._read_at.get(number)
                if read is not None and (now - read > AHEAD_SECONDS or changed.since(book.place, read)):
                    book.forget_ahead()
                    del self._read_at[number]
        self._read_begins = now

    def _note_read(self) -> None:
        for group in self._book.groups():
            for number, book in group.partitions.items():
                if len(book.ahead):
                    self._read_at.setdefault(number, self._read_begins)
                else:
                    self._read_at.pop(number, None)

    # Carrying out

    def _now(self) -> int:
        """This moment on the clock of leases: no server's is ahead of the time, and it rises in each group.

        So what one server gives for a time, no other takes for due before. A lease is shorter than asked by up to twice
        the bound of the clocks' error.
        """
        moment = self._stored.head.moment if self._stored is not None else 0
        wall = self._means.server.clock.now_ticks() - self._error_ticks
        self._moment = max(wall, moment + 1, self._moment + 1)
        return self._moment

    def _run(self, call: GroupCall, access: GroupAccess) -> None:
        had_made = access.made
        now = self._now()
        try:
            access.run(call, self._book, now)
        except (StorageUnavailable, OutcomeUnknown):
            raise  # it may have changed what is in memory
        except QueueyError as refused:
            call.result, call.appends = refused, False
            if had_made is None and access.undo_made():
                self._book.forget_group(*self._place)

    def _commit(self, calls: Sequence[GroupCall], access: GroupAccess) -> bool:
        """Store what the calls have changed, and answer them.

        :returns: False if another server's change came in between; then nothing is done.
        """
        step = uuid4().bytes[:STEP_BYTES]
        rows, before = self._means.rows, self._stored
        if before is None:
            assert access.made is not None  # noqa: S101 - nothing is written without a group
            head = GroupHead(access.made, 0, 0, b"").next(step)
        else:
            head = before.head.next(step)
        pending = {} if before is None else before.parcels
        carried = min((parcel.number for parcel in [*pending]), default=head.version) - 1
        head = head._replace(moment=self._moment, carried=max(carried, head.carried))
        parcels = access.parcels(head)
        if parcels:
            head = head._replace(newest=head.version)
        statements = access.statements(self._place, head)
        change = rows.begin if before is None else rows.advance
        held = [(head.group.token, parcel) for parcel, _ in parcels]
        self._carrying.update(held)
        try:
            is_done = start(change(self._place, head, statements)).wait()
        except OutcomeUnknown as unknown:
            self._carrying.difference_update(held)
            self._forget()
            for call in calls:
                is_refused = isinstance(call.result, QueueyError)
                call.future.set_error(StorageUnavailable() if is_refused else unknown)
            return True
        except BaseException:
            self._carrying.difference_update(held)
            raise
        if not is_done:
            self._carrying.difference_update(held)
            return False
        pending.update({parcel: head.moment for parcel, _ in parcels})
        self._stored = StoredGroup(head, {} if before is None else before.changes, pending)
        self._answer(calls, {call.step: parcel for parcel, call in parcels})
        return True

    def _answer(self, calls: Sequence[GroupCall], parcels: dict[bytes, Parcel] | None = None) -> None:
        self._book.settled()
        self._carry_left()
        for call in calls:
            if isinstance(call.result, QueueyError):
                call.future.set_error(call.result)
            elif call.appends:
                start(self._append(call, (parcels or {}).get(call.step)))
            else:
                call.future.set_result(call.result)

    # Appending

    async def _append(self, call: GroupCall, parcel: Parcel | None) -> None:
        """Append what a call appends, and answer it.

        :param parcel: what it has stored; None if it repeats another call.
        """
        carrier, stored = self._means.carrier, self._stored
        token = stored.head.group.token if stored is not None else 0
        try:
            appended = await carrier.append(call.repeats or call.step, call.requests)
        except Exception as error:  # noqa: BLE001 - the error is the call's, and what is stored is appended later
            log.warning("messages of a lease step are appended later: %s", error)
            unknown = OutcomeUnknown("the leases are settled, and the messages are appended later")
            unknown.__cause__ = error
            call.future.set_error(unknown)
            if parcel is not None:
                await self._carry_later(token, parcel)
            return
        call.future.set_result(call.result._replace(appended=appended))
        if parcel is not None:
            await self._forget_parcel(token, parcel)

    async def _forget_parcel(self, token: int, parcel: Parcel) -> None:
        try:
            await self._means.carrier.forget(self._place, parcel)
        except QueueyError as error:
            log.debug("a parcel is carried again: %s", error)
        else:
            self._is_carried(parcel)
        finally:
            self._carrying.discard((token, parcel))

    async def _carry_later(self, token: int, parcel: Parcel) -> None:
        for seconds in _CARRIED_AGAIN_SECONDS:
            await self._means.rows.session.pause(seconds)
            if await self._carry(token, parcel):
                return

    def _carry_left(self) -> None:
        """Append what other servers have left behind."""
        if self._stored is None or not self._stored.parcels:
            return
        token = self._stored.head.group.token
        for parcel, since in [*self._stored.parcels.items()]:
            if self._moment - since > self._grace_ticks and (token, parcel) not in self._carrying:
                self._stored.parcels[parcel] = self._moment  # if it fails, it is tried again after as long a time
                self._carrying.add((token, parcel))
                start(self._carry(token, parcel))

    async def _carry(self, token: int, parcel: Parcel) -> bool:
        """Append what is in a parcel; False if that is to be tried again."""
        try:
            await self._means.carrier.carry(self._place, token, parcel)
        except QueueyError as error:
            log.warning("messages of a lease step are appended later: %s", error)
            return False
        finally:
            self._carrying.discard((token, parcel))
        self._is_carried(parcel)
        return True

    def _is_carried(self, parcel: Parcel) -> None:
        stored = self._stored
        if stored is not None:
            stored.parcels.pop(parcel, None)
