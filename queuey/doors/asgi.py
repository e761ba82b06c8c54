"""The event-loop door: hot calls on the loop, all others by the Pyramid door in a few threads.

Reading a request, waiting for a commit and sending an answer hold no thread here, so neither slow
clients nor slow disks can use them up. ASGI and not granian's own RSGI, because only its sends wait
for the client: see docs/decisions/003.
"""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from queuey.api.calls import ARROW, NDJSON, NOT_ASCII, Answer, Call
from queuey.api.routes import Operation
from queuey.api.serve import Desk
from queuey.doors.pyramid import OPENED, Environ, wsgi_application
from queuey.promise import LoopInbox, drive

log = logging.getLogger(__name__)

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

SWEEP_SECONDS = 1.0
PIECE = 64 << 10
"""Larger bodies are sent in pieces of this size, each when the client has taken the ones before."""


class ClientGone(Exception):
    """The client went away, or took too long: there is nobody to answer."""


class LoopDoor:
    """One ASGI application over one desk."""

    def __init__(self, desk: Desk) -> None:
        settings = desk.service.settings
        self._desk = desk
        self._wsgi = wsgi_application(desk)
        self._threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="pyramid")
        self._patience: float = settings.client_timeout_seconds
        self._waiting: dict[asyncio.Task[Any], float] = {}
        """Since when each task has waited for its client."""
        self._loop: asyncio.AbstractEventLoop
        self._inbox: LoopInbox

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to serve on ``loop``."""
        self._loop = loop
        self._inbox = LoopInbox(loop)
        self._sweep()

    def close(self) -> None:
        """Serve no more; calls under way in threads end first."""
        self._timer.cancel()
        self._threads.shutdown(wait=True)

    def abandon(self) -> None:
        """Wait for no client any longer: a stop has waited long enough."""
        self._patience = 0.0

    def _sweep(self) -> None:
        """Give up on clients that take too long; one timer for all of them."""
        late = self._loop.time() - self._patience
        for task, since in list(self._waiting.items()):
            if since < late:
                task.cancel()
        self._timer = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        desk = self._desk
        query = scope["query_string"].decode("latin-1")
        call, operation = desk.open(scope["method"], scope["path"], query, _headers(scope["headers"]))
        try:
            if call.length and not isinstance(operation, Answer):
                operation = await self._body(call, receive) or operation
            if isinstance(operation, Answer):
                answer = operation
            elif operation.hot and not _long(call):
                answer = await drive(desk.answer(operation, call), self._inbox, self._loop)
            else:
                answer = await self._loop.run_in_executor(self._threads, self._through_pyramid, call, operation)
            await self._send(call, answer, receive, send)
        except ClientGone:
            return
        except Exception:
            log.exception("answering request %s failed", call.request_id)  # granian would tell nobody
            raise
        finally:
            desk.leave(call)

    async def _patiently(self, coming: Awaitable[Any], since: float | None = None) -> Any:
        """Wait for the client, but not for ever.

        :param since: when waiting began, if that is not now.
        """
        task = asyncio.current_task()
        if task is None:
            raise AssertionError("a request is served by a task")
        self._waiting[task] = self._loop.time() if since is None else since
        try:
            return await coming
        except asyncio.CancelledError as error:
            raise ClientGone from error
        finally:
            del self._waiting[task]

    async def _body(self, call: Call, receive: Receive) -> Answer | None:
        """Read the body, in the time that all of it may take; a refusal if it was cut, late, or too much beside the others."""
        parts: list[bytes] = []
        got, more, began = 0, True, self._loop.time()
        try:
            while got < call.length and more:
                message = await self._patiently(receive(), began)
                parts.append(message.get("body", b""))
                got += len(parts[-1])
                more = message.get("more_body", False)
                if call.length > PIECE:
                    refused = self._desk.receive(call, len(parts[-1]))
                    if refused is not None:
                        return refused
        except ClientGone:
            pass  # what is missing is told like any other cut; silence would become a 500
        call.body = parts[0] if len(parts) == 1 else b"".join(parts)
        return None if got == call.length else self._desk.cut_short(call, got)

    def _through_pyramid(self, call: Call, operation: Operation) -> Answer:
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
        return Answer(status, b"", named, iter(chunks))

    async def _send(self, call: Call, answer: Answer, receive: Receive, send: Send) -> None:
        headers = [(name.encode(), value.encode("latin-1")) for name, value in answer.headers]
        if answer.chunks is None:
            headers.append((b"content-length", str(len(answer.body)).encode()))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        if call.method == "HEAD":
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        elif answer.chunks is not None:
            await self._pieces(answer.chunks, receive, send)
        elif len(answer.body) > PIECE:
            await self._pieces(_cut(answer.body), receive, send)
        else:
            await send({"type": "http.response.body", "body": answer.body, "more_body": False})

    async def _pieces(self, chunks: Iterator[bytes], receive: Receive, send: Send) -> None:
        """Send chunks as the client takes them; each is made in a thread, one at a time.

        A chunk that cannot be made breaks the connection: the client sees that the answer is not whole.
        """
        gone = asyncio.ensure_future(_disconnect(receive))
        try:
            while (chunk := await self._loop.run_in_executor(self._threads, next, chunks, None)) is not None:
                for piece in _cut(chunk):
                    if gone.done():
                        raise ClientGone
                    await self._patiently(send({"type": "http.response.body", "body": piece, "more_body": True}))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()


async def _disconnect(receive: Receive) -> None:
    """Return when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _cut(body: bytes) -> Iterator[bytes]:
    """A body in pieces: granian holds a few of them for a client that is slow to take them."""
    view = memoryview(body)
    return (bytes(view[start : start + PIECE]) for start in range(0, len(view), PIECE))


def _headers(given: list[tuple[bytes, bytes]]) -> dict[str, str]:
    """Request headers by lower-case name; those that came more than once are joined, as WSGI servers do."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in given:
        name = raw_name.decode("latin-1")
        value = raw_value.decode() if raw_value.isascii() else NOT_ASCII
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _long(call: Call) -> bool:
    """Whether a call on a hot resource may keep the loop for long: it reads a stream, or a large page."""
    if call.method == "POST":
        return False
    limit = call.query.get("limit", "") if call.query_string else ""
    return (len(limit) > 2 and limit != "100") or call.accepts(ARROW) or call.accepts(NDJSON)
