"""A large answer, or a stream, on its way to a client that may be slow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from queuey.future import LoopInbox, LoopRunner, run
from queuey.http.exchange import BodyStream, Chunk
from queuey.server.client import NEVER, ClientConnection
from queuey.server.http1 import END_OF_CHUNKS

PIECE = 64 << 10
"""Bytes given to the transport in one piece."""
LEFT_OVER = 8 << 10
"""Bytes of finished answers that a connection may hold without counting. It waits for more, and they count until
then."""


class LoopTurns(Protocol):
    """The turns of the event loop."""

    @property
    def inbox(self) -> LoopInbox:
        """Resumes coroutines."""

    def soon(self, work: Callable[[], object]) -> object:
        """Do ``work`` in the loop's next turn."""


class Sender:
    """Gives an answer to the transport in pieces, as fast as the client takes them.

    A stream's next chunk is asked for after the client has taken the last, so one chunk is in memory. While none comes,
    only the stream's coroutine exists: no thread, task or buffer. If a chunk cannot be made, the connection breaks, so
    that the client sees that the answer is incomplete.
    """

    __slots__ = ("_asked", "_client", "_framed", "_over", "_pieces", "_runner", "_stream", "_transport", "_turns")

    def __init__(
        self,
        client: ClientConnection,
        transport: asyncio.Transport,
        turns: LoopTurns,
        body: bytes = b"",
        stream: BodyStream | None = None,
        *,
        framed: bool = False,
    ) -> None:
        """:param framed: each chunk of the stream goes as a chunk of HTTP."""
        self._client = client
        self._transport = transport
        self._turns = turns
        self._pieces = _cut(body, framed=False)
        self._stream = stream
        self._framed = framed
        self._runner: LoopRunner[Chunk | None] | None = None
        self._asked = self._over = False
        # Bytes that the kernel does not take at once count as not taken: a piece that waits in the transport keeps its whole
        # body or chunk in memory. With 0 the loop's TLS would pause for nothing, and never resume.
        transport.set_write_buffer_limits(high=1, low=0)

    @property
    def waits(self) -> bool:
        """Whether the client waits for chunks still to come."""
        return self._stream is not None and self._stream.waits

    def go_on(self) -> None:
        """Send as much as the client takes."""
        client = self._client
        if self._asked or self._over:
            return
        while client.flowing:
            piece = next(self._pieces, None)
            if piece is None:
                self._ask() if self._stream is not None else self._finish()
                return
            self._transport.writelines(piece)
        client.expects_client()

    def _ask(self) -> None:
        """Ask for the stream's next chunk, which may come at any time: the client has no deadline until then."""
        client, stream = self._client, self._stream
        if stream is None:
            raise AssertionError("there is a stream to ask")
        self._asked = True
        if stream.waits:
            client.deadline = NEVER
            self._runner = LoopRunner(stream.more(), self._turns.inbox, self._take, client.failed)
            self._runner.go_on()
        else:
            client.in_thread(partial(run, stream.more()), self._take)

    def _take(self, chunk: Chunk | None) -> None:
        """Take the chunk that was asked for; None if there are no more."""
        self._asked, self._runner = False, None
        if self._over:
            return
        if chunk is None:
            self._end_stream()
        elif isinstance(chunk, bytes) and 0 < len(chunk) <= PIECE:  # nearly all live ones are small
            self._transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if self._framed else chunk)
        else:
            self._pieces = _cut(chunk, framed=self._framed)
        if self._client.flowing and self.waits:
            self._turns.soon(self.go_on)  # a reader with much to read lets others pass
        else:
            self.go_on()

    def _end_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
        if self._framed:
            self._transport.write(END_OF_CHUNKS)

    def _finish(self) -> None:
        """End the answer, all of which the client has taken."""
        self._over = True
        self._transport.set_write_buffer_limits(high=LEFT_OVER)
        self._client.delivered()

    def give_up(self) -> None:
        """Stop: the client has gone. What the stream holds is given back at once."""
        self._over = True
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.give_up()
        if self._stream is not None:
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
