"""A large answer, or a stream, on its way to a client that may be slow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial

from queuey.future import LoopInbox, LoopRunner
from queuey.http.exchange import BodyStream, Chunk
from queuey.server.client import NEVER, ClientConnection
from queuey.server.http1 import END_OF_CHUNKS

PIECE = 64 << 10
"""Bytes given to the transport in one piece."""
LEFT_OVER = 8 << 10
"""Bytes of finished answers that a connection may hold without counting. It waits for more, and they count until
then."""


class BodySender:
    """Gives an answer to the transport in pieces, as fast as the client takes them.

    One chunk of a streamed answer is in memory. A thread makes the next one after the client has taken it. If a chunk
    cannot be made, the connection breaks, so that the client sees that the answer is incomplete.
    """

    __slots__ = ("_chunks", "_client", "_framed", "_pieces", "_transport")

    def __init__(
        self,
        client: ClientConnection,
        transport: asyncio.Transport,
        body: bytes,
        chunks: Iterator[Chunk] | None,
        *,
        framed: bool,
    ) -> None:
        """:param framed: the body, and each part made after it, go as a chunk of HTTP."""
        self._client = client
        self._transport = transport
        self._pieces = _cut(body, framed=framed)
        self._chunks = chunks
        self._framed = framed

    def go_on(self) -> None:
        """Send as much as the client takes."""
        client = self._client
        client.expects_client()
        while client.flowing:
            piece = next(self._pieces, None)
            if piece is None:
                if self._chunks is None:
                    self._finish()
                else:
                    client.in_thread(partial(next, self._chunks, None), self._take)
                return
            self._transport.writelines(piece)

    def _take(self, chunk: Chunk | None) -> None:
        """Take a chunk that was made; None if there are no more."""
        if chunk is not None:
            self._pieces = _cut(chunk, framed=self._framed)
        else:
            self._chunks = None
            if self._framed:
                self._transport.write(END_OF_CHUNKS)
        self.go_on()

    def _finish(self) -> None:
        """End the answer, all of which the transport has.

        A piece that waits there holds the whole body in memory, so this waits for it.
        """
        self._transport.set_write_buffer_limits(high=0)
        if self._client.flowing:
            self._transport.set_write_buffer_limits(high=LEFT_OVER)
            self._client.delivered()

    def give_up(self) -> None:
        """Stop: the client has gone."""


class StreamSender:
    """Gives a stream's pieces to the transport as they come.

    The next one follows when the client has taken the last.

    While no piece comes, only the stream's coroutine exists: no thread, task or buffer. Bytes that the kernel does not
    take at once count as not taken, so at most one piece is in memory.
    """

    __slots__ = ("_client", "_framed", "_inbox", "_over", "_runner", "_soon", "_stream", "_transport")

    def __init__(
        self,
        client: ClientConnection,
        transport: asyncio.Transport,
        stream: BodyStream,
        inbox: LoopInbox,
        soon: Callable[[Callable[[], object]], object],
        *,
        framed: bool,
    ) -> None:
        """:param inbox: resumes the stream's coroutine.
        :param soon: calls a function in the loop's next turn.
        """
        self._client = client
        self._transport = transport
        self._stream = stream
        self._inbox, self._soon = inbox, soon
        self._over = False
        self._framed = framed
        self._runner: LoopRunner[bytes | None] | None = None
        transport.set_write_buffer_limits(high=0)

    def go_on(self) -> None:
        """Ask for the next piece, unless it is asked for or the last is not taken yet."""
        client = self._client
        if self._runner is not None or not client.flowing or self._over:
            return
        client.deadline = NEVER  # the stream's next piece may come at any time, so the client has no deadline now
        self._runner = LoopRunner(self._stream.more(), self._inbox, self._take, self._failed)
        self._runner.go_on()

    def _take(self, piece: bytes | None) -> None:
        self._runner = None
        client, transport = self._client, self._transport
        if self._over:
            return
        if piece is None:
            self._over = True
            if self._framed:
                transport.write(END_OF_CHUNKS)
            self._stream.close()
            transport.set_write_buffer_limits(high=LEFT_OVER)
            client.delivered()
            return
        transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if self._framed else piece)
        if client.flowing:
            self._soon(self.go_on)
        else:
            client.expects_client()

    def _failed(self, error: BaseException) -> None:
        self._runner = None
        self._client.failed(error)

    def give_up(self) -> None:
        """Stop: the client has gone. What the stream holds is given back at once."""
        self._over = True
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.give_up()
        self._stream.close()


def _cut(chunk: Chunk, *, framed: bool) -> Iterator[list[bytes | memoryview]]:
    """A chunk in pieces for the transport.

    All pieces form one chunk of HTTP, since clients parse chunks one by one.
    """
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
