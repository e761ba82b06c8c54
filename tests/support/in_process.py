"""The WSGI application without a socket, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from requests.adapters import BaseAdapter
from requests.structures import CaseInsensitiveDict
from webob import Request

from queuey.clock import ManualClock
from queuey.future import run
from queuey.server.faces import open_pipeline
from queuey.server.wsgi import wsgi_application
from queuey.service import Service
from queuey.settings import load_settings
from tests.support.client import Server
from tests.support.servers import RunningServer, write_ini

URL = "http://in-process.invalid"


class WsgiAdapter(BaseAdapter):
    """Hands what requests would send to a WSGI application."""

    def __init__(self, application: Any) -> None:
        super().__init__()
        self._application = application

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        body = request.body or b""
        asked = Request.blank(
            str(request.path_url),
            method=request.method,
            environ={"REMOTE_ADDR": "127.0.0.1"},
            headers=dict(request.headers),
            body=body.encode() if isinstance(body, str) else body,
        )
        given = asked.get_response(self._application)
        answer = requests.Response()
        answer.status_code = given.status_int
        answer.headers = CaseInsensitiveDict(given.headers)
        answer.url = str(request.url)
        answer.request = request
        answer.encoding = "utf-8"
        answer._content = given.body
        return answer

    def close(self) -> None:
        """There is nothing to let go of."""


@dataclass(frozen=True)
class Timed:
    """A server and its time."""

    server: Server
    clock: ManualClock


@contextmanager
def timed_server(folder: Path, backend: str) -> Iterator[Timed]:
    """A service of its own over a fresh store, asked as ``queuey``."""
    ini = write_ini(folder / "queuey.ini", folder / "data", settings=f"[storage]\nbackend = {backend}\n")
    clock = ManualClock()
    service = Service.open(load_settings(str(ini), {}, {}), clock=clock)
    try:
        run(service.start())
        with Server(RunningServer("in process", URL, 0)) as server:
            server.session.mount(URL, WsgiAdapter(wsgi_application(open_pipeline(service))))
            yield Timed(server, clock)
    finally:
        service.close()
