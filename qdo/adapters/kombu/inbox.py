"""What was received and waits for ``drain_events``."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from typing import Any, NamedTuple

from qdo.client import Message

__all__ = ["Arrived", "ConnectionInbox"]

MOST_TRANSIENT = 1000
"""Messages without a lease that wait. Followers stop reading meanwhile."""


class Arrived(NamedTuple):
    """A message for a consumer of a channel."""

    channel: Any
    queue: str
    message: Message


class ConnectionInbox:
    """Messages for the consumers of one connection. Threads put them in; the thread that drains takes them out."""

    def __init__(self) -> None:
        self._arrived: deque[Arrived] = deque()
        self._failure: Exception | None = None
        self._changed = threading.Condition()
        self._closed = False
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Readable while something is here, for an event loop."""

    def put(self, arrived: Arrived) -> bool:
        """:returns: False if the inbox is closed, and does not have the message."""
        with self._changed:
            if not self._closed:
                self._arrived.append(arrived)
                self._wake()
            return not self._closed

    def put_when_there_is_room(self, arrived: Arrived) -> bool:
        """As :meth:`put`, after a wait for room."""
        with self._changed:
            while len(self._arrived) >= MOST_TRANSIENT and not self._closed:
                self._changed.wait()
        return self.put(arrived)

    def fail(self, error: Exception) -> None:
        """Let the thread that drains raise this."""
        with self._changed:
            self._failure = error
            self._wake()

    def take(self, timeout: float | None) -> Arrived:
        """:param timeout: seconds to wait; None for ever.
        :raises TimeoutError: nothing came.
        :raises ConnectionError: the connection is closed, maybe while this waited.
        """
        until = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while True:
                if self._failure is not None:
                    error, self._failure = self._failure, None
                    raise error
                if self._arrived:
                    found = self._arrived.popleft()
                    self._changed.notify_all()
                    return found
                if self._closed:
                    raise ConnectionError("the connection was closed")
                self._rest()
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    raise socket.timeout("no message came in time")  # noqa: UP041 -- kombu's name for it
                self._changed.wait(left)

    def close(self) -> list[Arrived]:
        """:returns: what nobody took."""
        with self._changed:
            left, self._closed = [*self._arrived], True
            self._arrived.clear()
            os.close(self.fd)
            self.fd = -1
            self._changed.notify_all()
            return left

    def _wake(self) -> None:
        if not self._closed:
            os.eventfd_write(self.fd, 1)
        self._changed.notify_all()

    def _rest(self) -> None:
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            """It was not readable."""
