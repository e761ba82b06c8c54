"""The event-loop door: hot calls on the loop, all others by the Pyramid door in a few threads.

RSGI is granian's own interface. Reading a request, waiting for a commit and sending an answer hold
no thread here, so neither slow clients nor slow disks can use them up.
"""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from queuey.api.calls import ARROW, NDJSON, Answer, Call
from queuey.api.routes import Operation, decode_path
from queuey.api.serve import Desk
from queuey.doors.pyramid import OPENED, Environ, wsgi_application
from queuey.promise import LoopInbox, drive

log = logging.getLogger(__name__)

SWEEP_SECONDS = 1.0


class LoopDoor:
    """One RSGI application over one desk."""

    def __init__(self, desk: Desk) -> None:
        settings = desk.service.settings
        self._desk = desk
        self._wsgi = wsgi_application(desk)
        self._threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="pyramid")
        self._body_timeout: float = settings.body_timeout_seconds
        self._uploads: dict[asyncio.Task[Any], float] = {}
        self._loop: asyncio.AbstractEventLoop
        self._inbox: LoopInbox

    def __rsgi_init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._inbox = LoopInbox(loop)
        self._sweep()

    def _sweep(self) -> None:
        """Give up on uploads that take too long; one timer for all of them."""
        late = self._loop.time() - self._body_timeout
        for task, began in list(self._uploads.items()):
            if began < late:
                task.cancel()
        self._timer = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    def __rsgi_del__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer.cancel()
        self._threads.shutdown(wait=True)

    async def __rsgi__(self, scope: Any, protocol: Any) -> None:
        desk = self._desk
        monitor = desk.service.monitor
        monitor.in_progress.inc()
        try:
            call, operation = desk.open(scope.method, scope.path, scope.query_string, scope.headers)
            if not isinstance(operation, Answer) and call.length:
                call.body = await self._body(protocol)
                if len(call.body) != call.length:
                    operation = desk.cut_short(call, len(call.body))
            if isinstance(operation, Answer):
                answer = operation
            elif operation.hot and not _long(call):
                answer = await drive(desk.answer(operation, call), self._inbox, self._loop)
            else:
                answer = await self._loop.run_in_executor(self._threads, self._through_pyramid, call, operation)
            await self._send(call, answer, protocol)
        finally:
            monitor.in_progress.dec()

    async def _body(self, protocol: Any) -> bytes:
        task = asyncio.current_task()
        if task is None:
            raise AssertionError("a request is served by a task")
        self._uploads[task] = self._loop.time()
        try:
            body: bytes = await protocol()
        except asyncio.CancelledError:
            return b""
        finally:
            del self._uploads[task]
        return body

    def _through_pyramid(self, call: Call, operation: Operation) -> Answer:
        """Run a call through the Pyramid door, in a thread that may wait."""
        environ: Environ = {
            "REQUEST_METHOD": call.method,
            "SCRIPT_NAME": "",
            "PATH_INFO": decode_path(call.path).encode().decode("latin-1"),
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

    async def _send(self, call: Call, answer: Answer, protocol: Any) -> None:
        if answer.chunks is not None and call.method != "HEAD":
            await self._stream(answer, answer.chunks, protocol)
        elif call.method == "HEAD":
            headers = [*answer.headers, ("content-length", str(len(answer.body)))] if answer.chunks is None else answer.headers
            protocol.response_empty(answer.status, headers)
        else:
            protocol.response_bytes(answer.status, answer.headers, answer.body)

    async def _stream(self, answer: Answer, chunks: Iterator[bytes], protocol: Any) -> None:
        """Send chunks as the client takes them; each is made in a thread, one at a time."""
        transport = protocol.response_stream(answer.status, answer.headers)
        following = _closing(chunks)
        while (chunk := await self._loop.run_in_executor(self._threads, following)) is not None:
            if chunk:
                await transport.send_bytes(chunk)


def _long(call: Call) -> bool:
    """Whether a call on a hot resource may keep the loop for long: it reads a stream, or a large page."""
    if call.method == "POST":
        return False
    if call.accepts(ARROW) or call.accepts(NDJSON) or "info" in call.query_string:
        return True
    limit = call.query.get("limit", "") if "limit" in call.query_string else ""
    return len(limit) > 2 and limit != "100"


def _closing(chunks: Iterable[bytes]) -> Callable[[], bytes | None]:
    """A function that gives the next chunk, and None at the end."""
    iterator = iter(chunks)
    return lambda: next(iterator, None)
