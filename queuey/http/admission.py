"""Admission control: bounds the requests and the bytes in flight (G17)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from operator import attrgetter
from time import perf_counter
from typing import Any

from queuey.errors import Throttled
from queuey.locks import new_lock
from queuey.security.principals import STRANGERS, has_own_share, payers

UNREAD = "unread"
"""Pays for bytes that arrive before the caller is known."""
_WHOLE = "whole"
"""Stands for the bytes of all payers together."""
_HALF, _QUARTER, _SIXTEENTH = 2, 4, 16


def _part(payer: str) -> int:
    """The divisor of one payer's share: the whole divided by this number."""
    if has_own_share(payer):
        return _HALF
    return _QUARTER if payer in (STRANGERS, UNREAD) else _SIXTEENTH


class Admission:
    """Bounds the calls in flight, and the bytes of their bodies and answers.

    Each call holds a :class:`Ticket`. One application or operator takes at most half of the bytes. All other callers
    together take at most a quarter, and one user at most a quarter of that. So no caller uses up the room of the
    others.
    """

    def __init__(
        self,
        most_calls: int,
        most_bytes: int,
        *,
        refused: Callable[[], object] = lambda: None,
    ) -> None:
        """:param refused: called for each call that finds no room for its bytes."""
        self.refused = refused
        self.calls = 0
        self.bytes = 0
        self.most_calls = most_calls
        self.by_payer: dict[str, int] = {}
        """Bytes that each payer holds."""
        self.lines: dict[str, dict[Sequence[str], list[PatientTicket]]] = {}
        """Tickets that wait for room, by application (or all strangers together), then by payer; in the order of their
        turns."""
        self.turns = count(1)
        self.lock = new_lock()
        self._most_bytes = most_bytes

    @property
    def room(self) -> int:
        """How many more calls may enter."""
        return self.most_calls - self.calls

    def lacks(self, size: int, by: Sequence[str], held: int) -> str | None:
        """The payer that lacks room for ``size`` more bytes; None if there is room.

        It is ``whole`` if the server lacks it.

        The caller has the lock. A call that holds all of the bytes in flight always finds room, or it could never be
        served.
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
        """Add ``size`` to the bytes in flight; a negative size takes bytes away.

        The caller has the lock.
        """
        self.bytes += size
        for payer in by:
            left = self.by_payer[payer] = self.by_payer.get(payer, 0) + size
            if not left:
                del self.by_payer[payer]

    def patience(self, by: Sequence[str]) -> int:
        """The most bytes that a call of these payers waits for.

        It is half of the smallest share. So a payer's other calls rarely keep it waiting for ever, and only a few users
        at once can lack room of their own.
        """
        return self._most_bytes // (2 * max(map(_part, by)))

    def serve(self) -> Sequence[PatientTicket]:
        """Give room to waiting tickets.

        Payers take turns; within one, first come, first served.

        The caller has the lock. No ticket overtakes one that waits for the same payer's room, so that the room for a
        large piece can add up.

        :returns: the tickets that have room now. Notify them without the lock.
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
        """The next ticket of a line, or the payer that lacks room for it.

        A user whose own share is full is skipped. There are only a few of those, since each holds half of its share.
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
    """Move a key that had its turn to the end, or drop it if nothing of it is left."""
    left = turns.pop(key)
    if left:
        turns[key] = left


class Ticket:
    """What one call takes: one place among the calls in flight, and bytes."""

    __slots__ = ("_admission", "_held", "_inside", "_payers", "principals", "waited_seconds", "waits")

    def __init__(self, admission: Admission, by: Sequence[str] = (STRANGERS,)) -> None:
        """:param by: as :attr:`payers`, if the caller is known already."""
        self._admission = admission
        self._inside = False
        self._held = 0
        self._payers = by
        self.principals: frozenset[str] | None = None
        """What the caller has proven, once known. It decides the :attr:`payers` of a ticket that holds nothing yet."""
        self.waits = False
        """The call does nothing but wait for new messages."""
        self.waited_seconds = 0.0
        """How long it has waited for new messages."""

    @property
    def payers(self) -> Sequence[str]:
        """Whose share the bytes count against.

        It changes only while the ticket holds none.
        """
        if self.principals is not None and not self._held:
            self._payers, self.principals = payers(self.principals), None
        return self._payers

    def enter(self) -> bool:
        """Take a place among the calls in flight, if one is free."""
        admission = self._admission
        with admission.lock:
            if admission.calls >= admission.most_calls:
                return False
            admission.calls += 1
        self._inside = True
        return True

    def try_hold(self, size: int, *, owed: bool = False) -> bool:
        """Hold ``size`` more bytes if there is room.

        A call that is alone always finds room.

        :param owed: hold them without room too, since the call's work is done and its answer must be sent.
        """
        admission, by = self._admission, self.payers
        with admission.lock:
            if not owed and admission.lacks(size, by, self._held) is not None:
                return False
            admission.count(size, by)
            self._held += size
        return True

    def hold(self, size: int, *, owed: bool = False) -> None:
        """Hold ``size`` more bytes; see :meth:`try_hold`.

        :raises Throttled: there is no room; no more bytes are held than before.
        """
        if not self.try_hold(size, owed=owed):
            self._admission.refused()
            raise Throttled

    @contextmanager
    def holding(self, size: int) -> Iterator[None]:
        """Hold ``size`` bytes while the block runs.

        :raises Throttled: there is no room.
        """
        self.hold(size)
        try:
            yield
        finally:
            self.give_back(size)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Hold no place and no bytes while the block waits for messages.

        Afterwards the call takes a place, free or not, since it was admitted already.
        """
        began = perf_counter()
        self.close()
        self.waits = True
        try:
            yield
        finally:
            with self._admission.lock:
                self._admission.calls += 1
            self._inside, self.waits = True, False
            self.waited_seconds += perf_counter() - began

    def give_back(self, size: int | None = None) -> None:
        """Hold ``size`` fewer bytes, or none at all with None.

        Tickets that wait for room get it.
        """
        if not self._held or size == 0:
            return
        admission, by = self._admission, self.payers  # the payers while bytes are held: whoever took them
        with admission.lock:
            size = self._held if size is None else min(size, self._held)
            self._held -= size
            admission.count(-size, by)
            served = admission.serve()
        for ticket in served:
            ticket.on_turn()

    def close(self) -> None:
        """Give back everything, at the end of a call. May be called again."""
        self.give_up_place()
        if self._held:
            self.give_back()

    def give_up_place(self) -> None:
        """Give the place back and go on with bytes alone."""
        if self._inside:
            self._inside = False
            with self._admission.lock:
                self._admission.calls -= 1

    def patient(self, on_turn: Callable[[], object]) -> PatientTicket:
        """A ticket with the same payers, for the stream that answers this call."""
        return PatientTicket(self._admission, self.payers, on_turn)


