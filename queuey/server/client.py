"""What the parts of the server know of a connection, so that none of them imports it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["NEVER", "ClientConnection"]

NEVER = float("inf")
"""The deadline of a client that is not waited for."""


class ClientConnection(Protocol):
    """One client's connection; see :class:`queuey.server.connection.Connection`."""

    deadline: float
    """In seconds of :meth:`queuey.server.loop.LoopServer.after`: then :meth:`late` is called."""
    unread: float
    """Bytes of a body that nobody reads, still to come; endless where nobody knows."""
    flowing: bool
    """The client takes what it is sent, so far."""

    def late(self) -> None:
        """The deadline is over."""

    def stop(self) -> None:
        """The server stops: a connection at rest ends now, others end with their answer."""

    def abort(self) -> None:
        """End at once; what the client has not taken is lost."""

    def go_on_after_pause(self) -> None:
        """There may be room again, or the client has waited for long enough."""

    def read_next_piece(self) -> bool:
        """It is this upload's turn again; False if there is no upload left."""

    def expects_client(self) -> None:
        """It is the client's turn to take something."""

    def delivered(self) -> None:
        """The client has taken the answer."""

    def failed(self, error: BaseException) -> None:
        """What the client waits for cannot be made."""

    def in_thread(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Let a thread do ``work``, then go on with ``done``."""
