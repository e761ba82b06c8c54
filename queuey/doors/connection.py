"""One client's connection: requests in, answers out, one at a time and in order.

::

    HEAD ──► BODY ──► WORK ──► SEND ──► HEAD ...     the next request
      └──────── refused ────────►├────► SKIP ─► HEAD  past a body that nobody reads
                                 └────► OVER          the connection ends

and TURN in place of HEAD when the next request has come already.

Nothing here waits: each step is a call by the loop and leaves what the next one needs. So a
connection at rest is an object and a socket, without a task, a parser or a buffer; and a request
whose answer is at hand, or on its way from a commit, costs no task either. Who takes too long is
told by :attr:`Connection.deadline`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import Enum
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any

from queuey.api.calls import Answer, Call
from queuey.api.routes import Operation
from queuey.doors.delivery import PIECE, Delivery, Feed
from queuey.doors.http import CONTINUE, END_OF_HEAD, Head, answer_head, check_beginning, parse_head
from queuey.errors import QueueyError, TooManyConnections
from queuey.promise import Errand

if TYPE_CHECKING:
    from queuey.doors.loop import LoopDoor

log = logging.getLogger(__name__)

HEADER_SECONDS = 10
"""For the head of a request, from its first byte; and for the first one, from the connection's beginning."""
NEVER = float("inf")


class State(Enum):
    """What a connection waits for."""

    HEAD = "a request, or the rest of its head"
    TURN = "the others to have had their turn: there is something of its next request"
    BODY = "the rest of a body"
    WORK = "its answer to be made"
    SEND = "the client to take the answer"
    SKIP = "the rest of a body that nobody reads"
    OVER = "the client to close, or to take the last answer"


_HEAD, _TURN, _BODY, _WORK, _SEND, _SKIP, _OVER = State


