"""What the event loop does for clients in turn: those that were refused a place, and those that send much."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from queuey.server.client import ClientConnection

__all__ = ["REFUSED_UPLOADS_A_TURN", "UPLOADS_A_TURN", "Pauses", "Uploads", "tell"]

log = logging.getLogger(__name__)

_PAUSE_STEP_SECONDS = 0.1
"""Pauses that end within this time end together."""
UPLOADS_A_TURN = 4
"""Uploads that are read from in one turn, a piece of at most 256 KiB of each. A turn may take 20 to 40 ms while threads are at work."""
REFUSED_UPLOADS_A_TURN = 1
"""Beside those: anybody can send a body that is refused, and it slows down no other."""


def tell(client: ClientConnection, what: Callable[[], object]) -> object:
    """Let a connection do something. If it fails, that connection ends, and the others have their turn.

    :returns: what it returned, None if it failed.
    """
    try:
        return what()
    except Exception:
        log.exception("a connection failed, and is ended")
        client.abort()
        return None


class Pauses:
    """Clients that were refused a place, and are not read from until there is one or their pause is over.

    A client that asks again at once costs nothing meanwhile, and the one that has waited longest comes first.
    """

    def __init__(self, seconds: float, room: Callable[[], int]) -> None:
        """:param seconds: of a pause: the time of Retry-After.
        :param room: how many calls more may come in.
        """
        self._seconds = seconds
        self._room = room
        self.paused: deque[tuple[float, ClientConnection]] = deque()
        """The first one first, each with the loop's time at which its pause ends."""
        self._looks_for_room = False
        self._timed = False
        """A timer for :meth:`_end` runs. One is enough, however often pauses begin and end meanwhile."""
        self._loop: asyncio.AbstractEventLoop

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to serve on ``loop``."""
        self._loop = loop

    def add(self, client: ClientConnection) -> None:
        """Read no more of a client for now."""
        self.paused.append((self._loop.time() + self._seconds, client))
        self._time()

    def place_is_free(self) -> None:
        """A call has ended: a client that was refused may come in its place, in the loop's next turn."""
        if self.paused and not self._looks_for_room:
            self._looks_for_room = True
            self._loop.call_soon(self._fill_room)

    def _time(self) -> None:
        if self.paused and not self._timed:
            self._timed = True
            self._loop.call_later(_PAUSE_STEP_SECONDS, self._end)

    def _fill_room(self) -> None:
        self._looks_for_room = False
        for _ in range(min(self._room(), len(self.paused))):
            self._end_first()

    def _end(self) -> None:
        self._timed = False
        now = self._loop.time()
        while self.paused and self.paused[0][0] <= now:
            self._end_first()
        self._time()

    def _end_first(self) -> None:
        _, client = self.paused.popleft()
        tell(client, client.go_on_after_pause)


class Uploads:
    """Clients that send large bodies: each is read from when those before it have had their turn."""

    def __init__(self, longest_body: int) -> None:
        """:param longest_body: bytes of the largest body that any request may have."""
        self._longest_body = longest_body
        self._wanted: deque[ClientConnection] = deque()
        """The one whose turn it is comes first."""
        self._refused: deque[ClientConnection] = deque()
        """In the same way, those whose body nobody reads."""
        self._reads = False
        """:meth:`_read` will be called."""
        self._soon: Callable[[Callable[[], object]], object]

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to serve on ``loop``."""
        self._soon = loop.call_soon

    def add(self, client: ClientConnection, *, refused: bool) -> None:
        """Read the next piece of this client's body when its turn comes, a few clients in each turn of the loop.

        :param refused: nobody reads that body. Such uploads have a line of their own.
        """
        (self._refused if refused else self._wanted).append(client)
        if not self._reads:
            self._reads = True
            self._soon(self._read)

    def excuse(self) -> None:
        """A second has passed, and it was not the client's where the client waited for its turn.

        It was where more is still to come than any request may have: else a body without an end would have no deadline.
        """
        for client in (*self._wanted, *self._refused):
            if client.unread <= self._longest_body:
                client.deadline += 1

    def _read(self) -> None:
        _read_from(self._wanted, UPLOADS_A_TURN)
        _read_from(self._refused, REFUSED_UPLOADS_A_TURN)
        self._reads = bool(self._wanted or self._refused)
        if self._reads:
            self._soon(self._read)


def _read_from(line: deque[ClientConnection], most: int) -> None:
    """Read the next piece of ``most`` uploads; those that have ended take no turn."""
    while line and most:
        client = line.popleft()
        most -= bool(tell(client, client.read_next_piece))
