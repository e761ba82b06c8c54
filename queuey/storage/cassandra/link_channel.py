"""Frames between two servers that have proved to each other that they know a key (:mod:`queuey.storage.cassandra.links`)."""

from __future__ import annotations

import secrets
import socket
import struct
from collections import deque
from functools import partial
from hashlib import blake2b
from hmac import compare_digest
from time import perf_counter
from typing import NamedTuple, Protocol
from uuid import UUID

import msgspec

from queuey.storage.cassandra.socket_loop import LoopedSocket, SocketLoop

__all__ = ["KEY_BYTES", "Channel", "ChannelUser", "Contact", "Entries", "answer_call", "call"]

GREET_SECONDS = 2.0
"""Time to connect, and for both ends to prove that they know the key."""
SEND_SECONDS = 5
"""An end that takes no byte for this time is gone."""
KEY_BYTES = 32
_TOGETHER_BYTES = 1 << 20
"""A frame takes no further call, or answer, once it has this number of bytes."""
_MOST_FRAME_BYTES = 256 << 20
"""As large as any message with what is beside it."""
_MAGIC = b"queuey link 1\n"
_NONCE_BYTES, _DIGEST_BYTES = 32, 16
_HEAD = struct.Struct(f">I{_DIGEST_BYTES}s")

Entries = list[tuple[int, bytes]]
"""Numbers of calls, and their bytes."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Entries).decode


class ChannelUser(Protocol):
    """What uses a channel. All of this is called on the channel's loop."""

    def sends(self, entries: Entries) -> Entries:
        """A frame is about to be sent.

        :returns: which of these are to be in it.
        """

    def sent(self, entries: Entries) -> None:
        """The socket has taken a frame."""

    def got(self, entries: Entries) -> None:
        """A frame has come. An error ends the channel."""

    def ended(self, error: Exception) -> None:
        """The channel has ended. That is called once."""


class Contact(NamedTuple):
    """How to reach a server."""

    server: UUID
    host: str
    port: int
    key: bytes

    def __repr__(self) -> str:
        return f"Contact({self.server}, {self.host}:{self.port})"


class Channel(LoopedSocket):
    """Frames over a connection whose ends have greeted each other."""

    def __init__(self, connection: socket.socket, session: bytes, *, is_caller: bool) -> None:
        self._socket = connection
        names = [b"call", b"answer"]
        self._sending, self._receiving = (_proof(session, name) for name in (names if is_caller else reversed(names)))
        self._sent = self._received = 0
        self._came = bytearray()
        self._outbox: deque[tuple[int, bytes]] = deque()
        self._is_due = False
        """What is in the outbox is about to be sent."""
        self._flying: Entries = []
        """What the last frame has, until the socket has taken all of it."""
        self._turns = 0
        """How often the socket has had room."""
        self._is_lost = False
        self._user: ChannelUser
        self.is_closed = False

    def live(self, home: SocketLoop, user: ChannelUser) -> None:
        """Live on a loop from now on.

        :param user: what uses this channel.
        """
        self.home, self._user = home, user
        if not self.begin():
            self._finish(ConnectionError("the store is closed"))

    def put(self, number: int, payload: bytes) -> None:
        """Send this at the end of the loop's turn, with what is put there until then. Any thread may call this."""
        self._outbox.append((number, payload))
        if not self._is_due:
            self._is_due = True
            self.soon(self._send_frames)

    def move(self) -> None:
        super().move()
        self.soon(self._send_frames)  # the loop before may have been about to do so

    def _send_frames(self) -> None:
        """Send what waits. A frame is made once the socket has taken the one before, so the outbox has what is not sent."""
        self._is_due = False
        while not self._unsent and not self.is_closed:
            if self._flying:
                flying, self._flying = self._flying, []
                self._user.sent(flying)
            if not self._outbox:
                return
            self._flying = self._user.sends(_gathered(self._outbox))
            if self._flying:
                body = _encode(self._flying)
                self._sent += 1
                self._unsent.append(_HEAD.pack(len(body), _digest(self._sending, self._sent, body)) + body)
                self._send()

    def _send(self) -> None:
        super()._send()
        self._turns += 1
        if self._sends and not self.is_closed:  # the socket is full
            self.home.later(SEND_SECONDS, partial(self.soon, partial(self._give_up, self._turns)))

    def _go_on(self) -> None:
        super()._go_on()
        self._send_frames()

    def _give_up(self, turns: int) -> None:
        """End if the socket has had no room since then, and has none now: this server may have stood still itself."""
        if self._turns != turns or self.is_closed:
            return
        left = sum(map(len, self._unsent))
        self._send()
        if left and left == sum(map(len, self._unsent)) and not self.is_closed:
            self.lost(TimeoutError(f"it took no byte for {SEND_SECONDS:g} s"))
        else:
            self._send_frames()

    def took(self, data: bytes) -> None:
        """Take in what has come.

        :raises OSError: this is not a frame that the other end made.
        """
        self._came += data
        while len(self._came) >= _HEAD.size and not self.is_closed:
            size, digest = _HEAD.unpack_from(self._came)
            if size > _MOST_FRAME_BYTES:
                raise ConnectionError("a frame is too large")
            if len(self._came) < _HEAD.size + size:
                return
            body = bytes(memoryview(self._came)[_HEAD.size : _HEAD.size + size])
            del self._came[: _HEAD.size + size]
            self._user.got(self._opened(digest, body))

    def _opened(self, digest: bytes, body: bytes) -> Entries:
        self._received += 1
        if not compare_digest(digest, _digest(self._receiving, self._received, body)):
            raise ConnectionError("a frame has a wrong digest")
        try:
            return _decode(body)
        except msgspec.DecodeError as error:
            raise ConnectionError("a frame cannot be read") from error

    def lost(self, error: Exception) -> None:
        if isinstance(error, BrokenPipeError | ConnectionResetError) and not self._is_lost:
            self._is_lost = True
            self._receive()  # a goodbye may have come before
        self._finish(error)

    def close(self) -> None:
        self._finish(ConnectionError("the other end has closed the connection"))

    def _finish(self, error: Exception) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.end()
            self._user.ended(error)


def _gathered(outbox: deque[tuple[int, bytes]]) -> Entries:
    """What one frame takes of what waits to be sent: something."""
    entries: Entries = []
    size = 0
    while outbox and size < _TOGETHER_BYTES:
        entries.append(outbox.popleft())
        size += len(entries[-1][1])
    return entries


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
    if hasattr(socket, "TCP_KEEPIDLE"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SEND_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, SEND_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 2)
