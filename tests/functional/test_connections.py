"""Connections: kept, shared by requests that follow each other, bounded in time and number, and ended in good order."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support import raw, servers
from tests.support.client import Server
from tests.support.servers import APPLICATIONS, RunningServer, eventually

KEY = APPLICATIONS["queuey"][0].encode()
END = b"\r\n\r\n"
LAST = b"Connection: close"
CONNECTIONS = 16
SETTINGS = f"connections = {CONNECTIONS}\nidle_timeout_seconds = 1\nclient_timeout_seconds = 3\n"
BEAT = b"GET /__lbheartbeat__ HTTP/1.1\r\nHost: q"


@pytest.fixture(scope="module")
def small_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server for sixteen connections, which it lets rest for a second."""
    with servers.shipped(tmp_path_factory.mktemp("small"), settings=SETTINGS) as running:
        yield running


def connected(running: RunningServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", running.port), timeout=raw.TIMEOUT_SECONDS)


def head(method: bytes, queue: str, *headers: bytes, version: bytes = b"1.1") -> bytes:
    line = method + b" /v1/queuey/" + queue.encode() + b" HTTP/" + version
    return b"\r\n".join([line, b"Host: q", b"Authorization: Application " + KEY, *headers]) + END


def answered(connection: socket.socket) -> raw.Reply:
    """The next answer on a connection that stays open."""
    received = b""
    while END not in received:
        received += connection.recv(65536)
    begun, _, body = received.partition(END)
    (reply,) = raw.replies(begun + END)
    length = int(reply.headers["content-length"])
    while len(body) < length:
        body += connection.recv(65536)
    return raw.Reply(reply.status, reply.headers, body)


def test_a_connection_serves_one_request_after_the_other(shipped_server: RunningServer) -> None:
    with Server(shipped_server) as server, connected(shipped_server) as connection:
        name = server.queue()
        for number in range(3):
            connection.sendall(head(b"POST", name, b"Content-Length: 1") + b"%d" % number)
            assert answered(connection).status == 201
        connection.sendall(head(b"GET", name))

        seen = json.loads(answered(connection).body)["messages"]

    assert [message["body"] for message in seen] == ["0", "1", "2"]


def test_a_connection_at_rest_is_closed_after_a_while(small_server: RunningServer) -> None:
    with connected(small_server) as connection:
        connection.sendall(BEAT + END)
        assert answered(connection).status == 200

        assert raw.drain(connection) == b""


def test_one_connection_too_many_is_told_so_and_the_others_go_on(small_server: RunningServer) -> None:
    def full() -> raw.Reply | None:
        with connected(small_server) as connection:
            connection.sendall(BEAT + b"\r\n" + LAST + END)
            (reply,) = raw.replies(raw.drain(connection))
        return reply if reply.status == 503 else None

    with ExitStack() as stack:
        begun = [stack.enter_context(connected(small_server)) for _ in range(CONNECTIONS)]
        for connection in begun:
            connection.sendall(BEAT)
        refused = eventually(full)

        assert refused is not None
        assert set(json.loads(refused.body)["error_msg"]) == {"TooManyConnections"}
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.headers["connection"] == "close"
        begun[0].sendall(b"\r\n" + LAST + END)
        (reply,) = raw.replies(raw.drain(begun[0]))
        assert reply.status == 200
    assert eventually(lambda: full() is None)


@pytest.mark.parametrize("words", [b"close", b"Close", b"keep-alive, close", b"close, x"])
def test_who_asks_for_the_end_gets_it_after_the_answer(shipped_server: RunningServer, words: bytes) -> None:
    (reply,) = raw.replies(raw.exchange(shipped_server.port, BEAT, b"\r\nConnection: " + words + END, BEAT, END))

    assert (reply.status, reply.headers["connection"]) == (200, "close")


def test_an_answer_says_when_it_was_made_and_first_of_all_how_long_it_is(shipped_server: RunningServer) -> None:
    received = raw.exchange(shipped_server.port, BEAT + b"\r\n" + LAST + END)

    assert received.startswith(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ndate: ")


def test_what_follows_a_half_closed_connection_is_answered_to_the_end(shipped_server: RunningServer) -> None:
    with connected(shipped_server) as connection:
        connection.sendall((BEAT + END) * 5)
        connection.shutdown(socket.SHUT_WR)

        assert [reply.status for reply in raw.replies(raw.drain(connection))] == [200] * 5


def test_who_sends_nothing_more_is_not_waited_for(shipped_server: RunningServer) -> None:
    """The end comes while the answer is made, or in the midst of what follows."""
    with Server(shipped_server) as server:
        name = server.queue()
        whole = head(b"POST", name, b"Content-Length: 5") + b"hello"
        for sent, statuses in (
            (whole, [201]),
            (whole + b"\r\n", [201]),
            (whole + b"GET / HT", [201]),
            (whole + head(b"POST", name, b"Content-Length: 5") + b"hell", [201, 400]),
            (head(b"PATCH", name, b"Content-Length: 5") + b"hell", [405]),
        ):
            with connected(shipped_server) as connection:
                connection.sendall(sent)
                connection.shutdown(socket.SHUT_WR)

                assert [reply.status for reply in raw.replies(raw.drain(connection))] == statuses


def test_many_requests_at_once_are_answered_in_order_and_others_are_served_meanwhile(
    shipped_server: RunningServer,
) -> None:
    with Server(shipped_server) as server, connected(shipped_server) as connection:
        name = server.queue()
        requests = [head(b"POST", name, b"Content-Length: 4", b"X-Request-Id: n%d" % n) + b"body" for n in range(500)]
        connection.sendall(b"".join(requests))
        assert shipped_server.beats()
        connection.sendall(BEAT + b"\r\n" + LAST + END)

        *added, beat = raw.replies(raw.drain(connection))

    assert [reply.headers["x-request-id"] for reply in added] == [f"n{n}" for n in range(500)]
    assert {reply.status for reply in added} == {201}
    assert beat.body == b"OK"


def test_a_body_that_nobody_reads_is_passed_over(shipped_server: RunningServer) -> None:
    """The refusal came before it; the next request begins behind it."""
    refused = head(b"PATCH", "absent", b"Content-Length: 60000") + b"x" * 60_000
    unused = b"POST /__heartbeat__ HTTP/1.1\r\nHost: q\r\nContent-Length: 5" + END + b"hello"

    found = raw.replies(raw.exchange(shipped_server.port, refused, unused, BEAT + b"\r\n" + LAST + END))

    assert [reply.status for reply in found] == [405, 200, 200]


def test_a_large_body_that_nobody_reads_ends_the_connection_and_its_sender_gets_the_answer(
    shipped_server: RunningServer,
) -> None:
    """The sender goes on sending for a while: a reset would take the answer from it."""
    with connected(shipped_server) as connection:
        connection.sendall(head(b"POST", "absent", b"Content-Type: text/plain", b"Content-Length: 9000000"))
        for _ in range(100):
            connection.sendall(b"x" * 10_000)

        (reply,) = raw.replies(raw.drain(connection))

    assert (reply.status, reply.headers["connection"]) == (413, "close")


def test_who_asks_before_sending_a_body_and_is_refused_is_not_waited_for(shipped_server: RunningServer) -> None:
    with connected(shipped_server) as connection:
        connection.sendall(head(b"PATCH", "absent", b"Expect: 100-continue", b"Content-Length: 5"))

        (reply,) = raw.replies(raw.drain(connection))

    assert (reply.status, reply.headers["connection"]) == (405, "close")


def test_an_answer_to_head_has_the_headers_of_get_and_no_body(shipped_server: RunningServer) -> None:
    with Server(shipped_server) as server:
        name = server.queue()
        server.fill(name, "a", "b")
        got = server.get(name)
        received = raw.exchange(shipped_server.port, head(b"HEAD", name), BEAT + b"\r\n" + LAST + END)

    first, _, rest = received.partition(END)
    assert b"content-length: %d\r\n" % len(got.content) in first
    assert [reply.body for reply in raw.replies(rest)] == [b"OK"]


def test_an_old_client_gets_a_stream_without_chunks_and_then_the_end(shipped_server: RunningServer) -> None:
    with Server(shipped_server) as server:
        name = server.queue()
        server.fill(name, "a", "b")
        request = head(b"GET", name, b"Accept: application/x-ndjson", b"Connection: keep-alive", version=b"1.0")

        (reply,) = raw.replies(raw.exchange(shipped_server.port, request))

    assert "transfer-encoding" not in reply.headers
    assert [json.loads(line).get("body") for line in reply.body.splitlines()] == ["a", "b", None]


def test_a_slow_reader_gets_all_of_a_large_answer(shipped_server: RunningServer) -> None:
    with Server(shipped_server) as server, socket.socket() as slow:
        name = server.queue()
        for number in range(3):
            server.add(name, bytes([97 + number]) * (1 << 20))
        slow.settimeout(raw.TIMEOUT_SECONDS)
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", shipped_server.port))
        for accept, end in ((b"application/json", b"]}"), (b"application/x-ndjson", b"\r\n0\r\n\r\n")):
            slow.sendall(head(b"GET", name, b"Accept: " + accept))
            received = b""
            while not received.endswith(end):
                received += slow.recv(4096)
            assert [received.count(bytes([97 + n]) * (1 << 16)) for n in range(3)] in ([16] * 3, [15] * 3)


@pytest.fixture
def stopping(tmp_path: Path) -> Iterator[Callable[[], RunningServer]]:
    """A server that the test stops itself."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(servers.shipped(tmp_path, settings="drain_seconds = 60\n"))


def ended(running: RunningServer) -> int:
    found = os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOWAIT)
    assert found is not None
    return found.si_status


def test_a_stop_finishes_what_is_under_way_and_ends_what_rests(stopping: Callable[[], RunningServer]) -> None:
    running = stopping()
    with Server(running) as server, connected(running) as resting, connected(running) as busy:
        name = server.queue()
        resting.sendall(BEAT + END)
        answered(resting)
        busy.sendall(head(b"POST", name, b"Content-Length: 10") + b"hello")
        assert eventually(lambda: b"in_flight_bytes 5.0" in server.request("GET", "/metrics").content)
        os.kill(running.pid, signal.SIGTERM)

        assert raw.drain(resting) == b""
        with pytest.raises(ConnectionRefusedError):
            connected(running)
        busy.sendall(b"hello" + BEAT + END)
        (reply,) = raw.replies(raw.drain(busy))

    assert (reply.status, reply.headers["connection"]) == (201, "close")
    assert ended(running) == 0


def test_a_second_signal_waits_for_nobody(stopping: Callable[[], RunningServer]) -> None:
    running = stopping()
    with Server(running) as server, connected(running) as busy:
        name = server.queue()
        busy.sendall(head(b"POST", name, b"Content-Length: 10") + b"hello")
        assert eventually(lambda: b"in_flight_bytes 5.0" in server.request("GET", "/metrics").content)
        os.kill(running.pid, signal.SIGTERM)
        busy.sendall(b"h")
        os.kill(running.pid, signal.SIGINT)

        assert raw.drain(busy) == b""

    assert ended(running) == 0
