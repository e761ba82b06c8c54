"""Admission control: bounds the requests and the bytes in flight (G17)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from operator import attrgetter
from time import monotonic
from typing import Any

from queuey.errors import Throttled
from queuey.locks import new_lock
from queuey.security.principals import STRANGERS, has_own_share, payers

UNREAD = "unread"
"""The payer for bytes that arrive before the caller can be known."""
_WHOLE = "whole"
"""Stands for the bytes of all payers together."""
_HALF, _QUARTER, _SIXTEENTH = 2, 4, 16


def _part(payer: str) -> int:
    """The share of one payer is the whole divided by this."""
    if has_own_share(payer):
        return _HALF
    return _QUARTER if payer in (STRANGERS, UNREAD) else _SIXTEENTH


class Admission:
    """How many requests, and how many bytes of bodies and answers, may be in flight at once; see :class:`Ticket`.

    One application or operator takes at most half of the bytes; all others take a quarter together, of which one user a
    quarter. So nobody can use up the room of the others.
    """

    def __init__(
        self,
        most_calls: int,
        most_bytes: int,
        *,
        elapsed: Callable[[], float] = monotonic,
        refused: Callable[[], object] = lambda: None,
    ) -> None:
        """:param elapsed: the clock of :attr:`Ticket.waited_seconds`.
        :param refused: called for each call that finds no room for its bytes.
        """
        self.elapsed = elapsed
        self.refused = refused
        self.calls = 0
        self.bytes = 0
        self.most_calls = most_calls
        self.by_payer: dict[str, int] = {}
        """Bytes that each payer holds."""
        self.lines: dict[str, dict[Sequence[str], list[PatientTicket]]] = {}
        """Those that wait for room, by the application or all strangers, and in these by all that pay; all in the order of their turns."""
        self.turns = count(1)
        self.lock = new_lock()
        self._most_bytes = most_bytes

    @property
    def room(self) -> int:
        """How many more calls may come in."""
        return self.most_calls - self.calls

    def lacks(self, size: int, by: Sequence[str], held: int) -> str | None:
        """With the lock held: the payer that has no room for ``size`` more bytes, or ``whole``; None if there is room.

        A call that holds all that is held finds room, or it could never be served.
        """
        most, found = self._most_bytes, self.by_payer
        if self.bytes + size > most and self.bytes > held:
            return _WHOLE
        for payer in by:
            before = found.get(payer, 0)
            if before > held and before + size > most // _part(payer):
                return payer
        return None

    def count(self, size: int, by: Sequence[str]) -> None:
        """With the lock held: so many bytes more are held; fewer if it is negative."""
        self.bytes += size
        for payer in by:
            left = self.by_payer[payer] = self.by_payer.get(payer, 0) + size
            if not left:
                del self.by_payer[payer]

    def patience(self, by: Sequence[str]) -> int:
        """The most bytes that a call of these payers waits for: half of the smallest share.

        So their other calls rarely keep it waiting for ever, and few users at once can lack room of their own.
        """
        return self._most_bytes // (2 * max(map(_part, by)))

    def serve(self) -> Sequence[PatientTicket]:
        """With the lock held: give room to those that wait: of one payer in the order they came, and payers take turns.

        Nobody passes one that waits for the same payer's room, so that the room for a large piece comes together.

        :returns: those that have it now and are to be told, without the lock.
        """
        if not self.lines:
            return ()
        served: list[PatientTicket] = []
        turns = deque(self.lines)
        while turns:
            payer = turns.popleft()
            found = self._serve_one(payer)
            if found == _WHOLE:
                break
            if isinstance(found, PatientTicket):
                served.append(found)
                if payer in self.lines:
                    turns.append(payer)
        return served

    def _serve_one(self, payer: str) -> PatientTicket | str | None:
        """The next ticket of an application, or of the strangers, if there is room for one; else what has none.

        A user whose own share is full is passed over. They are few, for each holds half of its share.
        """
        lines = self.lines[payer]
        for by, line in lines.items():
            lacking = line[0].take()
            if lacking in (_WHOLE, payer):
                return lacking
            if lacking is None:
                ticket = line.pop(0)
                _to_the_end(lines, by)
                _to_the_end(self.lines, payer)
                return ticket
        return None


def _to_the_end(turns: dict[Any, Any], key: Any) -> None:
    """Its turn was now: it comes last, or goes if nothing is left of it."""
    left = turns.pop(key)
    if left:
        turns[key] = left


class Ticket:
    """What one call takes: a place, once it is whole, and bytes."""

    __slots__ = ("_admission", "_held", "_inside", "_payers", "principals", "waited_seconds", "waits")

    def __init__(self, admission: Admission, by: Sequence[str] = (STRANGERS,)) -> None:
        """:param by: as :attr:`payers`, where the caller is known already."""
        self._admission = admission
        self._inside = False
        self._held = 0
        self._payers = by
        self.principals: frozenset[str] | None = None
        """What the caller has proven, once it is known: it decides :attr:`payers` of a ticket that holds nothing yet."""
        self.waits = False
        """The call waits for messages to come, and for nothing else."""
        self.waited_seconds = 0.0
        """How long it did so."""

    @property
    def payers(self) -> Sequence[str]:
        """Whose share the bytes count against. It changes only while the ticket holds none."""
        if self.principals is not None and not self._held:
            self._payers, self.principals = payers(self.principals), None
        return self._payers

    def enter(self) -> bool:
        """Take a place, if there is one."""
        admission = self._admission
        with admission.lock:
            if admission.calls >= admission.most_calls:
                return False
            admission.calls += 1
        self._inside = True
        return True

    def try_hold(self, size: int, *, owed: bool = False) -> bool:
        """Hold ``size`` bytes more, if there is room; one call alone always finds room.

        :param owed: room or not, since what the call asked for is done.
        """
        admission, by = self._admission, self.payers
        with admission.lock:
            if not owed and admission.lacks(size, by, self._held) is not None:
                return False
            admission.count(size, by)
            self._held += size
        return True

    def hold(self, size: int, *, owed: bool = False) -> None:
        """As :meth:`try_hold`.

        :raises Throttled: there is no room; nothing more is held.
        """
        if not self.try_hold(size, owed=owed):
            self._admission.refused()
            raise Throttled

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Hold ``size`` bytes for as long as the block takes.

        :raises Throttled: there is no room.
        """
        self.hold(size)
        try:
            yield
        finally:
            self.give_back(size)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Take neither place nor bytes while the block waits for messages; afterwards take a place, free or not: it is owed."""
        began = self._admission.elapsed()
        self.close()
        self.waits = True
        try:
            yield
        finally:
            with self._admission.lock:
                self._admission.calls += 1
            self._inside, self.waits = True, False
            self.waited_seconds += self._admission.elapsed() - began

    def give_back(self, size: int | None = None) -> None:
        """Hold ``size`` bytes less; None for all. Calls that wait for room get it."""
        if not self._held or size == 0:
            return
        admission = self._admission
        with admission.lock:
            size = self._held if size is None else min(size, self._held)
            self._held -= size
            admission.count(-size, self.payers)
            served = admission.serve()
        for ticket in served:
            ticket.on_turn()

    def close(self) -> None:
        """Give back everything, at the end of a call. May be repeated."""
        self.give_up_place()
        if self._held:
            self.give_back()

    def give_up_place(self) -> None:
        """Take no place any longer, only bytes."""
        if self._inside:
            self._inside = False
            with self._admission.lock:
                self._admission.calls -= 1

    def patient(self, on_turn: Callable[[], object]) -> PatientTicket:
        """The ticket of a stream that answers this call, paid by the same caller; see :class:`PatientTicket`."""
        return PatientTicket(self._admission, self.payers, on_turn)


class _Exempt(Ticket):
    """The ticket of calls about the server itself: it takes nothing, since they are wanted most when the server is full."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(Admission(0, 0))

    def enter(self) -> bool:
        """There is always a place."""
        return True

    def try_hold(self, size: int, *, owed: bool = False) -> bool:
        """There is always room."""
        return True

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """There is no place to give up."""
        yield


