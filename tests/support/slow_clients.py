"""Clients that send slowly or read nothing, as raw connections."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.client import authorization
from tests.support.node import APPLICATION
from tests.support.servers import FIRST_KEY

KEY = authorization(FIRST_KEY)["Authorization"].encode()


def head(method: bytes, below: bytes, *headers: bytes) -> bytes:
    line = method + b" /v1/" + APPLICATION.encode() + below + b" HTTP/1.1"
    return b"\r\n".join([line, b"Host: q", b"Authorization: " + KEY, *headers]) + b"\r\n\r\n"


@contextmanager
def connections(port: int, count: int, *, buffer: int = 0) -> Iterator[list[socket.socket]]:
    """Open connections; a receive buffer of few bytes makes the server wait sooner."""
    opened = []
    try:
        for _ in range(count):
            connection = socket.socket()
            opened.append(connection)
            if buffer:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            connection.connect(("127.0.0.1", port))
            connection.setblocking(False)
        yield opened
    finally:
        for connection in opened:
            connection.close()


def open_still(connection: socket.socket) -> bool:
    """Whether the server has not closed a connection, whatever it said before."""
    try:
        while connection.recv(65536):
            pass
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False
    return False
