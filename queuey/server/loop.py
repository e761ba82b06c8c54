"""The server on an event loop.

Short calls run on the loop, all others in a few threads.

Reading a request, waiting for a commit and sending an answer take no thread here. So neither slow clients nor slow
disks can use up the threads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from email.utils import formatdate

from queuey.file_limit import file_limit
from queuey.future import LoopInbox
from queuey.http.exchange import RETRY_AFTER_SECONDS, Call
from queuey.http.pipeline import Pipeline
from queuey.server.client import OpenConnection
from queuey.server.open_files import room_for
from queuey.server.refused import Refusals
from queuey.server.turns import Pauses, Uploads, tell
from queuey.server.work import Work

__all__ = ["LoopServer"]

log = logging.getLogger(__name__)

LAST_REQUESTS_SECONDS = 0.1
"""Seconds from the start of a stop to the end of connections at rest: requests on their way by then get their
answers."""


class LoopServer:
    """What the connections of one server share."""

    def __init__(self, pipeline: Pipeline) -> None:
        settings = pipeline.service.settings
        self.is_tls = bool(settings.server.tls_cert)
        """Clients speak TLS with the server itself."""
        self.pipeline = pipeline
        self.admission = pipeline.admission
        self.patience: int = settings.server.client_timeout_seconds
        """Seconds in which a client must send its body, apart from waits for its turns, or take a piece of an
        answer."""
        self.drain_seconds: int = settings.server.drain_seconds
        self.rest_seconds: int = settings.server.idle_timeout_seconds
        self.stopping = False
        self.date = ""
        """The Date header of the current second."""
        self.inbox: LoopInbox
        self.soon: Callable[[Callable[[], object]], object]
        """Call a function in the loop's next turn."""
        self.work = Work(pipeline, settings.server.threads)
        self.pauses = Pauses(RETRY_AFTER_SECONDS, lambda: self.admission.room)
        self.uploads = Uploads(settings.limits.max_request_bytes)
        self.refusals = Refusals(pipeline)
        self._room = room_for(settings.server.connections, file_limit())
        self._clients: set[OpenConnection] = set()
        self._ticks = 0
        self._empty = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start to serve on ``loop``."""
        self._loop = loop
        self.soon = loop.call_soon
        self.inbox = LoopInbox(loop)
        self.pipeline.service.stores.use_loop(self.inbox)
        self.work.open(self.inbox)
        self.pauses.open(loop)
        self.uploads.open(loop)
        self._watch()

    async def stop(self) -> None:
        """Finish the requests under way; returns when no connection is left."""
        self.stopping = True
        self.pipeline.service.waiters.stop()
        self._loop.call_later(LAST_REQUESTS_SECONDS, self._end_resting)
        if self._clients:
            await self._empty.wait()

    def abandon(self) -> None:
        """End all connections: the stop has waited long enough, or must hurry."""
        for client in list(self._clients):
            client.abort()

    def close(self) -> None:
        """Stop serving; calls under way in threads end first."""
        self._timer.cancel()
        self.pipeline.service.stores.use_loop(None)
        self.inbox.closed = True
        self.work.close()

    def _end_resting(self) -> None:
        for client in list(self._clients):
            tell(client, client.stop)

    # Time, in whole seconds while the machine is awake

    def _watch(self) -> None:
        self._timer = self._loop.call_later(1, self._watch)  # first, so that an error does not end the ticks
        self.tick()

    def tick(self) -> None:
        """Give up on clients that take too long.

        One timer for all of them calls it every second.
        """
        self._ticks += 1
        self.refusals.report()
        self.date = f"date: {formatdate(usegmt=True)}\r\n"
        self.uploads.excuse()
        for late in [client for client in self._clients if client.deadline <= self._ticks]:
            tell(late, late.late)

    def after(self, seconds: int) -> int:
        """A deadline in ``seconds`` from now, or up to a second later."""
        return self._ticks + seconds + 1

    # Connections

    def enters(self, client: OpenConnection) -> bool:
        """Whether there is room for one more connection."""
        self._clients.add(client)
        over = len(self._clients) - self._room.most
        if over > self._room.spare:
            client.abort()
        return over <= 0

    def leaves(self, client: OpenConnection) -> None:
        """Note that a connection has ended."""
        self._clients.discard(client)
        if self.stopping and not self._clients:
            self._empty.set()

    # Calls

    def leaves_room(self, call: Call) -> None:
        """Note that a call has ended: a client that was refused may take its place."""
        self.pipeline.leave(call)
        if self.pauses.paused:
            self.pauses.place_is_free()

    def hands_over(self, call: Call, size: int) -> bool:
        """See :meth:`Pipeline.hand_over`.

        A client that was refused may take the call's place.
        """
        kept = self.pipeline.hand_over(call, size)
        self.pauses.place_is_free()
        return kept
