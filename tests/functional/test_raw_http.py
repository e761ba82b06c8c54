"""Bad HTTP, byte by byte, against the server as shipped.

After each piece the server still answers, and nothing of it was stored.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from tests.support import raw
from tests.support.client import Server
from tests.support.servers import APPLICATIONS, RunningServer, eventually

KEY = APPLICATIONS["queuey"][0].encode()
END = b"\r\n\r\n"
LAST = b"Connection: close"


@pytest.fixture
def queue(shipped_server: RunningServer) -> Iterator[str]:
    """A queue that must be as empty after the test as before, on a server that still answers."""
    with Server(shipped_server) as server:
        name = server.queue()
        yield name
        assert shipped_server.beats()
        assert server.info(name)["depth"] == 0


def head(
    queue: str, *headers: bytes, method: bytes = b"POST", host: bytes = b"Host: q", version: bytes = b"1.1"
) -> bytes:
    """A request's head without its end, on a queue, with the key of its application."""
    lines = [
        method + b" /v1/queuey/" + queue.encode() + b" HTTP/" + version,
        *([host] if host else []),
        b"Authorization: Application " + KEY,
        *headers,
    ]
    return b"\r\n".join(lines)


def refused(received: bytes, *statuses: int) -> None:
    """One refusal, and then the end of the connection."""
    found = raw.replies(received)
    assert [reply.status for reply in found] in [[status] for status in statuses or (400,)], received[:300]


def refused_or_closed(received: bytes) -> None:
    """One refusal at most, or no answer at all, and then the end of the connection."""
    if received:
        refused(received, 400, 411, 431)


@pytest.mark.parametrize(
    "length",
    [
        b"+5",
        b"-5",
        b"0x5",
        b"5x",
        b"5 5",
        b"5,5",
        b"5, 6",
        b"",
        b" ",
        b"5.0",
        b"1e1",
        b"\xd9\xa3",
        b"9" * 30,
        b"_5",
        b"5_0",
    ],
)
def test_a_bad_content_length(shipped_server: RunningServer, queue: str, length: bytes) -> None:
    refused(raw.send(shipped_server.port, head(queue, b"Content-Length: " + length), END, b"hello"))


@pytest.mark.parametrize(
    "headers",
    [
        [b"Content-Length: 5", b"Content-Length: 6"],
        [b"Content-Length: 5", b"Content-Length: 5", b"Content-Length: 7"],
        [b"Content-Length: 5", b"content-length: 0"],
        [b"Content-Length: 5", b"Transfer-Encoding: chunked"],
        [b"Transfer-Encoding: chunked", b"Content-Length: 5"],
        [b"Transfer-Encoding: xchunked"],
        [b"Transfer-Encoding: chunked, identity"],
        [b"Transfer-Encoding: identity, chunked", b"Content-Length: 5"],
        [b"Transfer-Encoding:\x0bchunked"],
        [b"Transfer-Encoding : chunked"],
        [b"Content-Length : 5"],
        [b" Content-Length: 5"],
    ],
    ids=lambda headers: b" | ".join(headers).decode("latin-1"),
)
def test_two_lengths_or_a_length_and_chunks(shipped_server: RunningServer, queue: str, headers: list[bytes]) -> None:
    smuggled = b"5\r\nhello\r\n0\r\n\r\n" + head(queue, b"Content-Length: 8") + END + b"smuggled"

    refused(raw.send(shipped_server.port, head(queue, *headers), END, smuggled), 400, 411)


