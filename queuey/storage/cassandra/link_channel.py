"""Frames between two servers that have proved to each other that they know a key (:mod:`queuey.storage.cassandra.links`)."""

from __future__ import annotations

import secrets
import socket
import struct
from contextlib import suppress
from hashlib import blake2b
from hmac import compare_digest
from time import perf_counter
from typing import NamedTuple
from uuid import UUID

import msgspec

__all__ = ["KEY_BYTES", "Channel", "Contact", "Entries", "answer_call", "call"]

GREET_SECONDS = 2.0
"""Time to connect, and for both ends to prove that they know the key."""
SEND_SECONDS = 5
"""An end that takes no byte for this time is gone."""
KEY_BYTES = 32
_MOST_FRAME_BYTES = 256 << 20
"""As large as any message with what is beside it."""
_MAGIC = b"queuey link 1\n"
_NONCE_BYTES, _DIGEST_BYTES = 32, 16
_HEAD = struct.Struct(f">I{_DIGEST_BYTES}s")

Entries = list[tuple[int, bytes]]
"""Numbers of calls, and their bytes."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Entries).decode


class Contact(NamedTuple):
    """How to reach a server."""

    server: UUID
    host: str
    port: int
    key: bytes

    def __repr__(self) -> str:
        return f"Contact({self.server}, {self.host}:{self.port})"


class Channel:
    """Frames over a connection whose ends have greeted each other. One thread at a time sends, and one receives."""

    def __init__(self, connection: socket.socket, session: bytes, *, is_caller: bool) -> None:
        self._connection = connection
        self._file = connection.makefile("rb", 64 << 10)
        names = [b"call", b"answer"]
        self._sending, self._receiving = (_proof(session, name) for name in (names if is_caller else reversed(names)))
        self._sent = self._received = 0

    def send(self, entries: Entries) -> None:
        """:raises OSError: the connection has ended, or the other end takes nothing."""
        body = _encode(entries)
        self._sent += 1
        self._connection.sendall(_HEAD.pack(len(body), _digest(self._sending, self._sent, body)) + body)

    def receive(self) -> Entries:
        """:raises OSError: the connection has ended, or this is not a frame that the other end made."""
        size, digest = _HEAD.unpack(self._read(_HEAD.size))
        if size > _MOST_FRAME_BYTES:
            raise ConnectionError("a frame is too large")
        body = self._read(size)
        self._received += 1
        if not compare_digest(digest, _digest(self._receiving, self._received, body)):
            raise ConnectionError("a frame has a wrong digest")
        try:
            return _decode(body)
        except msgspec.DecodeError as error:
            raise ConnectionError("a frame cannot be read") from error

    def _read(self, size: int) -> bytes:
        found: bytes = self._file.read(size)
        if len(found) < size:
            raise ConnectionError("the other end has closed the connection")
        return found

    def end(self) -> None:
        """Let both threads find the connection ended. May be called again."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """The thread that receives closes the connection, as the last one that uses it."""
        self.end()
        with suppress(OSError):
            self._file.close()
        self._connection.close()


def _digest(key: bytes, number: int, body: bytes) -> bytes:
    found = blake2b(number.to_bytes(8, "big"), key=key, digest_size=_DIGEST_BYTES)
    found.update(body)
    return found.digest()


def _proof(key: bytes, what: bytes) -> bytes:
    return blake2b(what, key=key, digest_size=KEY_BYTES).digest()


def call(contact: Contact, caller: UUID) -> Channel:
    """Connect to a server.

    :raises OSError: it is not there, or is another one.
    """
    connection = socket.create_connection((contact.host, contact.port), GREET_SECONDS)
    try:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        connection.sendall(_MAGIC + nonce + caller.bytes)
        answer = _exactly(connection, _NONCE_BYTES + KEY_BYTES)
        both = nonce + answer[:_NONCE_BYTES] + caller.bytes
        if not compare_digest(answer[_NONCE_BYTES:], _proof(contact.key, b"server" + both)):
            raise ConnectionError("another server answers there")
        connection.sendall(_proof(contact.key, b"caller" + both))
        _settle_options(connection)
    except BaseException:
        connection.close()
        raise
    return Channel(connection, _proof(contact.key, both), is_caller=True)


def answer_call(connection: socket.socket, key: bytes) -> tuple[Channel, UUID]:
    """Greet the other end of a connection.

    :raises OSError: it does not know the key.
    """
    connection.settimeout(GREET_SECONDS)
    greeting = _exactly(connection, len(_MAGIC) + _NONCE_BYTES + 16)
    if not greeting.startswith(_MAGIC):
        raise ConnectionError("this is no server of this version")
    nonce, caller = greeting[len(_MAGIC) : -16], greeting[-16:]
    own = secrets.token_bytes(_NONCE_BYTES)
    both = nonce + own + caller
    connection.sendall(own + _proof(key, b"server" + both))
    if not compare_digest(_exactly(connection, KEY_BYTES), _proof(key, b"caller" + both)):
        raise ConnectionError("it does not know the key")
    _settle_options(connection)
    return Channel(connection, _proof(key, both), is_caller=False), UUID(bytes=caller)


def _exactly(connection: socket.socket, size: int) -> bytes:
    until, found = perf_counter() + GREET_SECONDS, b""
    while len(found) < size:
        connection.settimeout(max(until - perf_counter(), 0.001))
        came = connection.recv(size - len(found))
        if not came:
            raise ConnectionError("it has closed the connection")
        found += came
    return found


def _settle_options(connection: socket.socket) -> None:
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_SECONDS, 0))
    if hasattr(socket, "TCP_KEEPIDLE"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SEND_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, SEND_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2)
