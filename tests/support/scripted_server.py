"""A real HTTP server that answers from a script, for what no sound server would answer."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.services.certificates import Identity

DROP = "drop the connection without an answer"


@dataclass(frozen=True)
class Say:
    """One answer. ``cut`` announces more bytes than it sends."""

    status: int = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False


@dataclass(frozen=True)
class Asked:
    """One request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Script:
    """Answers still to give, requests that came."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.answers: list[Say | str] = []
        self.asked: list[Asked] = []

    def say(self, *answers: Say | str) -> None:
        self.answers.extend(answers)


def refusal(status: int, code: str, **members: Any) -> Say:
    """An error in the shape of v1."""
    told = {"status": "error", "code": code, "error_msg": {code: "because"}, "detail": "because", **members}
    return Say(status, json.dumps(told).encode(), {"Content-Type": "application/json"})


@contextmanager
def scripted_server(identity: Identity | None = None) -> Iterator[Script]:
    """:param identity: it speaks TLS."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            script.asked.append(Asked(self.command, self.path, dict(self.headers), body))
            told = script.answers.pop(0)
            self.close_connection = True
            if isinstance(told, str):
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response(told.status)
            for name, value in told.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(told.body) + 10 * told.cut))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(told.body)

        do_GET = do_CONNECT = do_POST = do_PUT = do_DELETE = answer  # noqa: N815 -- http.server's names

        def log_message(self, *_: object) -> None:
            """Tests look at the script."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    script = Script(f"http{'s' if identity else ''}://127.0.0.1:{server.server_port}")
    if identity is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(identity.both)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
