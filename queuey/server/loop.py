"""The event-loop door: hot calls on the loop, all others in a few threads.

Reading a request, waiting for a commit and sending an answer hold no thread here, so neither slow
clients nor slow disks can use them up.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Callable
from email.utils import formatdate
from functools import partial
from typing import Any

from queuey.api.drafts import LARGE_BYTES
from queuey.api.errors import RETRY_AFTER_SECONDS
from queuey.api.live.reading import is_live
from queuey.api.routes import Operation
from queuey.future import LoopInbox, LoopRunner, give_way_to, run
from queuey.http.exchange import ARROW, JSON, NDJSON, Call
from queuey.http.pipeline import Pipeline
from queuey.server.connection import Connection
from queuey.server.refused import Refusals
from queuey.server.threads import Line, SharedThreads

log = logging.getLogger(__name__)

_PAUSE_STEP_SECONDS = 0.1
"""Pauses that end within so long end together."""

LAST_REQUESTS_SECONDS = 0.1
"""Between the beginning of a stop and the end of connections at rest: what was on its way by then gets its answer."""
HURRIED_SECONDS = 0.0005
"""How long the loop waits for a thread at work, at each event on a socket, while large batches are under way. Else it is ten times that."""
UPLOADS_A_TURN = 4
"""Of each a piece of at most 256 KiB is read. A turn may take 20 to 40 ms while threads are at work."""
REFUSED_UPLOADS_A_TURN = 1
"""Beside those: anybody can send a body that is refused, and it slows down no other."""
SPARE_CONNECTIONS = 1000
"""Over the limit, to tell clients so; still more are closed without a word."""


class LoopDoor:
    """What the connections of one server share."""

    def __init__(self, desk: Pipeline) -> None:
        settings = desk.service.settings
        self.desk = desk
        self.gate = desk.service.gate
        self.patience: int = settings.server.client_timeout_seconds
        """Seconds that a client may take for a body, besides its waits for its turns, or for the next piece of an answer."""
        self.rest_seconds: int = settings.server.idle_timeout_seconds
        self.stopping = False
        self.date = ""
        """The header that says when an answer was made, of this second."""
        self.inbox: LoopInbox
        self.soon: Callable[[Callable[[], object]], object]
        """Call back in the loop's next turn."""
        self._threads = SharedThreads(settings.server.threads, "call", lambda: give_way_to(self.inbox))
        self._batches_under_way = 0
        self._switch_seconds = sys.getswitchinterval()
        self._batches = SharedThreads(1, "batch", lambda: give_way_to(self.inbox))
        self._most: int = settings.server.connections
        self._connections: set[Connection] = set()
        self._paused: deque[tuple[float, Connection]] = deque()
        """Those that were refused a place, the first one first, each with the loop's time at which its pause ends."""
        self._uploads: deque[Connection] = deque()
        """Those that wait to be read from again, the one whose turn it is first."""
        self._refused_uploads: deque[Connection] = deque()
        """In the same way, those whose body nobody reads."""
        self._reads_uploads = False
        """:meth:`_read_uploads` will be called."""
        self._longest_body: int = settings.limits.max_request_bytes
        self.refusals = Refusals(desk)
        self._looks_for_room = False
        self._times_pauses = False
        """A timer for :meth:`_end_pauses` runs. One is enough, however often pauses begin and end meanwhile."""
        self._ticks = 0
        self._empty = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to serve on ``loop``."""
        self._loop = loop
        self.soon = loop.call_soon
        self.inbox = LoopInbox(loop)
        self._watch()

    def connection(self) -> Connection:
        """For a client that has just connected."""
        return Connection(self)

    async def stop(self) -> None:
        """Finish the requests under way; return when no connection is left."""
        self.stopping = True
        self.desk.service.live.stop()
        self._loop.call_later(LAST_REQUESTS_SECONDS, self._end_resting)
        if self._connections:
            await self._empty.wait()

    def abandon(self) -> None:
        """Wait for no client any longer: a stop has waited long enough, or is asked to hurry."""
        for connection in list(self._connections):
            connection.abort()

    def close(self) -> None:
        """Serve no more; calls under way in threads end first."""
        self._timer.cancel()
        self.inbox.closed = True
        self._threads.close()
        self._batches.close()
        sys.setswitchinterval(self._switch_seconds)

    def _end_resting(self) -> None:
        for connection in list(self._connections):
            _tell(connection, connection.stop)

    # Time, in whole seconds of the server's being awake

    def _watch(self) -> None:
        self._timer = self._loop.call_later(1, self._watch)  # first: whatever happens now, the next second comes
        self.tick()

    def tick(self) -> None:
        """A second has passed: give up on clients that take too long. One timer for all of them."""
        self._ticks += 1
        self.refusals.tell()
        self.date = f"date: {formatdate(usegmt=True)}\r\n"
        self._excuse_waits()
        for late in [one for one in self._connections if one.deadline <= self._ticks]:
            _tell(late, late.late)

    def _excuse_waits(self) -> None:
        """The second was not the client's where it waited for its turn.

        It was where more is still to come than any request may have: else a body without an end would have no deadline.
        """
        for waiting in (*self._uploads, *self._refused_uploads):
            if waiting.unread <= self._longest_body:
                waiting.deadline += 1

    def after(self, seconds: int) -> int:
        """A deadline that is so far away, and less than a second more."""
        return self._ticks + seconds + 1

    # Connections

    def enters(self, connection: Connection) -> bool:
        """Whether there is a place for one more connection."""
        self._connections.add(connection)
        over = len(self._connections) - self._most
        if over > SPARE_CONNECTIONS:
            connection.abort()
        return over <= 0

    def leaves(self, connection: Connection) -> None:
        """A connection has ended."""
        self._connections.discard(connection)
        if self.stopping and not self._connections:
            self._empty.set()

    # When the server is full

    def pause(self, connection: Connection) -> None:
        """Read no more of a client that was refused a place, until there is one or the time of Retry-After is over.

        A client that asks again at once costs nothing meanwhile; and who has waited longest comes first.
        """
        self._paused.append((self._loop.time() + RETRY_AFTER_SECONDS, connection))
        self._time_pauses()

    def _time_pauses(self) -> None:
        if self._paused and not self._times_pauses:
            self._times_pauses = True
            self._loop.call_later(_PAUSE_STEP_SECONDS, self._end_pauses)

    def leaves_room(self, call: Call) -> None:
        """A call has ended: somebody who was refused may come in its place."""
        self.desk.leave(call)
        if self._paused:
            self._place_is_free()

    def hands_over(self, call: Call, size: int) -> bool:
        """See :meth:`Pipeline.hand_over`; somebody who was refused may come in its place."""
        kept = self.desk.hand_over(call, size)
        if self._paused:
            self._place_is_free()
        return kept

    def _place_is_free(self) -> None:
        if not self._looks_for_room:
            self._looks_for_room = True
            self.soon(self._fill_room)

    def _fill_room(self) -> None:
        self._looks_for_room = False
        for _ in range(min(self.gate.room, len(self._paused))):
            self._end_pause()

    def _end_pauses(self) -> None:
        self._times_pauses = False
        now = self._loop.time()
        while self._paused and self._paused[0][0] <= now:
            self._end_pause()
        self._time_pauses()

    def _end_pause(self) -> None:
        _, connection = self._paused.popleft()
        _tell(connection, connection.go_on_after_pause)

    # When clients send much

    def next_upload(self, connection: Connection, *, refused: bool) -> None:
        """Read the next piece of this client's body when the uploads before it have had theirs, a few in each turn of the loop.

        :param refused: nobody reads that body. Such uploads have a line of their own.
        """
        (self._refused_uploads if refused else self._uploads).append(connection)
        if not self._reads_uploads:
            self._reads_uploads = True
            self.soon(self._read_uploads)

    def _read_uploads(self) -> None:
        _read(self._uploads, UPLOADS_A_TURN)
        _read(self._refused_uploads, REFUSED_UPLOADS_A_TURN)
        self._reads_uploads = bool(self._uploads or self._refused_uploads)
        if self._reads_uploads:
            self.soon(self._read_uploads)

    # Calls

    def answers_here(self, operation: Operation, call: Call) -> bool:
        """Whether the loop serves a call; not if that may take long: it reads a stream, or a large page here."""
        if not call.application:
            return True  # the server about itself: never behind others that wait for a thread
        if not operation.hot:
            return False
        if call.method == "POST":
            return call.length <= LARGE_BYTES or not _is_json_append(operation, call)
        if is_live(call):
            return True
        if call.accepts(ARROW) or call.accepts(NDJSON):
            return False
        limit = call.query.get("limit", "") if call.query_string else ""
        return self.desk.service.log.reads_elsewhere or len(limit) <= 2 or limit == "100"

    def in_thread(
        self,
        payer: str,
        work: Callable[[], Any],
        done: Callable[[Any], object],
        failed: Callable[[BaseException], object],
    ) -> None:
        """Do ``work`` in a thread that may wait, then call ``done`` with its result, or ``failed`` with its error, on the loop.

        :param payer: who shares the threads with the others.
        """

        def carry() -> None:
            try:
                made = work()
            except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to who waits
                self.inbox.arrives(partial(failed, error))
            else:
                self.inbox.arrives(partial(done, made))

        self._threads.add(payer, carry)

    def serve_in_thread(
        self,
        call: Call,
        operation: Operation,
        payer: str,
        done: Callable[[Any], object],
        failed: Callable[[BaseException], object],
    ) -> None:
        """Serve a call away from the loop; as :meth:`in_thread`.

        Batches as JSON are taken apart by one thread, which gives way to the loop between its steps, and takes the next batch
        while a commit is under way. Several such threads would keep the interpreter from the loop for all of their turns.
        """
        if not _is_json_append(operation, call):
            self.in_thread(payer, lambda: run(self.desk.answer(operation, call)), done, failed)
            return

        def back(go_on: Callable[[Any], object], made: Any) -> None:
            self.inbox.arrives(partial(self._large_batches, -1))
            self.inbox.arrives(partial(go_on, made))

        self._large_batches(+1)
        line = Line(self._batches, payer)
        line.arrives(
            LoopRunner(self.desk.answer(operation, call), line, partial(back, done), partial(back, failed)).go_on
        )

    def _large_batches(self, more: int) -> None:
        """While there are any, threads at work let the loop have its turn sooner, which costs all of them a few percent."""
        self._batches_under_way += more
        if not self.inbox.closed:
            sys.setswitchinterval(HURRIED_SECONDS if self._batches_under_way else self._switch_seconds)


def _tell(connection: Connection, what: Callable[[], object]) -> object:
    """Let a connection do something. Should it fail it is ended, and the others have their turn.

    :returns: what it returned, None if it failed.
    """
    try:
        return what()
    except Exception:
        log.exception("a connection failed, and is ended")
        connection.abort()
        return None


def _read(line: deque[Connection], most: int) -> None:
    """Read the next piece of so many uploads; those that have ended take no turn."""
    while line and most:
        connection = line.popleft()
        most -= bool(_tell(connection, connection.read_next_piece))


def _is_json_append(operation: Operation, call: Call) -> bool:
    return operation.hot and call.method == "POST" and call.media_type == JSON
