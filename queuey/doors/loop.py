"""The event-loop door: hot calls on the loop, all others by the Pyramid door in a few threads.

Reading a request, waiting for a commit and sending an answer hold no thread here, so neither slow
clients nor slow disks can use them up.
"""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from functools import partial
from typing import Any

from queuey.api.calls import ARROW, NDJSON, Answer, Call
from queuey.api.live import is_live
from queuey.api.routes import Operation
from queuey.api.serve import Desk
from queuey.doors.connection import Connection
from queuey.doors.pyramid import OPENED, Chunks, Environ, wsgi_application
from queuey.promise import LoopInbox

log = logging.getLogger(__name__)

LAST_REQUESTS_SECONDS = 0.1
"""Between the beginning of a stop and the end of connections at rest: what was on its way by then gets its answer."""
SPARE_CONNECTIONS = 1000
"""Over the limit, to tell clients so; still more are closed without a word."""


class LoopDoor:
    """What the connections of one server share."""

    def __init__(self, desk: Desk) -> None:
        settings = desk.service.settings
        self.desk = desk
        self.patience: int = settings.client_timeout_seconds
        """Seconds that a client may take for a body, or for the next piece of an answer."""
        self.rest_seconds: int = settings.idle_timeout_seconds
        self.stopping = False
        self.date = ""
        """The header that says when an answer was made, of this second."""
        self.inbox: LoopInbox
        self.soon: Callable[[Callable[[], object]], object]
        """Call back in the loop's next turn."""
        self._wsgi = wsgi_application(desk)
        self._threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="pyramid")
        self._most: int = settings.connections
        self._connections: set[Connection] = set()
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
        self._threads.shutdown(wait=True)

    def _end_resting(self) -> None:
        for connection in list(self._connections):
            connection.stop()

    # Time, in whole seconds of the server's being awake

    def _watch(self) -> None:
        self.tick()
        self._timer = self._loop.call_later(1, self._watch)

    def tick(self) -> None:
        """A second has passed: give up on clients that take too long. One timer for all of them."""
        self._ticks += 1
        self.date = f"date: {formatdate(usegmt=True)}\r\n"
        for late in [one for one in self._connections if one.deadline <= self._ticks]:
            late.late()

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

    # Calls

    def answers_here(self, operation: Operation, call: Call) -> bool:
        """Whether the loop serves a call; not if that may take long: it reads a stream, or a large page here."""
        if not operation.hot:
            return False
        if call.method == "POST":
            return True
        if is_live(call):
            return True
        if call.accepts(ARROW) or call.accepts(NDJSON):
            return False
        limit = call.query.get("limit", "") if call.query_string else ""
        return self.desk.service.log.reads_elsewhere or len(limit) <= 2 or limit == "100"

    def in_thread(
        self, work: Callable[[], Any], done: Callable[[Any], object], failed: Callable[[BaseException], object]
    ) -> None:
        """Do ``work`` in a thread that may wait; one of the others is called on the loop with what came of it."""

        def carry() -> None:
            try:
                made = work()
            except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to who waits
                self.inbox.arrives(partial(failed, error))
            else:
                self.inbox.arrives(partial(done, made))

        self._threads.submit(carry)

    def through_pyramid(self, call: Call, operation: Operation) -> Answer:
        """Run a call through the Pyramid door, in a thread that may wait."""
        environ: Environ = {
            "REQUEST_METHOD": call.method,
            "SCRIPT_NAME": "",
            "PATH_INFO": call.path.encode().decode("latin-1"),
            "QUERY_STRING": call.query_string,
            "SERVER_NAME": "localhost",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(call.body),
            "wsgi.errors": io.StringIO(),
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
            OPENED: (call, operation),
        }
        started: list[Any] = []

        def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], Any]:
            started[:] = (int(status[:3]), headers)
            return lambda data: None

        chunks = self._wsgi(environ, start_response)
        status, headers = started
        named = [(name.lower(), value) for name, value in headers if name.lower() != "content-length"]
        if isinstance(chunks, list):
            return Answer(status, b"".join(chunks), named)
        return Answer(status, b"", named, chunks.chunks if isinstance(chunks, Chunks) else iter(chunks))
