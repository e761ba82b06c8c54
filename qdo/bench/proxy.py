"""A proxy before a server, which loses requests and answers at stated rates. It speaks HTTP/1.1 with lengths.

A lost request never reaches the server. A lost answer is one to a request that the server carried out. In both cases the
client's connection is closed, as by a network that broke.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

from qdo.bench.workload import Dropping

ANSWER_SECONDS = 120.0
_PIECE = 1 << 16


class Proxy:
    """Listens on a free port of this machine while it is entered."""

    def __init__(self, port: int, dropping: Dropping, seed: int) -> None:
        """:param port: of the server, on this machine."""
        self._server = ("127.0.0.1", port)
        self._dropping = dropping
        self._chance = random.Random(seed)  # noqa: S311 -- repeatable, not secret
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._lock = threading.Lock()
        self.port: int = self._listener.getsockname()[1]
        self.passed = self.lost_requests = self.lost_answers = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        # A thread that waits in accept() is not woken by close() alone.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """Requests of one connection, one after the other."""
        with client, suppress(OSError, ValueError):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with socket.create_connection(self._server, 5) as server:
                server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                server.settimeout(ANSWER_SECONDS)
                asked, answered = _Messages(client), _Messages(server)
                while (request := asked.next()) and self._passes(request, client, server, answered):
                    """The next one."""

    def _passes(self, request: bytes, client: socket.socket, server: socket.socket, answered: _Messages) -> bool:
        """Carry one request and its answer; False if one of them is lost."""
        if self.loses(self._dropping.requests):
            self.lost_requests += 1
            return False
        if self._dropping.delay:
            time.sleep(self._dropping.delay)
        server.sendall(request)
        answer = answered.next()
        if not answer:
            return False
        if self.loses(self._dropping.answers):
            self.lost_answers += 1
            return False
        # Counted first: once the client has its answer, it may ask for the number.
        self.passed += 1
        client.sendall(answer)
        return True

    def loses(self, rate: float) -> bool:
        """Draw whether the next request, or answer, is lost at this rate."""
        with self._lock:
            return self._chance.random() < rate


class _Messages:
    """Requests or answers that come on a connection, each with its head and body."""

    def __init__(self, source: socket.socket) -> None:
        self._source = source
        self._rest = b""

    def next(self) -> bytes:
        """The next one, or nothing at the end.

        :raises ValueError: it does not say how long it is.
        """
        found = self._rest
        while (end := found.find(b"\r\n\r\n")) < 0:
            piece = self._source.recv(_PIECE)
            if not piece:
                return b""
            found += piece
        head = found[:end].lower()
        if b"transfer-encoding" in head:
            raise ValueError("messages of unknown length are not carried")
        size = end + 4
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name == b"content-length":
                size += int(value)
        while len(found) < size:
            piece = self._source.recv(_PIECE)
            if not piece:
                return b""
            found += piece
        self._rest = found[size:]
        return found[:size]