class PatientTicket(Ticket):
    """What a stream takes: it waits for room, makes a piece in it, and holds the piece until its client has taken it.

    Used by one coroutine; room may be given in any thread.
    """

    __slots__ = ("_sent", "_wanted", "on_turn", "room", "turn")

    def __init__(self, admission: Admission, by: Sequence[str], on_turn: Callable[[], object]) -> None:
        """:param by: whose share its bytes count against.
        :param on_turn: called when its turn has come, in the thread that gave room back.
        """
        super().__init__(admission, by)
        self._wanted = 0
        self._sent = 0
        self.room = 0
        """Bytes that are held for the next piece."""
        self.turn = 0
        """Those with a lower one come first; 0 where nothing is waited for."""
        self.on_turn = on_turn

    def wait_for(self, size: int) -> bool:
        """Take room for the next piece, after those that wait for the same payer's.

        :param size: of which at most :meth:`Admission.patience` is waited for; what is made is counted as it is.
        :returns: whether there is room; if not, its turn comes, however often this is called.
        """
        if not (self._wanted or self.room):  # in this order: another thread may be giving it its room
            self._stand_in_line(size)
        return self.room > 0

    def widen(self, size: int) -> bool:
        """Have room for that much, now that its turn has come, and let the turn end.

        :returns: whether there is room; if not, it gives back what it has, and waits for all of it with the turn that it had.
        """
        missing = max(min(size, self._admission.patience(self.payers)) - self.room, 0)
        if self.try_hold(missing):
            self.room += missing
            self.turn = 0
            return True
        self.made(0)
        self._stand_in_line(size)
        return False

    def _stand_in_line(self, size: int) -> None:
        admission = self._admission
        with admission.lock:
            self._wanted = min(size, admission.patience(self.payers))
            self.turn = self.turn or next(admission.turns)
            lines = admission.lines.setdefault(self.payers[-1], {})
            insort(lines.setdefault(self.payers, []), self, key=attrgetter("turn"))
            served = admission.serve()
        for ticket in served:
            ticket.on_turn()

    def made(self, size: int) -> None:
        """A piece was made: hold it, room or not, and give back what of the room it does not need."""
        if not (size or self.room):
            return
        with self._admission.lock:
            change = size - self.room
            self.room = 0
            self._sent += size
            self._held += change
            self._admission.count(change, self.payers)
            served = self._admission.serve() if change < 0 else ()
        for ticket in served:
            ticket.on_turn()

    def taken(self) -> None:
        """The client has taken all that was made."""
        sent, self._sent = self._sent, 0
        self.give_back(sent)

    def take(self) -> str | None:
        """With the lock held: its turn has come.

        :returns: the payer that has no room for it, or ``whole``; None if it has its room now.
        """
        lacking = self._admission.lacks(self._wanted, self.payers, self._held)
        if lacking is None:
            self._admission.count(self._wanted, self.payers)
            self._held += self._wanted
            self.room = self._wanted
            self._wanted = 0
        return lacking

    def close(self) -> None:
        """Wait no longer, and give back everything. May be repeated."""
        admission = self._admission
        served: Sequence[PatientTicket] = ()
        with admission.lock:
            if self._wanted:
                self._wanted = 0
                lines = admission.lines[self.payers[-1]]
                line = lines[self.payers]
                del line[bisect_left(line, self.turn, key=attrgetter("turn"))]
                if not line:
                    del lines[self.payers]
                if not lines:
                    del admission.lines[self.payers[-1]]
                served = admission.serve()  # those behind it may need less
        for ticket in served:
            ticket.on_turn()
        self.room = self._sent = 0
        super().close()


EXEMPT = _Exempt()
"""One for all of them."""
