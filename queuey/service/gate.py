"""Admission control: bounds the requests and the bytes in flight (G17)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from queuey.locks import new_lock

STRANGERS = "strangers"
"""The payer for the bytes of every caller that is not an application, users included."""
UNREAD = "unread"
"""The payer for bytes that arrive before the caller can be known."""
_APPLICATION = "app:"
_HALF, _QUARTER, _SIXTEENTH = 2, 4, 16


@lru_cache(1024)
def payers(principals: frozenset[str]) -> Sequence[str]:
    """Whose share a call's bytes count against, from what the caller has proven.

    An application pays alone. A user has a share of its own inside that of the strangers.

    >>> payers(frozenset({"app:demo", "bid:joe@example.org"}))
    ('app:demo',)
    >>> payers(frozenset({"bid:joe@example.org"})), payers(frozenset())
    (('bid:joe@example.org', 'strangers'), ('strangers',))
    """
    first = min(principals, default=None, key=lambda name: (not name.startswith(_APPLICATION), name))
    if first is None:
        return (STRANGERS,)
    return (first,) if first.startswith(_APPLICATION) else (first, STRANGERS)


def _part(payer: str) -> int:
    """The share of one payer is the whole divided by this."""
    if payer.startswith(_APPLICATION):
        return _HALF
    return _QUARTER if payer in (STRANGERS, UNREAD) else _SIXTEENTH


class Gate:
    """How many requests, and how many bytes of bodies and answers, may be in flight at once; see :class:`Ticket`.

    One application takes at most half of the bytes; everybody who is not an application takes a quarter together, of which
    one user a quarter. So nobody can use up the room of the others.
    """

    def __init__(self, most_calls: int, most_bytes: int) -> None:
        self.calls = 0
        self.bytes = 0
        self.most_calls = most_calls
        self.by_payer: dict[str, int] = {}
        """Bytes that each payer holds."""
        self.lock = new_lock()
        self._most_bytes = most_bytes

    @property
    def room(self) -> int:
        """How many more calls may come in."""
        return self.most_calls - self.calls

    def fits(self, size: int, by: Sequence[str], held: int) -> bool:
        """With the lock held: whether there is room for ``size`` more bytes.

        A call that holds all that is held finds room, or it could never be served.
        """
        most, found = self._most_bytes, self.by_payer
        if self.bytes + size > most and self.bytes > held:
            return False
        for payer in by:
            before = found.get(payer, 0)
            if before > held and before + size > most // _part(payer):
                return False
        return True


class Ticket:
    """What one call takes: a place, once it is whole, and bytes."""

    __slots__ = ("_by", "_gate", "_held", "_inside")

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._inside = False
        self._held = 0
        self._by: Sequence[str] = ()

    def enter(self) -> bool:
        """Take a place, if there is one."""
        gate = self._gate
        with gate.lock:
            if gate.calls >= gate.most_calls:
                return False
            gate.calls += 1
        self._inside = True
        return True

    def hold(self, size: int, by: Sequence[str], *, owed: bool = False) -> bool:
        """Hold more bytes, if there is room; one call alone always finds room.

        :param by: whose share they count against; those of the first time pay for all.
        :param owed: room or not, for what the call asked for is done.
        """
        gate = self._gate
        by = self._by = self._by if self._held else by
        with gate.lock:
            if not owed and not gate.fits(size, by, self._held):
                return False
            gate.bytes += size
            for payer in by:
                gate.by_payer[payer] = gate.by_payer.get(payer, 0) + size
        self._held += size
        return True

    def give_back(self, size: int | None = None) -> None:
        """Hold ``size`` bytes less; None for all."""
        gate, size = self._gate, self._held if size is None else min(size, self._held)
        if not size:
            return
        self._held -= size
        with gate.lock:
            gate.bytes -= size
            for payer in self._by:
                left = gate.by_payer[payer] = gate.by_payer[payer] - size
                if not left:
                    del gate.by_payer[payer]

    def come_back(self) -> None:
        """Take a place again after a wait, room or not: it is owed."""
        with self._gate.lock:
            self._gate.calls += 1
        self._inside = True

    def close(self) -> None:
        """Give back everything: at the end of a call, or while it waits for something to come. May be repeated."""
        if self._inside:
            self.give_up_place()
        if self._held:
            self.give_back()

    def give_up_place(self) -> None:
        """Take no place any longer, only bytes."""
        if self._inside:
            self._inside = False
            with self._gate.lock:
                self._gate.calls -= 1
