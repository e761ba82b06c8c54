"""A large answer, or a stream, on its way to a client that may be slow."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from queuey.future import LoopRunner
from queuey.http.exchange import Chunk, Stream
from queuey.server.http1 import END_OF_CHUNKS

if TYPE_CHECKING:
    import asyncio

    from queuey.server.connection import Connection
    from queuey.server.loop import LoopDoor

PIECE = 64 << 10
"""What is handed to the transport at a time."""
LEFT_OVER = 8 << 10
"""Bytes of answers that a connection may hold after they are done with: more are waited for, and count until then."""


class BodySender:
    """Hands an answer to the transport piece by piece, each when the client has taken those before.

    Of a stream one chunk is in memory, and the next is made, by a thread, when the client has taken
    it. A chunk that cannot be made breaks the connection, so that the client sees that the answer is
    not whole.
    """

    __slots__ = ("_chunks", "_connection", "_framed", "_pieces", "_transport")

    def __init__(
        self,
        connection: Connection,
        transport: asyncio.Transport,
        body: bytes,
        chunks: Iterator[Chunk] | None,
        *,
        framed: bool,
    ) -> None:
        """:param framed: the body, and what is made after it, each go as a chunk of HTTP."""
        self._connection = connection
        self._transport = transport
        self._pieces = _cut(body, framed=framed)
        self._chunks = chunks
        self._framed = framed

    def go_on(self) -> None:
        """Send as much as the client takes."""
        connection = self._connection
        connection.expects_client()
        while connection.flowing:
            piece = next(self._pieces, None)
            if piece is None:
                if self._chunks is None:
                    self._finish()
                else:
                    connection.in_thread(partial(next, self._chunks, None), self._take)
                return
            self._transport.writelines(piece)

    def _take(self, chunk: Chunk | None) -> None:
        """A chunk was made, or there are no more."""
        if chunk is not None:
            self._pieces = _cut(chunk, framed=self._framed)
        else:
            self._chunks = None
            if self._framed:
                self._transport.write(END_OF_CHUNKS)
        self.go_on()

    def _finish(self) -> None:
        """All is with the transport. A piece that waits there holds all of the body in memory: it is waited for."""
        self._transport.set_write_buffer_limits(high=0)
        if self._connection.flowing:
            self._transport.set_write_buffer_limits(high=LEFT_OVER)
            self._connection.delivered()

    def give_up(self) -> None:
        """The client has gone."""


class StreamSender:
    """Hands a stream's pieces to the transport as they come, each when the client has taken those before.

    While nothing comes, the stream's own coroutine is all there is: no thread, no task, no buffer. What
    the kernel does not take at once counts as not taken, so that at most one piece is in memory.
    """

    __slots__ = ("_connection", "_door", "_framed", "_over", "_runner", "_stream", "_transport")

    def __init__(
        self,
        connection: Connection,
        transport: asyncio.Transport,
        stream: Stream,
        door: LoopDoor,
        *,
        framed: bool,
    ) -> None:
        self._connection = connection
        self._transport = transport
        self._stream = stream
        self._door = door
        self._over = False
        self._framed = framed
        self._runner: LoopRunner[bytes | None] | None = None
        transport.set_write_buffer_limits(high=0)

    def go_on(self) -> None:
        """Ask for the next piece, if the client has taken the last and none is asked for yet."""
        connection = self._connection
        if self._runner is not None or not connection.flowing or self._over:
            return
        connection.deadline = inf  # it is not the client's turn, and nobody can say when it will be
        self._runner = LoopRunner(self._stream.more(), self._door.inbox, self._take, self._failed)
        self._runner.go_on()

    def _take(self, piece: bytes | None) -> None:
        self._runner = None
        connection, transport = self._connection, self._transport
        if self._over:
            return
        if piece is None:
            self._over = True
            if self._framed:
                transport.write(END_OF_CHUNKS)
            self._stream.close()
            transport.set_write_buffer_limits(high=LEFT_OVER)
            connection.delivered()
            return
        transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if self._framed else piece)
        if connection.flowing:
            self._door.soon(self.go_on)
        else:
            connection.expects_client()

    def _failed(self, error: BaseException) -> None:
        self._runner = None
        self._connection.failed(error)

    def give_up(self) -> None:
        """The client has gone: what the stream holds is given back at once."""
        self._over = True
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.give_up()
        self._stream.close()


def _cut(chunk: Chunk, *, framed: bool) -> Iterator[list[bytes | memoryview]]:
    """In pieces; one chunk of HTTP however many they are, since clients take chunks apart one by one."""
    parts = [memoryview(part) for part in ([chunk] if isinstance(chunk, bytes) else chunk)]
    size = sum(map(len, parts))
    if not size:
        return
    piece: list[bytes | memoryview] = [b"%x\r\n" % size] if framed else []
    left = PIECE
    for part in parts:
        start = 0
        while len(part) - start >= left:
            yield [*piece, part[start : start + left]]
            start, piece, left = start + left, [], PIECE
        piece.append(part[start:])
        left -= len(part) - start
    yield [*piece, b"\r\n"] if framed else piece