@pytest.mark.parametrize(
    "headers",
    [
        [b"Host: b", b"Content-Length: 5"],
        [b"host: q", b"Content-Length: 5"],
        [b"Content-Length: 5", b"Content-Length: 5"],
        [b"Content-Length: 5", b"X-Key: a\nX-TTL: 60"],
        [b"Content-Length: 5\nX-TTL: 60"],
        [b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"],
    ],
    ids=["two hosts", "one host twice", "one length twice", "a line feed alone", "another", "chunked twice"],
)
def test_what_a_program_before_it_may_read_differently(
    shipped_server: RunningServer, queue: str, headers: list[bytes]
) -> None:
    refused(raw.send(shipped_server.port, head(queue, *headers), END, b"hello"))


def test_a_request_of_today_names_its_host(shipped_server: RunningServer, queue: str) -> None:
    refused(raw.send(shipped_server.port, head(queue, b"Content-Length: 5", host=b""), END, b"hello"))


@pytest.mark.parametrize(
    "host",
    [b"a b", b"a/b", b"u@a", b"a, b", b"a:b", b"a:1:2", b"[::1", b"[::1]x", b"\xc3\xbc", b'"a"', b"<a>", b"a\\b"],
)
def test_a_host_that_is_none_is_refused(shipped_server: RunningServer, queue: str, host: bytes) -> None:
    refused(raw.send(shipped_server.port, head(queue, b"Content-Length: 5", host=b"Host: " + host), END, b"hello"))


@pytest.mark.parametrize(
    "host", [b"", b"q", b"q:", b"q:5000", b"127.0.0.1:80", b"[::1]", b"[fe80::1%25eth0]:5000", b"a_b.example."]
)
def test_a_host_that_is_one_is_served(shipped_server: RunningServer, queue: str, host: bytes) -> None:
    sent = head(queue, LAST, method=b"GET", host=b"Host: " + host)

    (reply,) = raw.replies(raw.exchange(shipped_server.port, sent, END))

    assert reply.status == 200


def test_a_target_without_its_host_is_refused(shipped_server: RunningServer) -> None:
    refused(raw.send(shipped_server.port, b"GET http:///__lbheartbeat__ HTTP/1.1\r\nHost: q" + END))


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\n", b"\n\r\n", b"\r\r"])
def test_lines_that_end_otherwise_are_refused_at_once(shipped_server: RunningServer, queue: str, end: bytes) -> None:
    """Not when the time for a head is over: what follows them must not be read as its rest."""
    with socket.create_connection(("127.0.0.1", shipped_server.port), timeout=raw.TIMEOUT_SECONDS) as connection:
        connection.sendall(head(queue, b"Content-Length: 5") + end + b"hello")
        refused(raw.drain(connection))


def test_a_refusal_of_what_is_no_request_has_the_shape_of_all_others(shipped_server: RunningServer, queue: str) -> None:
    (reply,) = raw.replies(raw.send(shipped_server.port, head(queue, b"Content-Length: +5"), END, b"hello"))

    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["connection"] == "close"
    assert set(json.loads(reply.body)["error_msg"]) == {"MalformedRequest"}
    assert json.loads(reply.body)["request_id"] == reply.headers["x-request-id"]


def test_a_name_with_underscores_is_another_name(shipped_server: RunningServer) -> None:
    with Server(shipped_server) as server:
        name = server.queue(partitions=2)
        sent = head(name, b"Content-Length: 5", b"X-Partition: 1", b"X_Partition: 2", b"X_TTL: nonsense", LAST)

        (reply,) = raw.replies(raw.exchange(shipped_server.port, sent, END, b"hello"))

        assert reply.status == 201
        assert server.bodies(name) == ["hello"]


@pytest.mark.parametrize(
    "header",
    [
        b"X-Key: a\x00b",
        b"X-Key: a\rb",
        b"X-\x00Key: a",
        b"X Key: a",
        b"X-Key",
        b": a",
        b"X-Key\x00: a",
        b"X-Ke\xc3\xbc: a",
        b"X-Key: a\r\n folded",
    ],
)
def test_control_characters_in_headers(shipped_server: RunningServer, queue: str, header: bytes) -> None:
    sent = head(queue, header, b"Content-Length: 5")

    refused(raw.send(shipped_server.port, sent, END, b"hello"))


@pytest.mark.parametrize(
    "headers",
    [
        [b"X-Long: " + b"x" * (33 << 10)],
        [b"X-Long: " + b"x" * (1 << 20)],
        [b"X-%d: " % number + b"x" * 700 for number in range(48)],
        [b"X-%d: y" % number for number in range(101)],
        [b"X-%d: y" % number for number in range(5000)],
    ],
    ids=["33 KiB in one", "1 MiB in one", "33 KiB in 48", "101 of them", "5000 of them"],
)
def test_too_many_or_too_large_headers(shipped_server: RunningServer, queue: str, headers: list[bytes]) -> None:
    received = raw.send(shipped_server.port, head(queue, b"Content-Length: 5", *headers), END, b"hello")

    refused(received, 431)


def test_a_head_that_never_ends(shipped_server: RunningServer, queue: str) -> None:
    refused_or_closed(raw.send(shipped_server.port, head(queue, b"X-Begun: "), half_close=True))


@pytest.mark.parametrize("sent", [0, 1, 4999, 9999])
@pytest.mark.parametrize("content_type", [b"text/plain", b"application/json"])
def test_an_upload_cut_short_of_its_content_length(
    shipped_server: RunningServer, queue: str, sent: int, content_type: bytes
) -> None:
    body = b'{"messages":[{"body":"x"}]}'.ljust(10_000)[:sent]
    request = head(queue, b"Content-Type: " + content_type, b"Content-Length: 10000") + END

    refused_or_closed(raw.send(shipped_server.port, request, body, half_close=True))
    raw.cut(shipped_server.port, request, body)


@pytest.mark.parametrize(
    "chunks",
    [
        b"",
        b"5\r\nhello\r\n",
        b"5\r\nhel",
        b"a\r\nhello\r\n",
        b"5\r\nhello\r\n0\r\n",
        b"5\r\nhello\r\n5",
        b"5\r\nhello\r\nzz\r\nhello\r\n0\r\n\r\n",
        b"-5\r\nhello\r\n0\r\n\r\n",
        b"5;x=\r\nhello\r\n",
        b"5\r\nhelloXX0\r\n\r\n",
        b"fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        b'1b\r\n{"messages":[{"body":"x"}]}\r\n',
    ],
)
@pytest.mark.parametrize("content_type", [b"text/plain", b"application/json"])
def test_a_chunked_upload_that_is_cut_or_broken(
    shipped_server: RunningServer, queue: str, chunks: bytes, content_type: bytes
) -> None:
    request = head(queue, b"Content-Type: " + content_type, b"Transfer-Encoding: chunked") + END

    refused_or_closed(raw.send(shipped_server.port, request, chunks, half_close=True))
    raw.cut(shipped_server.port, request, chunks)


def test_a_whole_chunked_upload_is_asked_for_its_length(shipped_server: RunningServer, queue: str) -> None:
    request = head(queue, b"Transfer-Encoding: chunked", b"Connection: close") + END

    (reply,) = raw.replies(raw.send(shipped_server.port, request, b"5\r\nhello\r\n0\r\n\r\n"))

    assert reply.status == 411
    assert set(json.loads(reply.body)["error_msg"]) == {"LengthRequired"}


def test_a_post_without_any_length_has_no_body(shipped_server: RunningServer, queue: str) -> None:
    (reply,) = raw.replies(raw.send(shipped_server.port, head(queue, b"Connection: close"), END))

    assert reply.status in {400, 411}


def test_a_body_too_large_is_refused_before_it_is_read(shipped_server: RunningServer, queue: str) -> None:
    for length, content_type in (
        (b"9000000", b"application/json"),
        (b"1048577", b"text/plain"),
        (b"9" * 15, b"text/plain"),
    ):
        request = head(queue, b"Content-Type: " + content_type, b"Content-Length: " + length) + END
        with socket.create_connection(("127.0.0.1", shipped_server.port), timeout=raw.TIMEOUT_SECONDS) as connection:
            connection.sendall(request)
            begun = connection.recv(65536)
        assert begun.split(b" ")[1] == b"413"


def test_a_body_that_comes_byte_by_byte_holds_nobody_up(shipped_server: RunningServer, queue: str) -> None:
    """More slow bodies at once than there are threads; others are served meanwhile; then the slow ones give up."""
    request = head(queue, b"Content-Type: text/plain", b"Content-Length: 100000") + END
    slow = [
        socket.create_connection(("127.0.0.1", shipped_server.port), timeout=raw.TIMEOUT_SECONDS) for _ in range(40)
    ]
    try:
        for connection in slow:
            connection.sendall(request)
        for _ in range(3):
            for connection in slow:
                connection.sendall(b"x")
            with Server(shipped_server) as server:
                busy = server.queue()
                server.add(busy)
                assert server.bodies(busy) == ["hello"]
                assert server.call("PUT", busy, data={"partitions": 2}).status_code == 200
            assert shipped_server.beats()
    finally:
        for connection in slow:
            connection.close()


def test_a_slow_head_holds_nobody_up(shipped_server: RunningServer, queue: str) -> None:
    slow = [
        socket.create_connection(("127.0.0.1", shipped_server.port), timeout=raw.TIMEOUT_SECONDS) for _ in range(100)
    ]
    try:
        for connection in slow:
            connection.sendall(head(queue)[:-3])
        assert shipped_server.beats()
    finally:
        for connection in slow:
            connection.close()


def test_pipelined_requests_are_answered_in_order(shipped_server: RunningServer) -> None:
    with Server(shipped_server) as server:
        name = server.queue()
        posts = [head(name, b"Content-Length: 1") + END + b"%d" % number for number in range(8)]
        last = head(name, b"Connection: close", method=b"GET") + END

        *added, read = raw.replies(raw.exchange(shipped_server.port, *posts, last))

        assert [reply.status for reply in added] == [201] * 8
        ids = [json.loads(reply.body)["messages"][0]["key"] for reply in added]
        seen = json.loads(read.body)["messages"]
        assert [message["message_id"] for message in seen] == ids
        assert [message["body"] for message in seen] == [str(number) for number in range(8)]


def test_a_refused_request_leaves_no_body_behind_for_the_next(shipped_server: RunningServer, queue: str) -> None:
    """A body that was not read must not be taken for a request."""
    inner = head(queue, b"Content-Length: 8") + END + b"smuggled"
    outer = (
        b"POST /v1/queuey/absent HTTP/1.1\r\nHost: q\r\nContent-Length: %d\r\n" % len(inner)
        + b"Authorization: Application "
        + KEY
        + END
    )
    last = b"GET /__heartbeat__ HTTP/1.1\r\nHost: q\r\nConnection: close" + END

    found = raw.replies(raw.exchange(shipped_server.port, outer, inner, last))

    assert found[0].status == 404
    assert [reply.status for reply in found[1:]] in ([], [200])


def test_http_1_0_is_answered_and_closed(shipped_server: RunningServer) -> None:
    with Server(shipped_server) as server:
        name = server.queue()
        request = head(name, b"Content-Length: 5", host=b"", version=b"1.0") + END

        (reply,) = raw.replies(raw.send(shipped_server.port, request, b"hello"))

        assert reply.status == 201
        assert server.bodies(name) == ["hello"]


@pytest.mark.usefixtures("queue")
@pytest.mark.parametrize(
    "line",
    [
        b"GET /%zz HTTP/1.1",
        b"GET /v1/queuey/%ff HTTP/1.1",
        b"GET /v1/queuey/\xff\xfe HTTP/1.1",
        b"GET /v1/queuey/\xc3\xbc HTTP/1.1",
        b"GET /v1/queuey/%00 HTTP/1.1",
        b"GET /v1/queuey/a b HTTP/1.1",
        b"GET /" + b"x" * 5000 + b" HTTP/1.1",
        b"GET /" + b"x" * 70000 + b" HTTP/1.1",
        b"GET v1/queuey HTTP/1.1",
        b"GET * HTTP/1.1",
        b"GET  / HTTP/1.1",
        b"GET /v1/queuey",
        b"GET / HTTP/9.9",
        b"GET / HTTP/1.1 x",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0",
        b"",
        b"G\x00T / HTTP/1.1",
        b"CONNECT example.org:443 HTTP/1.1",
        b"GET http://[::1 HTTP/1.1",
    ],
)
def test_an_odd_request_line_is_refused_and_never_a_failure_of_ours(shipped_server: RunningServer, line: bytes) -> None:
    received = raw.send(shipped_server.port, line + b"\r\nHost: q\r\nConnection: close", END)

    for reply in raw.replies(received) if received.startswith(b"HTTP/1.") else []:
        assert 400 <= reply.status < 500, received[:200]


@pytest.mark.parametrize("target", [b"http://example.org/v1/queuey/", b"http://q/v1/queuey/"])
def test_a_target_in_absolute_form_is_its_path(shipped_server: RunningServer, queue: str, target: bytes) -> None:
    request = b"\r\n".join(
        (
            b"GET " + target + queue.encode() + b"?limit=1 HTTP/1.1",
            b"Host: q",
            b"Connection: close",
            b"Authorization: Application " + KEY,
        )
    )

    (reply,) = raw.replies(raw.send(shipped_server.port, request, END))

    assert reply.status == 200
    assert json.loads(reply.body)["messages"] == []


def test_an_upgrade_is_not_taken(shipped_server: RunningServer, queue: str) -> None:
    request = head(
        queue,
        b"Connection: Upgrade",
        b"Upgrade: websocket",
        b"Sec-WebSocket-Version: 13",
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        method=b"GET",
    )

    received = raw.send(shipped_server.port, request, END)

    assert raw.replies(received)[0].status != 101


def test_expect_100_continue_is_honoured(shipped_server: RunningServer) -> None:
    with Server(shipped_server) as server:
        name = server.queue()
        with socket.create_connection(("127.0.0.1", shipped_server.port), timeout=raw.TIMEOUT_SECONDS) as connection:
            connection.sendall(head(name, b"Expect: 100-continue", b"Content-Length: 5", b"Connection: close") + END)
            assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
            connection.sendall(b"hello")
            (reply,) = raw.replies(raw.drain(connection))

        assert reply.status == 201
        assert server.bodies(name) == ["hello"]


@pytest.mark.parametrize("header", [b"X-TTL: 60", b"X-Partition: 1", b"X-Delay: 1", b"Idempotency-Key: \xc3\xbc"])
def test_a_header_that_came_twice_is_not_taken_for_one(
    shipped_server: RunningServer, queue: str, header: bytes
) -> None:
    sent = head(queue, header, header, b"Content-Length: 5", b"Connection: close")

    refused(raw.exchange(shipped_server.port, sent, END, b"hello"))


def test_a_server_that_was_sent_all_this_answers_at_once(shipped_server: RunningServer) -> None:
    assert eventually(shipped_server.beats)
