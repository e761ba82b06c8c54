"""What a server does when it is full, and with clients that take their time (G17)."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import requests

from tests.functional import raw, servers
from tests.functional.client import Server, refused
from tests.functional.servers import APPLICATIONS, Door, eventually

KEY = APPLICATIONS["queuey"][0].encode()
PLACES = 4
SETTINGS = f"client_timeout_seconds = 1\n\n[limits]\nmax_in_flight = {PLACES}\n"


@pytest.fixture(scope="module")
def narrow_door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A server for four requests at once, that waits a second for a client."""
    with servers.shipped(tmp_path_factory.mktemp("narrow"), settings=SETTINGS) as door:
        yield door


@pytest.fixture
def narrow(narrow_door: Door) -> Iterator[Server]:
    with Server(narrow_door) as server:
        assert eventually(lambda: is_idle(server))  # of what the test before has left behind
        yield server


def is_idle(server: Server) -> bool:
    return b"queuey_http_requests_in_progress 0.0" in server.request("GET", "/metrics").content


def begin_upload(server: Server, queue: str) -> socket.socket:
    """A request whose body does not come."""
    return raw.begin_upload(server.door.port, f"/v1/{server.application}/{queue}", KEY.decode(), b"hello")


def test_a_full_server_refuses_at_once_and_serves_when_there_is_room(narrow: Server) -> None:
    name = narrow.queue()
    with ExitStack() as stack:

        def fill_and_ask() -> list[requests.Response]:
            for _ in range(PLACES):
                stack.enter_context(begin_upload(narrow, name))
            answer = narrow.get(name)
            return [answer] if answer.status_code == 429 else []

        (answer,) = eventually(fill_and_ask)

        refused(answer, 429, "Throttled")
        assert answer.json()["retriable"] is True
        assert int(answer.headers["Retry-After"]) >= 1
        for path in ("/__heartbeat__", "/__lbheartbeat__", "/metrics"):
            assert narrow.request("GET", path).status_code == 200
    assert eventually(lambda: narrow.get(name).status_code == 200)
    assert narrow.everything(name) == []


def test_a_body_that_does_not_come_is_given_up_and_nothing_of_it_stored(narrow: Server) -> None:
    name = narrow.queue()
    with begin_upload(narrow, name) as connection:
        received = raw.drain(connection)

    (reply,) = raw.replies(received)
    assert reply.status == 400
    assert set(json.loads(reply.body)["error_msg"]) == {"body"}
    assert narrow.everything(name) == []
    assert narrow.door.beats()


def test_readers_that_do_not_read_are_given_up(narrow: Server) -> None:
    """More of them than places, each with an answer larger than the sockets hold."""
    name = narrow.queue()
    for _ in range(16):
        narrow.add(name, b"x" * (1 << 20))
    path = f"/v1/queuey/{name}".encode()
    request = (
        b"GET " + path + b" HTTP/1.1\r\nHost: q\r\nAccept: application/x-ndjson\r\nAuthorization: Application " + KEY
    )
    with ExitStack() as stack:
        for _ in range(PLACES):
            lazy = stack.enter_context(socket.create_connection(("127.0.0.1", narrow.door.port)))
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            lazy.sendall(request + b"\r\n\r\n")

        assert eventually(lambda: narrow.get(name, limit=1).status_code == 200)
        assert eventually(narrow.door.beats)


def test_a_stream_that_was_given_up_is_seen_to_be_broken(narrow: Server) -> None:
    """The connection ends in the midst of a chunk, and the end mark is not there."""
    name = narrow.queue()
    for _ in range(24):
        narrow.add(name, b"x" * (1 << 20))
    path = f"/v1/queuey/{name}".encode()
    request = (
        b"GET " + path + b" HTTP/1.1\r\nHost: q\r\nAccept: application/x-ndjson\r\nAuthorization: Application " + KEY
    )
    with socket.create_connection(("127.0.0.1", narrow.door.port), timeout=raw.TIMEOUT_SECONDS) as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 18)
        lazy.sendall(request + b"\r\n\r\n")
        begun = lazy.recv(4096)
        assert eventually(lambda: is_idle(narrow))
        received = begun + raw.drain(lazy)

    assert received.startswith(b"HTTP/1.1 200")
    assert b'{"end":' not in received
    assert not received.endswith(b"0\r\n\r\n")