class _Exempt(Ticket):
    """A ticket that takes nothing, for calls about the server itself.

    They are needed most when the server is full.
    """

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
    """What a stream takes: room for one piece at a time.

    It waits for room, makes a piece in it, and holds the piece until the client has taken it. One coroutine uses it;
    any thread may give it room.
    """

    __slots__ = ("_sent", "_wanted", "on_turn", "room", "turn")

    def __init__(self, admission: Admission, by: Sequence[str], on_turn: Callable[[], object]) -> None:
        """:param by: whose share its bytes count against.
        :param on_turn: called when it is this ticket's turn, in the thread that gave room back.
        """
        super().__init__(admission, by)
        self._wanted = 0
        self._sent = 0
        self.room = 0
        """Bytes held for the next piece."""
        self.turn = 0
        """Its position in the queue: lower numbers come first; 0 while it does not wait."""
        self.on_turn = on_turn

    def wait_for(self, size: int) -> bool:
        """Take room for the next piece, behind other tickets of the same payer.

        :param size: no more than :meth:`Admission.patience` of it is waited for; the finished piece counts in full.
        :returns: whether there is room. If not, the turn comes later; repeated calls do not change its position.
        """
        if not (self._wanted or self.room):  # in this order: another thread may be giving it its room
            self._stand_in_line(size)
        return self.room > 0

    def widen(self, size: int) -> bool:
        """Extend the room to ``size`` on this ticket's turn, and end the turn.

        :returns: whether there is room. If not, the ticket gives back its room and waits for all of it, in its old
            position.
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
        """Hold the finished piece, even beyond the room. Give back the rest of the room."""
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
        """The client has taken everything; give its bytes back."""
        sent, self._sent = self._sent, 0
        self.give_back(sent)

    def take(self) -> str | None:
        """Take the room on this ticket's turn. The caller has the lock.

        :returns: the payer that lacks room for it, or ``whole``; None if it has its room now.
        """
        lacking = self._admission.lacks(self._wanted, self.payers, self._held)
        if lacking is None:
            self._admission.count(self._wanted, self.payers)
            self._held += self._wanted
            self.room = self._wanted
            self._wanted = 0
        return lacking

    def close(self) -> None:
        """Stop waiting, and give back everything. May be called again."""
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
                served = admission.serve()  # tickets behind it may need less room
        for ticket in served:
            ticket.on_turn()
        self.room = self._sent = 0
        super().close()


EXEMPT = _Exempt()
"""One ticket serves all of those calls, since it has no state."""
