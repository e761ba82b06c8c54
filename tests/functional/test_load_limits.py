"""What a server does when it is full, and with clients that take their time (G17)."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support import raw, servers
from tests.support.client import Server
from tests.support.servers import APPLICATIONS, RunningServer, eventually

KEY = APPLICATIONS["queuey"][0].encode()
PLACES = 4
SETTINGS = f"client_timeout_seconds = 1\n\n[limits]\nmax_in_flight = {PLACES}\n"


@pytest.fixture(scope="module")
def narrow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server for four requests at once, that waits a second for a client."""
    with servers.shipped(tmp_path_factory.mktemp("narrow"), settings=SETTINGS) as running:
        yield running


@pytest.fixture
def narrow(narrow_server: RunningServer) -> Iterator[Server]:
    with Server(narrow_server) as server:
        assert eventually(lambda: is_idle(server))  # of what the test before has left behind
        yield server


def is_idle(server: Server) -> bool:
    said = server.request("GET", "/metrics").content
    return b"queuey_http_requests_in_progress 0.0" in said and b"queuey_http_in_flight_bytes 0.0" in said


def begin_upload(server: Server, queue: str) -> socket.socket:
    """A request whose body does not come."""
    return raw.begin_upload(server.running.port, f"/v1/{server.application}/{queue}", KEY.decode(), b"hello")


def test_a_full_server_refuses_at_once_and_serves_when_there_is_room(narrow: Server) -> None:
    """Twelve times as many requests at one moment as there are places."""
    name = narrow.queue()
    request = raw_append(narrow, name)
    taken = 0

    def refusals() -> list[raw.Reply]:
        nonlocal taken
        with ExitStack() as stack:
            crowd = [stack.enter_context(connected(narrow)) for _ in range(PLACES * 12)]
            for connection in crowd:
                connection.sendall(request)
            found = [reply for connection in crowd for reply in raw.replies(raw.drain(connection))]
        taken += sum(reply.status == 201 for reply in found)
        assert {reply.status for reply in found} <= {201, 429}
        return [reply for reply in found if reply.status == 429]

    refused_ones = eventually(refusals)

    said = json.loads(refused_ones[0].body)
    assert (set(said["error_msg"]), said["retriable"]) == ({"Throttled"}, True)
    assert int(refused_ones[0].headers["retry-after"]) >= 1
    assert len(narrow.everything(name)) == taken


def connected(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.running.port), timeout=raw.TIMEOUT_SECONDS)


def raw_append(server: Server, queue: str) -> bytes:
    path = f"/v1/{server.application}/{queue}".encode()
    headers = b"Host: q\r\nConnection: close\r\nContent-Length: 5\r\nAuthorization: Application " + KEY
    return b"POST " + path + b" HTTP/1.1\r\n" + headers + b"\r\n\r\nhello"


def test_a_body_that_does_not_come_is_given_up_and_nothing_of_it_stored(narrow: Server) -> None:
    name = narrow.queue()
    with begin_upload(narrow, name) as connection:
        received = raw.drain(connection)

    (reply,) = raw.replies(received)
    assert reply.status == 400
    assert set(json.loads(reply.body)["error_msg"]) == {"body"}
    assert narrow.everything(name) == []
    assert narrow.running.beats()


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
        for _ in range(PLACES + 1):
            lazy = stack.enter_context(socket.create_connection(("127.0.0.1", narrow.running.port)))
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            lazy.sendall(request + b"\r\n\r\n")

        assert eventually(lambda: narrow.get(name, limit=1).status_code == 200)
        assert eventually(narrow.running.beats)


def test_a_stream_that_was_given_up_is_seen_to_be_broken(narrow: Server) -> None:
    """The connection ends in the midst of a chunk, and the end mark is not there."""
    name = narrow.queue()
    for _ in range(24):
        narrow.add(name, b"x" * (1 << 20))
    path = f"/v1/queuey/{name}".encode()
    request = (
        b"GET " + path + b" HTTP/1.1\r\nHost: q\r\nAccept: application/x-ndjson\r\nAuthorization: Application " + KEY
    )
    with socket.create_connection(("127.0.0.1", narrow.running.port), timeout=raw.TIMEOUT_SECONDS) as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 18)
        lazy.sendall(request + b"\r\n\r\n")
        begun = lazy.recv(4096)
        assert eventually(lambda: is_idle(narrow))
        received = begun + raw.drain(lazy)

    assert received.startswith(b"HTTP/1.1 200")
    assert b'{"end":' not in received
    assert not received.endswith(b"0\r\n\r\n")
