"""A connection as the other parts of the server see it, so that none imports it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["NEVER", "ClientConnection", "OpenConnection"]

NEVER = float("inf")
"""The deadline of a client that the server is not waiting for."""


class OpenConnection(Protocol):
    """What takes one of the places that a server has for connections."""

    deadline: float
    """When to call :meth:`late`, in seconds of :meth:`queuey.server.loop.LoopServer.after`."""

    def late(self) -> None:
        """Give up on the client: its deadline is over."""

    def stop(self) -> None:
        """End a connection at rest, since the server stops. Others end with their answer."""

    def abort(self) -> None:
        """End at once. What the client has not taken is lost."""


class ClientConnection(OpenConnection, Protocol):
    """One client's connection; see :class:`queuey.server.connection.Connection`."""

    unread: float
    """Bytes still to come of a body that is not read; infinite if its end is not known."""
    flowing: bool
    """The client is taking what it is sent, as far as the transport has reported."""

    def go_on_after_pause(self) -> None:
        """Try again: there may be room now, or the client has waited long enough."""

    def read_next_piece(self) -> bool:
        """Read on, since it is this upload's turn; False if there is no upload left."""

    def expects_client(self) -> None:
        """Start the deadline for the client to take what it was sent."""

    def delivered(self) -> None:
        """Go on to the next request: the client has taken the answer."""

    def failed(self, error: BaseException) -> None:
        """Handle an answer, or a part of one, that cannot be made."""

    def in_thread(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Do ``work`` in a thread, then go on with ``done``."""
