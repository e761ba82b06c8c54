"""One client's connection: requests in, answers out, one at a time and in order.

Nothing here blocks. The loop calls each step, and each step leaves what the next one needs. So a connection at rest is
an object and a socket, without a task, a parser or a buffer. A request whose answer is in memory, or waits for a
commit, costs no task either. :attr:`Connection.deadline` says when this client is too slow. :mod:`queuey.server.states`
shows the way of a request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from io import BytesIO
from typing import Any

from queuey.errors import QueueyError, Throttled, TooManyConnections
from queuey.future import LoopRunner
from queuey.http.admission import UNREAD
from queuey.http.exchange import Answer, Call
from queuey.http.face import Operation
from queuey.http.pipeline import SMALL
from queuey.security.principals import STRANGERS
from queuey.server.client import NEVER
from queuey.server.early import EarlyBytes
from queuey.server.http1 import CONTINUE, END_OF_HEAD, RequestHead, answer_head, check_beginning, parse_head
from queuey.server.loop import LoopServer
from queuey.server.sending import LEFT_OVER, PIECE, Sender
from queuey.server.states import State

log = logging.getLogger(__name__)

HEADER_SECONDS = 10
"""The longest time from the first byte of a head to its end. For the first head it runs from the connection's
beginning."""

_HEAD, _TURN, _ASK, _BODY, _WORK, _SEND, _SKIP, _PAUSE, _OVER = State


def _expects(head: RequestHead) -> bool:
    """The client waits for the server to ask for its body."""
    return head.knows_chunks and head.headers.get("expect", "").lower() == "100-continue"


class Connection(asyncio.Protocol):
    """The methods that the loop calls when something happens on a socket."""

    __slots__ = (
        "_away",
        "_body",
        "_call",
        "_early",
        "_ended",
        "_framed",
        "_heading",
        "_is_tls",
        "_lasting",
        "_operation",
        "_peer",
        "_reading",
        "_refused",
        "_runner",
        "_sender",
        "_server",
        "_state",
        "_stripped",
        "_transport",
        "deadline",
        "flowing",
        "unread",
    )

    def __init__(self, server: LoopServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._peer = ""
        self._is_tls = server.is_tls
        self._state = _HEAD
        self._early = EarlyBytes(server.admission)
        self._heading = True
        """The time of a head runs: it is the first one, or part of it has arrived."""
        self._stripped = False
        """The empty line before a head was skipped."""
        self._refused = False
        """The server was full when the last request came."""
        self._reading = True
        self._ended = False
        """The client has ended its side: it sends nothing more."""
        self._lasting = False
        """The client may send another request after this one."""
        self._framed = False
        """The client understands chunked bodies."""
        self.unread: float = 0
        """Bytes still to come of a body that is not read; infinite if its end is not known."""
        self._call: Call | None = None
        self._operation: Operation | None = None
        self._body: BytesIO | None = None
        """What has arrived of a body that comes in several pieces."""
        self._runner: LoopRunner[Any] | None = None
        self._away = False
        """A thread works for this connection."""
        self._sender: Sender | None = None
        self.flowing = True
        """The client is taking what it is sent, as far as the transport has reported."""
        self.deadline = NEVER
        """The server's time at which :meth:`late` is called."""

    # Called by the loop

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of TCP it is one
        self._transport = transport
        self._peer = (transport.get_extra_info("peername") or ("",))[0]
        transport.set_write_buffer_limits(high=LEFT_OVER)
        self.deadline = self._server.after(HEADER_SECONDS)
        if not self._server.enters(self):
            self._break_off(self._server.pipeline.finisher.turn_away(TooManyConnections()))

    def connection_lost(self, exc: Exception | None) -> None:
        sender, self._sender, self._transport = self._sender, None, None
        self._server.leaves(self)
        self._early.take()
        if sender is not None:
            sender.give_up()
        if (call := self._call) is not None:
            call.is_left = call.is_gone = True
        if self._runner is not None and call is not None and (call.method in ("GET", "HEAD") or call.ticket.waits):
            self._runner.give_up()  # a write goes on to its end, but not to wait for messages that nobody takes
            self._runner = None
        if self._runner is None and not self._away:
            self._leave()

    def data_received(self, data: bytes) -> None:
        state = self._state
        if state is _HEAD:
            self._take_head(data)
        elif state is _BODY:
            self._take_body(data)
        elif state is _SKIP:
            self._skip(data)
        elif state is _OVER:
            self._drop(data)
        else:
            self._put_by(self._early.data + data)
            if not self._flows():
                self._stop_reading()  # further requests can wait in the kernel
            elif self._early.is_large:
                self.abort()  # the early bytes get no answer
        if len(data) >= PIECE:
            self._wait_turn()

    def eof_received(self) -> bool:
        """Note that the client sends nothing more. It may still take answers."""
        self._ended = True
        if self._call is not None:
            self._call.is_left = True
        if self._state is _BODY:
            self._cut_short()
        elif self._flows():
            self.abort()  # the client takes no more answers
        return not self._is_tls and self._state in (_TURN, _ASK, _WORK, _SEND)  # TLS ends both sides

    def _flows(self) -> bool:
        """Whether the client waits for messages still to come."""
        if self._sender is not None:
            return self._sender.waits
        return self._call is not None and self._call.ticket.waits

    def pause_writing(self) -> None:
        self.flowing = False

    def resume_writing(self) -> None:
        self.flowing = True
        if self._sender is not None:
            self._sender.go_on()

    # Called by the server

    def late(self) -> None:
        """Give up on the client: its deadline is over."""
        if self._state is _BODY:
            self._cut_short()
        else:
            self.abort()

    def stop(self) -> None:
        """End a connection at rest, since the server stops. Others end with their answer."""
        if self._state in (_HEAD, _PAUSE) and not self._early.data and self._transport is not None:
            self._transport.close()
            if self._is_tls:
                self.deadline = self._server.after(0)  # a client at rest may not look, and then does not end its side

    def abort(self) -> None:
        """End at once. What the client has not taken is lost."""
        if self._transport is not None:
            self._transport.abort()

    # A request

    def _take_head(self, data: bytes) -> None:
        looked = len(self._early.data)
        if looked:
            data = self._early.take() + data
        if data[0] == 13 and not self._stripped and data.startswith(b"\r\n"):
            self._stripped = True
            data, looked = data[2:], 0  # some clients send an empty line after a body
        end = data.find(END_OF_HEAD, max(looked - 3, 0)) + 4
        try:
            if end < 4:
                check_beginning(data, looked)
                self._wait_for_head(data)
            else:
                self._begin(parse_head(data[:end]), data[end:])
        except QueueyError as error:
            self._break_off(self._server.pipeline.finisher.turn_away(error))

    def _wait_for_head(self, data: bytes) -> None:
        """Store part of a head. Its time starts with its first byte, if it does not run already, and only then."""
        if data and not self._heading:
            self._heading = True
            self.deadline = self._server.after(HEADER_SECONDS)
        if not self._keep(data):
            raise Throttled

    def _put_by(self, data: bytes) -> None:
        """Store bytes that arrive before their turn.

        Without room for them, end the connection.
        """
        if not self._keep(data):
            self.abort()

    def _keep(self, data: bytes) -> bool:
        """Store bytes that arrive before their turn; whether there is room for them.

        They count against the call that they follow.
        """
        return self._early.keep(data, (UNREAD,) if self._call is None else self._server.pipeline.payers(self._call))

    def _begin(self, head: RequestHead, rest: bytes) -> None:
        """Open a call; ``rest`` begins with its body."""
        server, length = self._server, head.length
        if self._is_tls:  # the server says of itself what a proxy with TLS would
            head = head._replace(headers={**head.headers, "x-forwarded-proto": "https"})
        self._lasting, self._framed = head.lasting, head.knows_chunks
        if server.admission.room <= 0 and self._turn_back(head, rest):
            return
        call, operation = server.pipeline.open(head.method, head.path, head.query, head.headers)
        self._call = call
        call.peer, call.is_left = self._peer, self._ended
        if isinstance(operation, Answer) or length is None or not call.length:
            if length != 0 or rest:
                self._pass_over(head, rest)
            self._work(operation)
        elif length <= len(rest) and length <= SMALL:
            call.body = rest[:length]
            if len(rest) > length:
                self._put_by(rest[length:])
            self._work(operation)
        else:
            self._ask(head, operation, call, rest)

    def _pass_over(self, head: RequestHead, rest: bytes) -> None:
        """Skip this request's body."""
        if head.length is None:
            self.unread, self._lasting = NEVER, False  # its end is not known
            return
        self.unread = max(head.length - len(rest), 0)
        if len(rest) > head.length:
            self._put_by(rest[head.length :])
        if head.length > PIECE:
            self._lasting = False
        if head.length and "expect" in head.headers:
            self._lasting = False  # it may send the body or not, so the next bytes are ambiguous

    def _turn_back(self, head: RequestHead, rest: bytes) -> bool:
        """Refuse a call, since the server is full; False if it must be served.

        Calls about the server itself are always served.
        """
        server, transport = self._server, self._transport
        if transport is None or not server.refusals.fits(head):
            return False
        self._refused = True
        self._lasting = head.lasting and not server.stopping
        self._pass_over(head, rest)
        self._state = _SEND
        transport.write(server.refusals.answer(head, server.date, self._lasting))
        if self.flowing:
            self.delivered()
        else:
            self._sender = Sender(self, transport, server)
            self._sender.go_on()
        return True

    def _ask(self, head: RequestHead, operation: Operation, call: Call, rest: bytes) -> None:
        """Decide from the head whether a call is refused, before its body arrives."""
        self._state, self.deadline = _ASK, NEVER
        if self._server.pipeline.need_not_ask(operation, call):
            self._wait_for_body(operation, rest, expected=_expects(head))
            return
        if rest and not self._keep(rest):
            self._break_off(self._server.refusals.full(call), call.length - len(rest))
            return

        def asked(refused: Answer | None) -> None:
            self._runner = None
            if self._transport is None:
                self._leave()
            elif refused is not None:
                self._pass_over(head, self._early.take())
                self._work(refused)
            else:
                self._wait_for_body(operation, self._early.take(), expected=_expects(head))

        self._runner = LoopRunner(self._server.pipeline.ask(operation, call), self._server.inbox, asked, self.failed)
        self._runner.go_on()

    def _wait_for_body(self, operation: Operation, data: bytes, *, expected: bool) -> None:
        self._state = _BODY
        self._operation, self._body = operation, BytesIO()
        self.deadline = self._server.after(self._server.patience)
        if data:
            self._take_body(data)
        elif expected and self._transport is not None:
            self._transport.write(CONTINUE)
        if self._state is _BODY:
            self._read_on()
        else:
            self._listen()

    def _take_body(self, data: bytes) -> None:
        call, operation, body = self._call, self._operation, self._body
        if call is None or operation is None or body is None:
            raise AssertionError("a body belongs to a call")
        missing = call.length - body.tell()
        if len(data) > missing:
            self._put_by(data[missing:])
            data = data[:missing]
        refused = self._server.pipeline.receive(call, len(data))
        if refused is not None:
            self._break_off(refused, missing - len(data))
            return
        body.write(data)
        if len(data) == missing:
            self._operation = self._body = None
            call.body = body.getvalue()  # the written bytes, without a copy
            del body
            self._work(operation)

    def _cut_short(self) -> None:
        if self._call is not None and self._body is not None:
            self._break_off(self._server.pipeline.finisher.cut_short(self._call, self._body.tell()))

    def _break_off(self, answer: Answer, unread: float = NEVER) -> None:
        """Refuse bytes that are no request, or only part of one.

        The bytes after it are not read as a request either, after ``unread`` bytes.
        """
        self._operation = self._body = None
        self._lasting = False
        self.unread = unread
        self._send(answer)

    # The answer

    def _work(self, operation: Operation | Answer) -> None:
        self._state = _WORK
        self.deadline = NEVER
        call, server = self._call, self._server
        if call is None:
            raise AssertionError("an answer belongs to a call")
        if isinstance(operation, Answer):
            self._send(operation)
        elif not call.ticket.enter():
            self._refused = True
            self._send(server.refusals.full(call))
        elif server.work.on_loop(operation, call):
            self._runner = LoopRunner(server.pipeline.answer(operation, call), server.inbox, self._send, self.failed)
            self._runner.go_on()
        else:
            payer = server.pipeline.payers(call)[-1]
            server.work.serve(operation, call, payer, self._away_until(self._send), self.failed)

    def in_thread(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Do ``work`` in a thread, without a deadline for the client.

        Then go on with ``done``, if the client is still there.
        """
        payer = STRANGERS if self._call is None else self._server.pipeline.payers(self._call)[-1]
        self._server.work.start(payer, work, self._away_until(done), self.failed)

    def _away_until(self, done: Callable[[Any], None]) -> Callable[[Any], None]:
        """Suspend the client's deadline until the returned function is called.

        That function goes on with ``done``, if the client is still there.
        """
        self._away = True
        self.deadline = NEVER

        def back(made: Any) -> None:
            self._away = False
            if self._transport is None:
                self._leave()
            else:
                done(made)

        return back

    def failed(self, error: BaseException) -> None:
        """Handle an answer, or a part of one, that cannot be made."""
        log.error("a request could not be answered", exc_info=error)
        self._runner, self._away = None, False
        self.abort()
        self._leave()

    def _leave(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            self._server.leaves_room(call)

    def _send(self, answer: Answer) -> None:
        self._runner = None
        transport = self._transport
        if transport is None:
            self._leave()
            return
        self._state = _SEND
        body, stream = answer.body, answer.stream
        measured = stream is None
        framed = self._framed and not measured
        if not (measured or framed) or self._server.stopping:
            self._lasting = False
        start = answer_head(
            answer.status,
            self._server.date,
            answer.headers,
            answer.length,
            framed=framed,
            lasting=self._lasting,
        )
        if self._call is not None and self._call.method == "HEAD":
            body = b""
            if stream is not None:
                stream.close()
                stream = None
        if stream is None and len(body) <= PIECE:
            transport.write(start + body)
            if self.flowing:
                self.delivered()
                return
            body = b""
        else:
            transport.write(start)
        self._sender = Sender(self, transport, self._server, body, stream, framed=framed)
        if self._has_room_for(answer):
            self._sender.go_on()
        else:
            self.abort()

    def _has_room_for(self, answer: Answer) -> bool:
        """Whether there is room to wait until this client has taken the answer."""
        if answer.stream is not None and answer.stream.waits:
            self._leave()  # such a stream takes no place among the calls
            return not self._early.is_large  # the early bytes get no answer
        return self._call is None or self._server.hands_over(self._call, len(answer.body))

    def expects_client(self) -> None:
        """Start the deadline for the client to take what it was sent."""
        self.deadline = self._server.after(self._server.patience)

    def delivered(self) -> None:
        """Go on to the next request.

        At most :data:`LEFT_OVER` bytes of the answer are not taken yet.
        """
        self._sender = None
        self._leave()
        if not self._lasting or self._server.stopping:
            self._end()
        elif self.unread:
            self._state = _SKIP
            self.expects_client()
            self._skip(self._early.take())
        else:
            self._next()

    def _skip(self, data: bytes) -> None:
        if len(data) < self.unread:
            self.unread -= len(data)
            self._read_on()
        else:
            self._put_by(data[int(self.unread) :])
            self.unread = 0
            self._next()

    def _next(self) -> None:
        """Start the next request once others had their turn.

        Wait if no part of it is here.
        """
        self._heading = self._stripped = False
        if self._refused and not self._ended and not self._server.stopping:
            self._state, self.deadline = _PAUSE, NEVER
            self._stop_reading()
            self._server.pauses.add(self)
        elif self._early.data:
            self._state, self.deadline = _TURN, NEVER
            self._stop_reading()
            self._server.soon(self._go_on)
        else:
            self._state, self.deadline = _HEAD, self._server.after(self._server.rest_seconds)
            self._read_on()

    def _go_on(self) -> None:
        if self._transport is None:
            return
        self._state, self.deadline = _HEAD, self._server.after(self._server.rest_seconds)
        self._take_head(self._early.take())
        if self._state is _HEAD or self._state is _BODY:
            self._read_on()
        else:
            self._listen()

    def _listen(self) -> None:
        """Read while the answer is made: only a read shows that the client has gone."""
        if self._state in (_ASK, _WORK, _SEND) and not self._early.data:
            self._resume_reading()

    def go_on_after_pause(self) -> None:
        """Try again: there may be room now, or the client has waited long enough."""
        if self._state is _PAUSE and self._transport is not None:
            self._refused = False
            self._next()

    def _end(self) -> None:
        """Close the connection.

        A client that may still be sending has to take the answer first: a reset would overtake it.
        """
        self._state = _OVER
        self.expects_client()
        if self._transport is None:
            return
        if (self._early.take() or self.unread) and not self._ended:
            if not self._is_tls:
                self._transport.write_eof()
            self._read_on()
        else:
            self._transport.close()

    def _drop(self, data: bytes) -> None:
        """Read past bytes of a body.

        A client that may send all that it announced, and a little more, takes the answer for sure.
        """
        self.unread -= len(data)
        if self.unread < -PIECE:
            self.abort()

    def _stop_reading(self) -> None:
        if self._reading and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()

    def _wait_turn(self) -> None:
        """Let others be read after a large piece of a body.

        Otherwise the loop would read megabytes at a time from a fast client.
        """
        if self._reading and self._state in (_BODY, _SKIP, _OVER):
            self._stop_reading()
            self._server.uploads.add(self, refused=self._state is not _BODY)

    def read_next_piece(self) -> bool:
        """Read on, since it is this upload's turn.

        :returns: whether there is any upload left.
        """
        takes = self._transport is not None and self._state in (_BODY, _SKIP, _OVER)
        if takes:
            self._resume_reading()
        return takes

    def _read_on(self) -> None:
        """Read on, unless the client has ended its side."""
        if self._ended:
            (self._cut_short if self._state is _BODY else self._end)()
        else:
            self._resume_reading()

    def _resume_reading(self) -> None:
        if not self._reading and self._transport is not None:
            self._reading = True
            self._transport.resume_reading()
