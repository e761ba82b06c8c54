"""A web server of keys for the machine itself, and all that it was asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """A web server of keys, and all that it was asked."""

    url: str = ""
    status: int = 200
    body: bytes = b'"one"'
    headers: dict[str, str] = field(default_factory=dict)
    chunked: bool = False
    pieces: int = 0
    """Pieces of the body before which it waits for ``going_on``."""
    going_on: threading.Event = field(default_factory=threading.Event)
    asked: list[dict[str, str]] = field(default_factory=list)


@contextmanager
def serving(site: Site) -> Iterator[Site]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked.append({name.lower(): value for name, value in self.headers.items()} | {":path": self.path})
            self.send_response(site.status)
            for name, value in site.headers.items():
                self.send_header(name, value)
            if site.chunked:
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(site.body), site.body))
                return
            self.send_header("Content-Length", str(len(site.body)))
            self.end_headers()
            for at in range(site.pieces):
                self.wfile.write(site.body[at : at + 1])
                site.going_on.wait(120)
            self.wfile.write(site.body[site.pieces :])

        def log_message(self, *_: object) -> None:
            """Nobody wants to know."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.url = f"http://127.0.0.1:{server.server_address[1]}/keys"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield site
    finally:
        site.going_on.set()
        server.shutdown()
        thread.join()
        server.server_close()
