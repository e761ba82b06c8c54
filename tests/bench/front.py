"""The least that could answer: the shipped server's process without Queuey in it.

``python -m tests.bench.front`` listens like :mod:`queuey.doors.server`, reads each request's body,
looks at the headers an append has, and gives an append's answer; it checks nobody and stores nothing.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from itertools import count
from time import time_ns
from typing import Any

import uvloop
from granian.constants import Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server

from queuey.doors.server import BACKLOG, HEADER_TIMEOUT_MS, MAX_HEADER_BYTES, SWITCH_SECONDS

_numbers = count(1)
_JSON = [("content-type", "application/json")]


class Front:
    """One RSGI application."""

    async def __rsgi__(self, scope: Any, protocol: Any) -> None:
        headers, segments = scope.headers, scope.path.split("/")
        ttl = int(headers.get("x-ttl") or 259_200)
        known = headers.get("authorization", "").startswith("Application ") and len(segments) == 4 and ttl > 0
        if scope.method != "POST" or not known:
            protocol.response_empty(200, [])
            return
        body = await protocol()
        if len(body) != int(headers.get("content-length", "0")):
            protocol.response_empty(400, [])
            return
        now = time_ns() // 100
        text = (
            f'{{"status":"ok","messages":[{{"key":"{next(_numbers):032x}",'
            f'"timestamp":"{now // 10_000_000}.{now % 10_000_000:07d}","partition":1}}]}}'
        )
        protocol.response_bytes(201, _JSON, text.encode())


async def _serve(port: int) -> None:
    server = Server(
        Front(),
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


def main() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    sys.setswitchinterval(SWITCH_SECONDS)
    uvloop.run(_serve(port))


if __name__ == "__main__":
    main()
