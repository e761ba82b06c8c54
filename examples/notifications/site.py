"""What the browser talks to besides Queuey.

The files of the page, and two calls of the application.
"""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from examples.notifications.application import Application
from queuey.errors import OutcomeUnknown, QueueyError

HOST = "127.0.0.1"
MAX_BYTES = 16_384
_TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css"}
_FILES = {f"/{path.name}": path for path in (Path(__file__).parent / "page").iterdir() if path.suffix in _TYPES}
_FILES["/"] = _FILES.pop("/index.html")
_FILES["/queuey.js"] = Path(__file__).parents[2] / "clients" / "javascript" / "queuey.js"


class Site(ThreadingHTTPServer):
    """Listens on this machine only."""

    daemon_threads = True

    def __init__(self, port: int, application: Application) -> None:
        """:param port: 0 takes a free port."""
        super().__init__((HOST, port), _Handler)
        self.application = application

    @property
    def host(self) -> str:
        return f"{HOST}:{self.server_port}"

    @property
    def origin(self) -> str:
        """The origin that Queuey must know: ``[server] cors_origins``."""
        return f"http://{self.host}"


class _Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        file = _FILES.get(self.path.partition("?")[0])
        if self.headers["Host"] != self.server.host:  # the same page by another name has another origin
            self.send_response(307)
            self.send_header("Location", self.server.origin + "/")
            self.end_headers()
        elif file is None:
            self._answer(404, b"Not found\n", "text/plain")
        else:
            self._answer(200, file.read_bytes(), _TYPES[file.suffix])

    def do_POST(self) -> None:
        """Answer a call with JSON.

        A page of another origin must ask before it sends JSON, and would be refused.
        """
        try:
            status, content = 200, self._call()
        except QueueyError as error:
            self.log_error("%s: %s", error.code, error)
            status, content = error.status, {"detail": _for_people(error)}
        except (KeyError, TypeError, ValueError) as error:
            status, content = 400, {"detail": f"This was not understood: {error}"}
        self._answer(status, json.dumps(content).encode(), "application/json")

    def _call(self) -> dict[str, str]:
        size = int(self.headers.get("Content-Length", 0))
        if self.headers.get_content_type() != "application/json" or not 0 < size <= MAX_BYTES:
            raise ValueError(f"expected up to {MAX_BYTES} bytes of JSON")
        given: dict[str, Any] = json.loads(self.rfile.read(size))
        if self.path == "/sign-in":
            return self.server.application.sign_in(str(given["address"]))
        if self.path == "/notify":
            self.server.application.notify(str(given["address"]), str(given["text"]))
            return {}
        raise ValueError("there is no such call")

    def _answer(self, status: int, content: bytes, media_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        # The page needs only itself and Queuey. So text of notifications can run or fetch nothing.
        connect = f"'self' {self.server.application.url}"
        policy = f"default-src 'self'; connect-src {connect}; img-src data:; base-uri 'none'; frame-ancestors 'none'"
        self.send_header("Content-Security-Policy", policy)
        self.end_headers()
        self.wfile.write(content)


def _for_people(error: QueueyError) -> str:
    """What somebody in a browser can do about it. Addresses of servers behind this one are nothing to them."""
    if error.retriable or isinstance(error, OutcomeUnknown) or error.status >= 500:
        return "That did not work just now. Try again in a moment."
    return str(error)
