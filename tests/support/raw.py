"""HTTP as bytes, for what no client library would send."""

from __future__ import annotations

import http.client
import json
import socket
from dataclasses import dataclass
from typing import Any

TIMEOUT_SECONDS = 90


@dataclass(frozen=True)
class Reply:
    """One answer as it stood on the wire."""

    status: int
    headers: dict[str, str]
    body: bytes


def send(port: int, *parts: bytes, half_close: bool = False) -> bytes:
    """Send, then take all that comes until the connection is over.

    :param half_close: what was sent is cut short; without it the first bytes of an answer are waited for before
        this side says that nothing more will come.
    """
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS) as connection:
        begun = b""
        try:
            for part in parts:
                connection.sendall(part)
            if not half_close:
                begun = connection.recv(65536)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # refused before all of it was sent: the answer tells
        return begun + drain(connection)


def exchange(port: int, *parts: bytes) -> bytes:
    """Send requests of which the last asks for the connection to be closed, and take all answers."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS) as connection:
        connection.sendall(b"".join(parts))
        return drain(connection)


def begin_upload(port: int, path: str, key: str, sent: bytes, *headers: str) -> socket.socket:
    """A request whose body's last byte does not come; the connection is the caller's to close."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS)
    length = f"Content-Length: {len(sent) + 1}"
    lines = (f"POST {path} HTTP/1.1", "Host: q", f"Authorization: Application {key}", length, *headers, "", "")
    connection.sendall("\r\n".join(lines).encode() + sent)
    return connection


def cut(port: int, *parts: bytes) -> None:
    """Send, then vanish with a reset, as a client that died."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS) as connection:
        for part in parts:
            connection.sendall(part)
        # Linger of no time makes close a reset.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")


def ask(port: int, method: str, target: bytes, key: str) -> tuple[int, dict[str, Any]]:
    """A request whose target no URL library would send; status and JSON of its answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    try:
        connection.putrequest(method, target.decode("latin-1"), skip_accept_encoding=True)
        connection.putheader("Authorization", f"Application {key}")
        if method != "GET":
            connection.putheader("Content-Length", "0")
        connection.endheaders()
        answer = connection.getresponse()
        said = json.loads(answer.read() or b"{}")
        assert isinstance(said, dict)
        return answer.status, said
    finally:
        connection.close()


def drain(connection: socket.socket) -> bytes:
    """All bytes until the other side closes, or breaks, the connection."""
    received = b""
    while True:
        try:
            piece = connection.recv(65536)
        except ConnectionResetError:
            return received
        if not piece:
            return received
        received += piece


def replies(received: bytes) -> list[Reply]:
    """The answers in all the bytes of a connection. An answer that was cut short has the part of its body that came."""
    found = []
    while received:
        reply, received = _first(received)
        found.append(reply)
    return found


def whole_replies(received: bytes) -> list[Reply]:
    """The answers that are whole, in a stream of bytes that goes on."""
    found = []
    while b"\r\n\r\n" in received:
        try:
            reply, rest = _first(received)
        except Incomplete:
            break
        if len(reply.body) < int(reply.headers.get("content-length", 0)):
            break
        found.append(reply)
        received = rest
    return found


class Incomplete(AssertionError):
    """A chunked body whose end has not come."""


def _first(received: bytes) -> tuple[Reply, bytes]:
    """The first answer, and what lies behind it."""
    head, _, rest = received.partition(b"\r\n\r\n")
    status_line, *lines = head.decode("latin-1").split("\r\n")
    assert status_line.startswith("HTTP/1."), status_line
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body, rest = _chunked(rest)
    else:
        length = int(headers.get("content-length", len(rest)))
        body, rest = rest[:length], rest[length:]
    return Reply(int(status_line.split(" ")[1]), headers, body), rest


def _chunked(rest: bytes) -> tuple[bytes, bytes]:
    """:raises Incomplete: the last chunk is not there."""
    body = b""
    while True:
        size, ends, rest = rest.partition(b"\r\n")
        length = int(size, 16) if ends else 0
        if not ends or len(rest) < length + 2:
            raise Incomplete(f"{len(body)} bytes of a chunked body have come, and not its end")
        body, rest = body + rest[:length], rest[length + 2 :]
        if length == 0:
            return body, rest
