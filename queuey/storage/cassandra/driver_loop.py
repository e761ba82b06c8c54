"""The driver's connections on an event loop of ours.

By default they live in a thread of the driver, which shares one interpreter with the server's event loop. Each statement then
wakes that thread to be sent, and wakes the server's loop when it is answered. Waking, sleeping and handing over the
interpreter cost more than the statement itself (docs/decisions/044). Here the connections live on the server's loop. At the
end of each turn it sends all statements of that turn in one system call, and it reads answers the way it reads requests.
Commands and servers under WSGI have no such loop. There the connections live on a loop in a thread.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

import uvloop
from cassandra.connection import Connection, ConnectionShutdown, Timer, TimerManager

from queuey.future import Inbox
from queuey.locks import new_lock

__all__ = ["DriverConnection", "DriverLoop"]

log = logging.getLogger(__name__)

_BUFFER_BYTES = 128 << 10
"""Read or sent by one call of the system."""
_TICK_SECONDS = 0.05
"""How exact time limits of statements are."""
_NOT_NOW = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class DriverLoop:
    """Where the connections of one cluster live. Thread-safe.

    At first that is a loop in a thread of its own, which ends with :meth:`close`.
    """

    def __init__(self) -> None:
        self._own = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._own.run_forever, name="cassandra-driver", daemon=True)
        self._thread.start()
        self._lock = new_lock()
        self._connections = set[DriverConnection]()
        self._limits = TimerManager()
        self._ticks = False
        self._next_tick: asyncio.TimerHandle | None = None
        self.loop: asyncio.AbstractEventLoop = self._own
        """Where new connections begin."""

    def connection_class(self) -> type[DriverConnection]:
        """A class whose connections live here: the driver knows no other place for it."""
        return type("DriverConnection", (DriverConnection,), {"home": self})

    def use(self, inbox: Inbox | None) -> None:
        """Let all connections live on the loop that runs in this thread, from now on.

        :param inbox: None stands for the loop in a thread of its own. Call it before the other one ends.
        """
        loop = self._own if inbox is None else asyncio.get_running_loop()
        with self._lock:
            self.loop = loop
            moving = tuple(self._connections)
            self._next_tick = None  # it belongs to the loop before, and does nothing there
        for connection in moving:
            connection.move()
        _call(self.loop, self._tick)

    def later(self, seconds: float, work: Callable[[], object]) -> None:
        """Call ``work`` after a while, in the thread: the server's loop may end before."""
        _call(self._own, lambda: self._own.call_later(seconds, work))

    def limit(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """A time limit of a statement."""
        limit = _Limit(seconds, callback)
        self._limits.add_timer(limit)
        if not self._ticks:
            self._ticks = True
            _call(self.loop, self._tick)
        return limit

    def _tick(self) -> None:
        """Let limits pass that are due. One timer is for all of them."""
        if not _is_here(self.loop):
            return  # the connections have moved, and the new loop ticks
        if self._next_tick is not None:
            self._next_tick.cancel()
            self._next_tick = None
        self._ticks = False  # whoever sets a limit from now on asks for a tick
        if self._limits.service_timeouts() is not None:
            self._ticks = True
            self._next_tick = self.loop.call_later(_TICK_SECONDS, self._tick)

    def begin(self, connection: DriverConnection) -> None:
        """Let a new connection live here."""
        with self._lock:
            self._connections.add(connection)
            connection.loop = self.loop

    def end(self, connection: DriverConnection) -> None:
        with self._lock:
            self._connections.discard(connection)

    def close(self) -> None:
        """End the thread. The driver has ended all connections. May be called again."""
        if not self._thread.is_alive():
            return
        _call(self._own, self._own.stop)
        self._thread.join()
        self._own.close()


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


def _is_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this is the thread of the loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _call(loop: asyncio.AbstractEventLoop, work: Callable[[], object]) -> bool:
    """Call ``work`` soon on a loop; a call of its own thread wakes nobody.

    :returns: False if the loop has ended.
    """
    try:
        (loop.call_soon if _is_here(loop) else loop.call_soon_threadsafe)(work)
    except RuntimeError:
        return False
    return True


class DriverConnection(Connection):  # type: ignore[misc]
    """One connection to a node.

    What it is given to send waits until the turn of its loop ends. How much may wait has two bounds: a store has one of calls under
    way, and a server one of the bytes of its requests.
    """

    in_buffer_size = out_buffer_size = _BUFFER_BYTES
    home: ClassVar[DriverLoop]
    loop: asyncio.AbstractEventLoop
    """Where it lives now."""
    is_closed: bool
    last_error: Exception | None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._unsent = deque[bytes]()
        self._sends = False
        """It is about to send, or waits until the socket has room."""
        self._connect_socket()
        self._socket.setblocking(False)
        self._file = self._socket.fileno()
        self.home.begin(self)
        self._soon(self._watch)
        self._send_options_message()

    @classmethod
    def create_timer(cls, timeout: float, callback: Callable[[], object]) -> Timer:
        return cls.home.limit(timeout, callback)

    def push(self, data: bytes) -> None:
        """Send this at the end of the turn."""
        self._unsent.append(data)
        if not self._sends:
            self._sends = True
            self._soon(self._send)

    def close(self) -> None:
        with self.lock:
            if self.is_closed:
                return
            self.is_closed = True
        self.home.end(self)
        if not self._soon(self._leave):
            self._socket.close()
        if not self.is_defunct:
            gone = ConnectionShutdown(f"the connection to {self.endpoint} was closed")
            self.last_error = self.last_error or gone
            self.error_all_requests(gone)
            self.connected_event.set()

    def move(self) -> None:
        """Go where the connections are to live, at once if this is the loop where it lives."""
        if not _is_here(self.loop):
            self._soon(self.move)
        elif not self.is_closed and self.loop is not self.home.loop:
            self._unwatch()
            self.loop = self.home.loop
            self._soon(self._watch)
            self._sends = True
            self._soon(self._send)

    def _soon(self, work: Callable[[], object]) -> bool:
        """Call ``work`` on the loop where it lives by then.

        :returns: False if that loop has ended.
        """

        def here() -> None:
            if _is_here(self.loop):
                work()
            else:
                self._soon(work)

        return _call(self.loop, here)

    # On its loop

    def _watch(self) -> None:
        if not self.is_closed:
            self.loop.add_reader(self._file, self._receive)

    def _unwatch(self) -> None:
        self.loop.remove_reader(self._file)
        self.loop.remove_writer(self._file)

    def _leave(self) -> None:
        self._unwatch()
        self._socket.close()

    def _send(self) -> None:
        if self.is_closed:
            return
        unsent = self._unsent
        self._sends = False  # what comes from now on is sent in this turn or asks for another one
        while unsent:
            data = _gathered(unsent)
            try:
                sent = self._socket.send(data)
            except _NOT_NOW:
                sent = 0
            except OSError as error:
                self.defunct(error)
                return
            if sent < len(data):
                unsent.appendleft(data[sent:])
                self._sends = True
                self.loop.add_writer(self._file, self._go_on)
                return

    def _go_on(self) -> None:
        """The socket has room again."""
        self.loop.remove_writer(self._file)
        self._send()

    def _receive(self) -> None:
        has_ended = False
        try:
            while True:
                data = self._socket.recv(_BUFFER_BYTES)
                self._iobuf.write(data)
                if len(data) < _BUFFER_BYTES:
                    has_ended = not data
                    break
        except _NOT_NOW:
            pass  # all that has come is read
        except OSError as error:
            self.defunct(error)
            return
        try:
            if self._iobuf.tell():
                self.process_io_buffer()
        except Exception as error:  # noqa: BLE001 - what no node may send ends the connection
            self.defunct(error)
        if has_ended:
            log.debug("the node closed the connection %s", self)
            self.close()


def _gathered(unsent: deque[bytes]) -> bytes:
    """What one call of the system sends: the first of it, and what fits beside that."""
    first = unsent.popleft()
    size, parts = len(first), [first]
    while unsent and size + len(unsent[0]) <= _BUFFER_BYTES:
        parts.append(unsent.popleft())
        size += len(parts[-1])
    return first if len(parts) == 1 else b"".join(parts)
