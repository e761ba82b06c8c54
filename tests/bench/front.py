"""The least that could answer: the shipped server's process without Queuey in it.

``python -m tests.bench.front rsgi`` listens like :mod:`queuey.doors.server`, reads each request's body,
looks at the headers an append has, and gives an append's answer; it checks nobody and stores nothing.
RSGI is granian's own interface; ``asgi`` is the one the shipped server uses.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from time import time_ns
from typing import Any

import uvloop
from granian.constants import Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server

from queuey.doors.server import BACKLOG, HEADER_TIMEOUT_MS, MAX_HEADER_BYTES

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


async def asgi_front(
    scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    """The same as an ASGI application."""
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    status, body = 200, b""
    if _is_append(scope["method"], scope["path"], headers):
        got = len((await receive())["body"])
        status, body = (201, _placed()) if got == int(headers["content-length"]) else (400, b"")
    named = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": named})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _is_append(method: str, path: str, headers: Mapping[str, str]) -> bool:
    known = headers.get("authorization", "").startswith("Application ") and len(path.split("/")) == 4
    return method == "POST" and known and int(headers.get("x-ttl") or 259_200) > 0


def _placed() -> bytes:
    now = time_ns() // 100
    return (
        f'{{"status":"ok","messages":[{{"key":"{next(_numbers):032x}",'
        f'"timestamp":"{now // 10_000_000}.{now % 10_000_000:07d}","partition":1}}]}}'
    ).encode()


async def _serve(interface: str, port: int) -> None:
    server = Server(
        asgi_front if interface == "asgi" else RsgiFront(),
        address="127.0.0.1",
        port=port,
        interface=Interfaces.ASGINL if interface == "asgi" else Interfaces.RSGI,
        websockets=False,
        backlog=BACKLOG,
        http1_settings=HTTP1Settings(header_read_timeout=HEADER_TIMEOUT_MS, max_buffer_size=MAX_HEADER_BYTES),
        log_enabled=False,
    )
    print(f"http://127.0.0.1:{port}", flush=True)
    await server.serve()


def main() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    uvloop.run(_serve(sys.argv[1], port))


if __name__ == "__main__":
    main()
