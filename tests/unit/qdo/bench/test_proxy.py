"""The proxy loses what it says, and carries the rest whole."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from qdo.bench.drivers.http1 import HttpConnection
from qdo.bench.proxy import Proxy
from qdo.bench.workload import Dropping
from queuey.errors import OutcomeUnknown, ServerUnreachable

ASKED = 200


class Echo(BaseHTTPRequestHandler):
    """Answers with what it got, and counts."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    """Head and body leave at once, one after the other."""
    served: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.served.append(self.path)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- its name
        """Say nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    Echo.served.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def asked_through(port: int, dropping: Dropping) -> tuple[Proxy, int]:
    """The proxy, and how many of the requests had no answer."""
    unknown = 0
    with Proxy(port, dropping, seed=3) as proxy:
        connection = HttpConnection(f"http://127.0.0.1:{proxy.port}", 10)
        for at in range(ASKED):
            body = b"x" * (at * 100)
            try:
                answer = connection.ask(b"POST", b"/echo", b"", body)
                assert (answer.status, answer.body) == (200, body)
            except OutcomeUnknown:
                unknown += 1
        connection.close()
    return proxy, unknown


def test_without_losses_all_goes_through(port: int) -> None:
    proxy, unknown = asked_through(port, Dropping())

    assert (proxy.passed, unknown, len(Echo.served)) == (ASKED, 0, ASKED)


def test_a_lost_request_never_reaches_the_server(port: int) -> None:
    proxy, unknown = asked_through(port, Dropping(requests=0.2))

    assert unknown == proxy.lost_requests > 10
    assert len(Echo.served) == ASKED - unknown


def test_a_lost_answer_is_one_to_a_request_that_was_carried_out(port: int) -> None:
    proxy, unknown = asked_through(port, Dropping(answers=0.2))

    assert unknown == proxy.lost_answers > 10
    assert len(Echo.served) == ASKED


def test_a_port_where_nobody_listens_is_said() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        free = server.server_port

    with pytest.raises(ServerUnreachable):
        HttpConnection(f"http://127.0.0.1:{free}", 1).ask(b"GET", b"/", b"", b"")


@pytest.mark.parametrize("rate", [0.0001, 0.01, 0.1])
def test_losses_have_their_rate(rate: float) -> None:
    """By the test of chi-square, at 1 %."""
    draws = 200_000
    proxy = Proxy(1, Dropping(), seed=3)
    with proxy:
        lost = sum(proxy.loses(rate) for _ in range(draws))

    expected = rate * draws
    assert (lost - expected) ** 2 / expected + (lost - expected) ** 2 / (draws - expected) < 6.63
