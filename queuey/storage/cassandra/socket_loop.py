"""Connections whose sockets an event loop of ours watches.

At the end of each turn a loop sends all that its connections were given in that turn, in one system call for each. It reads what
comes the way it reads requests. A server lets the connections live on its own loop, so that no thread is woken for them
(docs/decisions/044, 045). Commands and servers under WSGI have no such loop. There the connections live on a loop in a thread.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from functools import partial

import uvloop

from queuey.future import Inbox
from queuey.locks import new_lock

__all__ = ["BUFFER_BYTES", "LoopedSocket", "SocketLoop", "call_on", "is_here"]

BUFFER_BYTES = 128 << 10
"""Read or sent by one call of the system."""
_NOT_NOW = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def is_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this is the thread of the loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def call_on(loop: asyncio.AbstractEventLoop, work: Callable[[], object]) -> bool:
    """Call ``work`` soon on a loop; a call of its own thread wakes nobody.

    :returns: False if the loop has ended.
    """
    try:
        (loop.call_soon if is_here(loop) else loop.call_soon_threadsafe)(work)
    except RuntimeError:
        return False
    return True


class SocketLoop:
    """Where connections live. Thread-safe.

    At first that is a loop in a thread of its own, which ends with :meth:`close`.
    """

    def __init__(self, name: str) -> None:
        """:param name: of the thread."""
        self._own = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._own.run_forever, name=name, daemon=True)
        self._thread.start()
        self._lock = new_lock()
        self._connections = set[LoopedSocket]()
        self._due: dict[int, Callable[[], object]] = {}
        """What is to be called later."""
        self._number = 0
        """Of the last of it."""
        self.has_ended = False
        """It is closed."""
        self.loop: asyncio.AbstractEventLoop = self._own
        """Where new connections begin."""

    def use(self, inbox: Inbox | None) -> None:
        """Let all connections live on the loop that runs in this thread, from now on.

        :param inbox: None stands for the loop in a thread of its own. Call it before the other one ends.
        """
        loop = self._own if inbox is None else asyncio.get_running_loop()
        with self._lock:
            self.loop = loop
            moving = tuple(self._connections)
        for connection in moving:
            connection.move()

    def later(self, seconds: float, work: Callable[[], object]) -> None:
        """Call ``work`` after a while, in the thread: the server's loop may end before.

        If this ends before, it is called then: what waits for it must not wait for ever.
        """
        with self._lock:
            self._number += 1
            number, has_ended = self._number, self.has_ended
            if not has_ended:
                self._due[number] = work
        if has_ended:
            work()
        else:
            call_on(self._own, lambda: self._own.call_later(seconds, partial(self._carry_out, number)))

    def _carry_out(self, number: int) -> None:
        with self._lock:
            work = self._due.pop(number, None)
        if work is not None:
            work()

    def begin(self, connection: LoopedSocket) -> None:
        """Let a new connection live here."""
        with self._lock:
            self._connections.add(connection)
            connection.loop = self.loop

    def end(self, connection: LoopedSocket) -> None:
        with self._lock:
            self._connections.discard(connection)

    def close(self) -> None:
        """End the thread. All connections have ended. May be called again."""
        with self._lock:
            has_ended, self.has_ended = self.has_ended, True
        if has_ended:
            return
        call_on(self._own, self._own.stop)
        self._thread.join()
        self._own.close()
        for number in [*self._due]:
            self._carry_out(number)


class LoopedSocket(ABC):
    """One connection, which is open already.

    What it is given to send waits until the turn of its loop ends. The callers of :meth:`push` bound how much may wait.
    """

    home: SocketLoop
    loop: asyncio.AbstractEventLoop
    """Where it lives now."""
    is_closed: bool
    _socket: socket.socket

    def begin(self) -> bool:
        """Live on the loop from now on.

        :returns: False if that loop has ended.
        """
        self._unsent = deque[bytes]()
        self._sends = False
        """It is about to send, or waits until the socket has room."""
        self._socket.setblocking(False)
        self._file = self._socket.fileno()
        self.home.begin(self)
        return self.soon(self._watch)

    @abstractmethod
    def took(self, data: bytes) -> None:
        """Take what has come, on the loop. An error ends the connection."""

    @abstractmethod
    def lost(self, error: Exception) -> None:
        """End the connection: its socket failed, or the other end sent what makes no sense."""

    @abstractmethod
    def close(self) -> None:
        """End: the other end has closed the connection, or somebody here wants it. May be called again."""

    def push(self, data: bytes) -> None:
        """Send this at the end of the turn. Any thread may call this."""
        self._unsent.append(data)
        if not self._sends:
            self._sends = True
            self.soon(self._send)

    def end(self) -> None:
        """Leave the loop, and close the socket."""
        self.home.end(self)
        if not self.soon(self._leave):
            self._socket.close()

    def move(self) -> None:
        """Go where the connections are to live, at once if this is the loop where it lives."""
        if not is_here(self.loop):
            self.soon(self.move)
        elif not self.is_closed and self.loop is not self.home.loop:
            self._unwatch()
            self.loop = self.home.loop
            self.soon(self._watch)
            self._sends = True
            self.soon(self._send)

    def soon(self, work: Callable[[], object]) -> bool:
        """Call ``work`` on the loop where it lives by then.

        :returns: False if that loop has ended.
        """

        def here() -> None:
            if is_here(self.loop):
                work()
            else:
                self.soon(work)

        return call_on(self.loop, here)

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
                self.lost(error)
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
        try:
            while not self.is_closed:
                data = self._socket.recv(BUFFER_BYTES)
                if data:
                    self.took(data)
                if len(data) < BUFFER_BYTES:
                    if not data:
                        self.close()
                    return
        except _NOT_NOW:
            pass  # all that has come is read
        except Exception as error:  # noqa: BLE001 - the socket fails, or the other end sends what it may not
            self.lost(error)


def _gathered(unsent: deque[bytes]) -> bytes:
    """What one call of the system sends: the first of it, and what fits beside that."""
    first = unsent.popleft()
    size, parts = len(first), [first]
    while unsent and size + len(unsent[0]) <= BUFFER_BYTES:
        parts.append(unsent.popleft())
        size += len(parts[-1])
    return first if len(parts) == 1 else b"".join(parts)
