"""A TLS handshake under way: a connection like any other, from its first moment.

The loop's own listener knows a connection only once its handshake is over. Until then none is counted, so that clients which
begin one and go no further took all files that the process may open, those of the store too.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import Any, Final

from queuey.server.connection import Connection
from queuey.server.loop import LoopServer

__all__ = ["Handshake"]

log = logging.getLogger(__name__)

SECONDS: Final = 10
"""A client that takes longer loses its connection."""


class Handshake(asyncio.Protocol):
    """It ends with a :class:`~queuey.server.connection.Connection` in its place, or with none."""

    def __init__(self, server: LoopServer, context: ssl.SSLContext) -> None:
        self._server = server
        self._context = context
        self.deadline: float = server.after(SECONDS)
        self._transport: asyncio.Transport
        self._first = b""
        """What came before the handshake could begin."""
        self._shaking: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of TCP it is one
        self._transport = transport
        self._server.enters(self)

    def data_received(self, data: bytes) -> None:
        self._first += data
        if self._shaking is None:
            self._transport.pause_reading()
            self._shaking = asyncio.get_running_loop().create_task(self._shake())

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.leaves(self)  # before a handshake: from then on the loop tells others

    def late(self) -> None:
        """See :class:`~queuey.server.client.OpenConnection`."""
        self.abort()

    def stop(self) -> None:
        """See :class:`~queuey.server.client.OpenConnection`."""
        self.abort()

    def abort(self) -> None:
        """See :class:`~queuey.server.client.OpenConnection`."""
        self._transport.abort()
        if self._shaking is not None:
            self._shaking.cancel()

    async def _shake(self) -> None:
        """Start the loop's handshake on this socket, pass on the bytes that came before it, and wait until it is over."""
        loop, waiting = asyncio.get_running_loop(), _FirstBytes()
        # The deadline is sooner: the loop's own limit only must not be shorter.
        shaking = loop.create_task(
            loop.start_tls(self._transport, waiting, self._context, server_side=True, ssl_handshake_timeout=2 * SECONDS)
        )
        try:
            await asyncio.sleep(0)  # by now the handshake is there, and hears of its connection in the next turn
            loop.call_soon(self._hand_on)
            secured = await shaking
        except (OSError, asyncio.CancelledError) as error:  # an SSLError is an OSError
            log.debug("a handshake came to nothing: %r", error)
            shaking.cancel()
            self._transport.abort()
            return
        finally:
            self._server.leaves(self)
        if secured is not None and not waiting.is_over:
            waiting.go_on_as(Connection(self._server), secured)

    def _hand_on(self) -> None:
        handshake: Any = self._transport.get_protocol()  # it has the methods of a BufferedProtocol
        data = b"" if handshake is self else self._first
        while data and not self._transport.is_closing():
            room = handshake.get_buffer(len(data))
            taken = min(len(room), len(data))
            room[:taken] = data[:taken]
            handshake.buffer_updated(taken)
            data = data[taken:]


class _FirstBytes(asyncio.Protocol):
    """What comes after the end of a handshake, before the connection that takes its place is there: one read at most."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.has_ended = False
        self.is_over = False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def eof_received(self) -> bool:
        self.has_ended = True
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_over = True

    def go_on_as(self, client: Connection, transport: asyncio.Transport) -> None:
        """Let a connection have all this, and whatever comes."""
        transport.set_protocol(client)
        client.connection_made(transport)
        if self.data:
            client.data_received(bytes(self.data))
        if self.has_ended:
            client.eof_received()
