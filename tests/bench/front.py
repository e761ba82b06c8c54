"""The least that could answer: a server's process without Queuey in it.

``python -m tests.bench.front rsgi`` is granian with its own interface, RSGI: it reads each request's body,
looks at the headers an append has, and gives an append's answer; it checks nobody and stores nothing. ``asgi`` is the same
on uvicorn, with uvloop and httptools.
``own`` is the shipped server's front, which does the same behind its connections. ``forgetful`` is the shipped server
with all that it asks and looks at, but for a store: what it appends it forgets.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from itertools import count
from time import time_ns
from typing import Any

import uvloop
from granian.constants import Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server

from queuey.api.face import V1
from queuey.future import run
from queuey.http.exchange import Answer, Call
from queuey.http.face import Operation
from queuey.http.pipeline import Pipeline
from queuey.ids import IdGenerator
from queuey.model import Appended, AppendRequest, Location
from queuey.server.connection import Connection
from queuey.server.faces import open_pipeline
from queuey.server.loop import LoopServer
from queuey.server.run import BACKLOG
from queuey.service import Service
from queuey.settings import load_settings
from tests.bench.servers import KEY

HEADER_TIMEOUT_MS = 10_000
MAX_HEADER_BYTES = 24 << 10
_numbers = count(1)
_JSON = [("content-type", "application/json")]


class RsgiFront:
    """One RSGI application."""

    async def __rsgi__(self, scope: Any, protocol: Any) -> None:
        """Serve one request."""
        if not _is_append(scope.method, scope.path, scope.headers):
            protocol.response_empty(200, [])
        elif len(await protocol()) != int(scope.headers.get("content-length", "0")):
            protocol.response_empty(400, [])
        else:
            protocol.response_bytes(201, _JSON, _placed())


async def _asgi_front(scope: Any, receive: Any, send: Any) -> None:
    """One ASGI application, which serves one request."""
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    body, more = b"", True
    while more:
        event = await receive()
        body, more = body + event.get("body", b""), event.get("more_body", False)
    status, answer = 200, b""
    if _is_append(scope["method"], scope["path"], headers):
        whole = len(body) == int(headers.get("content-length", "0"))
        status, answer = (201, _placed()) if whole else (400, b"")
    length = (b"content-length", b"%d" % len(answer))
    await send(
        {"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json"), length]}
    )
    await send({"type": "http.response.body", "body": answer})


class Front(Pipeline):
    """Opens a call without looking at it, and answers it in the same way."""

    def open(
        self, method: str, path: str, query_string: str, headers: Mapping[str, str]
    ) -> tuple[Call, Operation | Answer]:
        call = Call(method, path, query_string, headers)
        call.length = int(headers.get("content-length", "0"))
        return call, _APPEND if _is_append(method, path, headers) else Answer(200)

    async def answer(self, operation: Operation, call: Call) -> Answer:
        return Answer(201, _placed(), _JSON)


_APPEND = V1().resolve(Call("POST", "/v1/application/queue", "", {}))


def _is_append(method: str, path: str, headers: Mapping[str, str]) -> bool:
    known = headers.get("authorization", "").startswith("Application ") and len(path.split("/")) == 4
    return method == "POST" and known and int(headers.get("x-ttl") or 259_200) > 0


def _placed() -> bytes:
    now = time_ns() // 100
    return (
        f'{{"status":"ok","messages":[{{"key":"{next(_numbers):032x}",'
        f'"timestamp":"{now // 10_000_000}.{now % 10_000_000:07d}","partition":1}}]}}'
    ).encode()


async def _rsgi(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    listener.close()
    server = Server(
        RsgiFront(),
        address="127.0.0.1",
        port=port,
        interface=Interfaces.RSGI,
        websockets=False,
        backlog=BACKLOG,
        http1_settings=HTTP1Settings(header_read_timeout=HEADER_TIMEOUT_MS, max_buffer_size=MAX_HEADER_BYTES),
        log_enabled=False,
    )
    print(f"http://127.0.0.1:{port}", flush=True)
    await server.serve()


async def _asgi(listener: socket.socket) -> None:
    import uvicorn

    settings = uvicorn.Config(
        _asgi_front,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        backlog=BACKLOG,
        access_log=False,
        log_config=None,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )
    listener.listen(BACKLOG)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    await uvicorn.Server(settings).serve(sockets=[listener])


def _forget(service: Service) -> None:
    """From here on an append draws its ids, and that is all."""
    ids = IdGenerator(service.clock)

    async def append(request: AppendRequest) -> Appended:
        return Appended([Location(draft.partition, ids.next_id()) for draft in request.drafts])

    service.log.append = append  # type: ignore[method-assign]


async def _own(listener: socket.socket, *, forgetful: bool = False) -> None:
    service = Service.open(load_settings(None, {}, {"storage": {"backend": "memory"}}))
    if forgetful:
        run(service.start(KEY))
        _forget(service)
    running = LoopServer(open_pipeline(service) if forgetful else Front(service, [V1()]))
    running.open(asyncio.get_running_loop())
    server = await asyncio.get_running_loop().create_server(lambda: Connection(running), sock=listener, backlog=BACKLOG)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    await server.serve_forever()


def main() -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    name = sys.argv[1]
    fronts: dict[str, Callable[[socket.socket], Coroutine[Any, Any, None]]] = {
        "rsgi": _rsgi,
        "asgi": _asgi,
        "own": _own,
        "forgetful": partial(_own, forgetful=True),
    }
    uvloop.run(fronts[name](listener))


if __name__ == "__main__":
    main()
