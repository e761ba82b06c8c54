"""The driver's connections on an event loop of ours (:mod:`queuey.storage.cassandra.socket_loop`).

By default they live in a thread of the driver, which shares one interpreter with the server's event loop. Each statement then
wakes that thread to be sent, and wakes the server's loop when it is answered. Waking, sleeping and handing over the interpreter
cost more than the statement itself (docs/decisions/044).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, ClassVar

from cassandra.connection import Connection, ConnectionShutdown, Timer, TimerManager

from queuey.future import Inbox
from queuey.storage.cassandra.socket_loop import BUFFER_BYTES, LoopedSocket, SocketLoop, call_on, is_here

__all__ = ["DriverConnection", "DriverLoop"]

_TICK_SECONDS = 0.05
"""How exact time limits of statements are."""


class DriverLoop(SocketLoop):
    """Where the connections of one cluster live. Thread-safe."""

    def __init__(self) -> None:
        super().__init__("cassandra-driver")
        self._limits = TimerManager()
        self._ticks = False
        self._next_tick: asyncio.TimerHandle | None = None

    def connection_class(self) -> type[DriverConnection]:
        """A class whose connections live here: the driver knows no other place for it."""
        return type("DriverConnection", (DriverConnection,), {"home": self})

    def use(self, inbox: Inbox | None) -> None:
        super().use(inbox)
        self._next_tick = None  # it belongs to the loop before, and does nothing there
        call_on(self.loop, self._tick)

    def limit(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """A time limit of a statement."""
        limit = _Limit(seconds, callback)
        self._limits.add_timer(limit)
        if not self._ticks:
            self._ticks = True
            call_on(self.loop, self._tick)
        return limit

    def _tick(self) -> None:
        """Let limits pass that are due. One timer is for all of them."""
        if not is_here(self.loop):
            return  # the connections have moved, and the new loop ticks
        if self._next_tick is not None:
            self._next_tick.cancel()
            self._next_tick = None
        self._ticks = False  # whoever sets a limit from now on asks for a tick
        if self._limits.service_timeouts() is not None:
            self._ticks = True
            self._next_tick = self.loop.call_later(_TICK_SECONDS, self._tick)


class _Limit(Timer):  # type: ignore[misc]
    """A time limit of a statement.

    It is kept until it is due. So once the statement is answered, it lets go of the statement and its rows: else they would
    stay, and each look of the garbage collector would go through them.
    """

    def cancel(self) -> None:
        super().cancel()
        self.callback = _nothing


def _nothing() -> None:
    """The statement is answered."""


class DriverConnection(LoopedSocket, Connection):  # type: ignore[misc]
    """One connection to a node.

    How much of what it is given may wait has two bounds: a store has one of calls under way, and a server one of the bytes of its
    requests.
    """

    in_buffer_size = out_buffer_size = BUFFER_BYTES
    home: ClassVar[DriverLoop]  # type: ignore[misc]
    is_closed: bool
    last_error: Exception | None
    _socket: socket.socket

    def __init__(self, *args: Any, **options: Any) -> None:
        Connection.__init__(self, *args, **options)
        self._connect_socket()
        self.begin()
        self._send_options_message()

    @classmethod
    def create_timer(cls, timeout: float, callback: Callable[[], object]) -> Timer:
        return cls.home.limit(timeout, callback)

    def took(self, data: bytes) -> None:
        """Let the driver take it."""
        self._iobuf.write(data)
        self.process_io_buffer()

    def _process_segment_buffer(self) -> None:
        """The driver would lose what has come of the head of a segment that is cut."""
        super()._process_segment_buffer()
        if not self._io_buffer.has_consumed_segment:
            self._iobuf.seek(0)

    def lost(self, error: Exception) -> None:
        """Let the driver end the connection, and what waits for its answers."""
        self.defunct(error)

    def close(self) -> None:
        with self.lock:
            if self.is_closed:
                return
            self.is_closed = True
        self.end()
        if not self.is_defunct:
            gone = ConnectionShutdown(f"the connection to {self.endpoint} was closed")
            self.last_error = self.last_error or gone
            self.error_all_requests(gone)
            self.connected_event.set()
