"""The driver's connections, with fewer turns of its event loop.

The driver's thread shares one interpreter with those that carry out requests, and takes it from them in each turn of its
loop. To send a statement the driver takes some five turns: it is woken for the time limit and for the bytes, and wakes
itself whenever it begins or ends to watch the socket. Here it is woken once, and then it writes.

It has no public names for that. With another loop than libev's the driver does as it does by itself.
"""

# ruff: noqa: SLF001

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Final

from cassandra.cluster import Cluster
from cassandra.connection import Timer

__all__ = ["CONNECTION_CLASS", "DriverConnection"]


class DriverConnection(Cluster.connection_class):  # type: ignore[misc]
    """A connection with room for a page.

    The driver's own reads and writes 4 KiB at a time.
    """

    in_buffer_size = out_buffer_size = 128 << 10

    @classmethod
    def call_later(cls, seconds: float, callback: Callable[[], object]) -> None:
        """Call back in the driver's thread."""
        cls.create_timer(seconds, callback)


CONNECTION_CLASS: type[DriverConnection] = DriverConnection
_IS_LIBEV: Final = Cluster.connection_class.__module__ == "cassandra.io.libevreactor"

if _IS_LIBEV:
    from cassandra.io import libevreactor

    class _Loop(libevreactor.LibevLoop):  # type: ignore[misc]
        """Writes as soon as it is woken. It watches a socket for writing only if that had no room."""

        def _loop_will_run(self, prepare: Any) -> None:
            for connection in self._live_conns:
                if connection.deque and not connection._write_watcher_is_active:
                    connection.handle_write(None, 0)
            super()._loop_will_run(prepare)

    class _Limit(Timer):  # type: ignore[misc]
        """A time limit of a statement.

        The loop keeps it until it is due. So once the statement is answered, it lets go of the statement and its rows:
        else they would stay, and each look of the garbage collector would go through them.
        """

        def cancel(self) -> None:
            super().cancel()
            self.callback = _nothing

    def _nothing() -> None:
        """The statement is answered."""

    class _LibevConnection(DriverConnection):
        @classmethod
        def initialize_reactor(cls) -> None:
            """Begin with a loop of this module, unless this process has one already."""
            loop = libevreactor._global_loop
            if loop is None or loop._pid != os.getpid():
                cls.handle_fork()
                libevreactor._global_loop = _Loop()

        @classmethod
        def create_timer(cls, timeout: float, callback: Callable[[], object]) -> Timer:
            """Make a time limit of a statement. It is about to be sent, and that wakes the loop."""
            limit, loop = _Limit(timeout, callback), libevreactor._global_loop
            loop._timers.add_timer(limit)
            if threading.current_thread() is loop._thread:
                loop.notify()
            return limit

        @classmethod
        def call_later(cls, seconds: float, callback: Callable[[], object]) -> None:
            super().create_timer(seconds, callback)

    CONNECTION_CLASS = _LibevConnection