class Connection(asyncio.Protocol):
    """What the loop calls when something happens on a socket."""

    __slots__ = (
        "_away",
        "_body",
        "_call",
        "_delivery",
        "_door",
        "_ended",
        "_errand",
        "_framed",
        "_lasting",
        "_operation",
        "_reading",
        "_rest",
        "_state",
        "_transport",
        "_unread",
        "deadline",
        "flowing",
    )

    def __init__(self, door: LoopDoor) -> None:
        self._door = door
        self._transport: asyncio.Transport | None = None
        self._state = _HEAD
        self._rest = b""
        """Received, and not used yet."""
        self._reading = True
        self._ended = False
        """The client sends nothing more."""
        self._lasting = False
        """The client may send another request after this one."""
        self._framed = False
        """The client knows chunks."""
        self._unread = 0
        """Bytes of a body that nobody reads."""
        self._call: Call | None = None
        self._operation: Operation | None = None
        self._body: BytesIO | None = None
        """What has come of a body that comes in several pieces."""
        self._errand: Errand[Answer] | None = None
        self._away = False
        """A thread works for this connection."""
        self._delivery: Delivery | Feed | None = None
        self.flowing = True
        """The client takes what it is sent, so far."""
        self.deadline = NEVER
        """The door's time at which :meth:`late` is called."""

    # What the loop tells

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of TCP it is one
        self._transport = transport
        self.deadline = self._door.after(HEADER_SECONDS)
        if not self._door.enters(self):
            self._break_off(self._door.desk.turn_away(TooManyConnections()))

    def connection_lost(self, exc: Exception | None) -> None:
        delivery, self._delivery, self._transport = self._delivery, None, None
        self._door.leaves(self)
        if delivery is not None:
            delivery.give_up()
        if self._errand is not None and self._call is not None and self._call.method in ("GET", "HEAD"):
            self._errand.give_up()  # a write goes on to its end
            self._errand = None
        if self._errand is None and not self._away:
            self._leave()

    def data_received(self, data: bytes) -> None:
        state = self._state
        if state is _HEAD:
            self._take_head(data)
        elif state is _BODY:
            self._take_body(data)
        elif state is _SKIP:
            self._skip(data)
        elif state is not _OVER:
            self._rest += data
            self._stop_reading()  # further requests can wait where they are

    def eof_received(self) -> bool:
        """The client sends nothing more, and may still take answers."""
        self._ended = True
        if self._state is _BODY:
            self._cut_short()
        elif isinstance(self._delivery, Feed) or (self._call is not None and self._call.waits):
            self.abort()  # nobody waits for what may come any more
        return self._state in (_TURN, _WORK, _SEND)

    def pause_writing(self) -> None:
        self.flowing = False

    def resume_writing(self) -> None:
        self.flowing = True
        if self._delivery is not None and not self._away:
            self._delivery.go_on()

    # What the door tells

    def late(self) -> None:
        """The deadline is over."""
        if self._state is _BODY:
            self._cut_short()
        else:
            self.abort()

    def stop(self) -> None:
        """The server stops: a connection at rest ends now, others end with their answer."""
        if self._state is _HEAD and not self._rest and self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End at once; what the client has not taken is lost."""
        if self._transport is not None:
            self._transport.abort()

    # A request

    def _take_head(self, data: bytes) -> None:
        looked = len(self._rest)
        if looked:
            data = self._rest + data
        if data[0] == 13 and data.startswith(b"\r\n"):
            data, looked = data[2:], 0  # some clients end a body with it
        end = data.find(END_OF_HEAD, max(looked - 3, 0)) + 4
        try:
            if end < 4:
                check_beginning(data, looked)
                if data and not looked:
                    self.deadline = self._door.after(HEADER_SECONDS)
                self._rest = data
            else:
                self._begin(parse_head(data[:end]), data[end:])
        except QueueyError as error:
            self._break_off(self._door.desk.turn_away(error))

    def _begin(self, head: Head, rest: bytes) -> None:
        """Open a call; ``rest`` begins with its body."""
        door, length = self._door, head.length
        self._lasting, self._framed = head.lasting, head.knows_chunks
        call, operation = door.desk.open(head.method, head.path, head.query, head.headers)
        self._call = call
        if isinstance(operation, Answer) or length is None or not call.length:
            self._rest, self._unread = rest, 1 if length is None else length
            if length and "expect" in head.headers:
                self._lasting = False  # it may send the body now, or not: nobody can tell what comes next
            self._work(operation)
        elif length <= len(rest) and length <= PIECE:
            call.body, self._rest = rest[:length], rest[length:]
            self._work(operation)
        else:
            self._state, self._rest = _BODY, b""
            self._operation, self._body = operation, BytesIO()
            self.deadline = door.after(door.patience)
            if rest:
                self._take_body(rest)
            elif head.headers.get("expect", "").lower() == "100-continue" and self._framed and self._transport:
                self._transport.write(CONTINUE)

    def _take_body(self, data: bytes) -> None:
        call, operation, body = self._call, self._operation, self._body
        if call is None or operation is None or body is None:
            raise AssertionError("a body belongs to a call")
        missing = call.length - body.tell()
        if len(data) > missing:
            data, self._rest = data[:missing], data[missing:]
        refused = self._door.desk.receive(call, len(data)) if call.length > PIECE else None
        if refused is not None:
            self._break_off(refused)
            return
        body.write(data)
        if len(data) == missing:
            self._operation = self._body = None
            call.body = body.getvalue()  # what was written, not a copy of it
            del body
            self._work(operation)

    def _cut_short(self) -> None:
        if self._call is not None and self._body is not None:
            self._break_off(self._door.desk.cut_short(self._call, self._body.tell()))

    def _break_off(self, answer: Answer) -> None:
        """Refuse what is no request, or not all of one: nor is what follows."""
        self._operation = self._body = None
        self._lasting = False
        self._unread = 1
        self._send(answer)

    # Its answer

    def _work(self, operation: Operation | Answer) -> None:
        self._state = _WORK
        self.deadline = NEVER
        call, door = self._call, self._door
        if call is None:
            raise AssertionError("an answer belongs to a call")
        if isinstance(operation, Answer):
            self._send(operation)
        elif door.answers_here(operation, call):
            self._errand = Errand(door.desk.answer(operation, call), door.inbox, self._send, self.failed)
            self._errand.go_on()
        else:
            self.in_thread(partial(door.through_pyramid, call, operation), self._send)

    def in_thread(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Let a thread do ``work`` while nobody waits for the client, then go on with ``done`` if it is still there."""
        self._away = True
        self.deadline = NEVER

        def back(made: Any) -> None:
            self._away = False
            if self._transport is None:
                self._leave()
            else:
                done(made)

        self._door.in_thread(work, back, self.failed)

    def failed(self, error: BaseException) -> None:
        """What the client waits for cannot be made."""
        log.error("a request could not be answered", exc_info=error)
        self._errand, self._away = None, False
        self.abort()
        self._leave()

    def _leave(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            self._door.desk.leave(call)

    def _send(self, answer: Answer) -> None:
        self._errand = None
        transport = self._transport
        if transport is None:
            self._leave()
            return
        self._state = _SEND
        body, chunks, stream = answer.body, answer.chunks, answer.stream
        measured = chunks is None and stream is None
        framed = self._framed and not measured
        if not (measured or framed) or self._unread > PIECE or self._door.stopping:
            self._lasting = False
        start = answer_head(
            answer.status,
            self._door.date,
            answer.headers,
            len(body) if measured and answer.status != 304 else None,
            framed=framed,
            lasting=self._lasting,
        )
        if self._call is not None and self._call.method == "HEAD":
            body, chunks = b"", None
            if stream is not None:
                stream.close()
                stream = None
        if stream is not None:
            self._leave()  # from here on it takes no place among those under way
            transport.write(start)
            self._delivery = Feed(self, transport, stream, self._door, framed=framed)
            self._delivery.go_on()
            return
        if chunks is None and len(body) <= PIECE:
            transport.write(start + body)
            if self.flowing:
                self.delivered()
                return
            body = b""
        else:
            transport.write(start)
        self._delivery = Delivery(self, transport, body, chunks, framed=framed)
        self._delivery.go_on()

    def expects_client(self) -> None:
        """It is the client's turn to take something."""
        self.deadline = self._door.after(self._door.patience)

    def delivered(self) -> None:
        """The answer is with the transport."""
        self._delivery = None
        self._leave()
        if not self._lasting or self._door.stopping:
            self._end()
        elif self._unread:
            self._state = _SKIP
            self.expects_client()
            data, self._rest = self._rest, b""
            self._skip(data)
        else:
            self._next()

    def _skip(self, data: bytes) -> None:
        if len(data) < self._unread:
            self._unread -= len(data)
            self._read_on()
        else:
            self._rest, self._unread = data[self._unread :], 0
            self._next()

    def _next(self) -> None:
        """Begin with what has come of the next request, after others had their turn; or wait for it."""
        if self._rest:
            self._state, self.deadline = _TURN, NEVER
            self._stop_reading()
            self._door.soon(self._go_on)
        else:
            self._state, self.deadline = _HEAD, self._door.after(self._door.rest_seconds)
            self._read_on()

    def _go_on(self) -> None:
        if self._transport is None:
            return
        self._state, self.deadline = _HEAD, self._door.after(self._door.rest_seconds)
        data, self._rest = self._rest, b""
        self._take_head(data)
        if self._state is _HEAD or self._state is _BODY:
            self._read_on()
        elif self._state in (_WORK, _SEND) and not self._rest:
            self._resume_reading()  # or nobody would hear that the client has gone

    def _end(self) -> None:
        """Close. A client that may still be sending has to take the answer first: a reset would overtake it."""
        self._state = _OVER
        self.expects_client()
        if self._transport is None:
            return
        if (self._rest or self._unread) and not self._ended:
            self._rest = b""
            self._transport.write_eof()
            self._read_on()
        else:
            self._transport.close()

    def _stop_reading(self) -> None:
        if self._reading and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()

    def _read_on(self) -> None:
        """Wait for more, unless the client said that there is none."""
        if self._ended:
            (self._cut_short if self._state is _BODY else self._end)()
        else:
            self._resume_reading()

    def _resume_reading(self) -> None:
        if not self._reading and self._transport is not None:
            self._reading = True
            self._transport.resume_reading()
