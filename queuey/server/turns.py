"""Turns of clients on the event loop.

They are for refused clients, and for large uploads.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from queuey.server.client import ClientConnection, OpenConnection

__all__ = ["REFUSED_UPLOADS_A_TURN", "UPLOADS_A_TURN", "Pauses", "Uploads", "tell"]

log = logging.getLogger(__name__)

_PAUSE_STEP_SECONDS = 0.1
"""Seconds. Pauses that end within this time of each other end together."""
UPLOADS_A_TURN = 4
"""Uploads that are read in one turn, at most 256 KiB of each. A turn may take 20 to 40 ms while threads are at work."""
REFUSED_UPLOADS_A_TURN = 1
"""Refused uploads that are read besides. Any client can send one, and it slows down no other upload."""


def tell(client: OpenConnection, what: Callable[[], object]) -> object:
    """Call a method of a connection. If it fails, only that connection ends.

    :returns: the method's result; None if it failed.
    """
    try:
        return what()
    except Exception:
        log.exception("a connection failed, and is ended")
        client.abort()
        return None


class Pauses:
    """Clients that found no place, unread until there is one or their pause is over.

    Meanwhile a client that asks again at once costs nothing. The client that has waited longest comes first.
    """

    def __init__(self, seconds: float, room: Callable[[], int]) -> None:
        """:param seconds: the length of a pause: the time of Retry-After.
        :param room: how many more calls may enter.
        """
        self._seconds = seconds
        self._room = room
        self.paused: deque[tuple[float, ClientConnection]] = deque()
        """In the order they came, each with the loop's time at which its pause ends."""
        self._looks_for_room = False
        self._timed = False
        """A timer for :meth:`_end` runs. One is enough, however often pauses begin and end."""
        self._loop: asyncio.AbstractEventLoop

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start to serve on ``loop``."""
        self._loop = loop

    def add(self, client: ClientConnection) -> None:
        """Stop reading from a client for now."""
        self.paused.append((self._loop.time() + self._seconds, client))
        self._time()

    def place_is_free(self) -> None:
        """Let a refused client take the place of a call that has ended.

        It does so in the loop's next turn.
        """
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
    """Clients that send large bodies; they are read in turns."""

    def __init__(self, longest_body: int) -> None:
        """:param longest_body: bytes of the largest body that any request may have."""
        self._longest_body = longest_body
        self._wanted: deque[ClientConnection] = deque()
        """Clients in the order of their turns."""
        self._refused: deque[ClientConnection] = deque()
        """The same for clients whose body is not read."""
        self._reads = False
        """A call of :meth:`_read` is scheduled."""
        self._soon: Callable[[Callable[[], object]], object]

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start to serve on ``loop``."""
        self._soon = loop.call_soon

    def add(self, client: ClientConnection, *, refused: bool) -> None:
        """Read the next piece of this client's body on its turn.

        Each turn of the loop reads from a few clients.

        :param refused: the body is not read. Such uploads have a line of their own.
        """
        (self._refused if refused else self._wanted).append(client)
        if not self._reads:
            self._reads = True
            self._soon(self._read)

    def excuse(self) -> None:
        """Extend the deadlines of waiting clients by the second that has passed.

        It does not extend them for a body with more bytes to come than any request may have. Otherwise a body without
        an end would have no deadline.
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
    """Read the next piece of up to ``most`` uploads.

    Those that have ended take no turn.
    """
    while line and most:
        client = line.popleft()
        most -= bool(tell(client, client.read_next_piece))
