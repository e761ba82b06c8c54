"""The requests that the server makes: to addresses in its settings, bounded in time and size.

No redirect is followed, no proxy is used, and nothing of this machine goes along.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from threading import Timer
from typing import TYPE_CHECKING, NamedTuple, Self
from urllib.parse import SplitResult, urlsplit

if TYPE_CHECKING:
    from http.client import HTTPConnection

__all__ = ["CONNECT_SECONDS", "READ_SECONDS", "OutgoingAnswer", "OutgoingError", "ask"]

CONNECT_SECONDS, READ_SECONDS = 3.0, 3.0
_PIECE = 1 << 14


class OutgoingError(Exception):
    """Why there is no answer; a sentence."""


class OutgoingAnswer(NamedTuple):
    """An answer."""

    status: int
    content: bytes
    """Empty unless the status is one that was expected."""


def ask(
    address: str,
    *,
    most_bytes: int,
    seconds: float,
    form: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    expected: tuple[int, ...] = (200,),
) -> OutgoingAnswer:
    """Ask an address of the settings.

    :param seconds: for the whole answer.
    :param form: the body of a POST; None for a GET.
    :param expected: statuses whose content is read.
    :raises OutgoingError: there was no answer, or one that took too long or was too large.
    """
    from http.client import HTTPException

    sent = {"Accept": "application/json", "Accept-Encoding": "identity", **(headers or {})}
    where = urlsplit(address)
    try:
        with ExitStack() as stack:
            end = stack.enter_context(_End(seconds))
            connection = _connected(where, end)
            stack.callback(connection.close)
            target = f"{where.path or '/'}{'?' if where.query else ''}{where.query}"
            connection.request("GET" if form is None else "POST", target, form, sent)
            answer = connection.getresponse()
            if answer.status not in expected:
                return OutgoingAnswer(answer.status, b"")
            content = b""
            while piece := answer.read1(_PIECE):
                content += piece
                if len(content) > most_bytes:
                    raise OutgoingError(f"{address} is longer than {most_bytes} bytes")
            if end.has_come or answer.length:  # its body is shorter than it said
                raise ConnectionError
            return OutgoingAnswer(answer.status, content)
    except (OSError, HTTPException, ValueError) as error:
        if end.has_come:
            raise OutgoingError(f"{address} took longer than {seconds:g} seconds") from error
        raise OutgoingError(f"{address} cannot be reached: {type(error).__name__}") from error


class _End:
    """Ends a connection at a moment, whatever the other side sends, and how slowly. A context manager."""

    def __init__(self, seconds: float) -> None:
        self.has_come = False
        self._socket: socket.socket | None = None
        self._timer = Timer(seconds, self._come)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def watch(self, given: socket.socket) -> None:
        """:raises TimeoutError: the moment has come already."""
        self._socket = given
        if self.has_come:
            raise TimeoutError

    def _come(self) -> None:
        self.has_come = True
        if self._socket is not None:
            with suppress(OSError):  # it has ended by itself
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # not TLS's own, while another thread reads


def _connected(where: SplitResult, end: _End) -> HTTPConnection:
    """:raises OSError, ValueError: there is no way there."""
    from http.client import HTTPConnection

    host, is_secure = where.hostname or "", where.scheme == "https"
    connection = HTTPConnection(host, where.port or (443 if is_secure else 80))
    plain = socket.create_connection((host, connection.port), CONNECT_SECONDS)
    try:
        plain.settimeout(READ_SECONDS)
        end.watch(plain)
        if is_secure:
            connection.default_port = 443
            secured = ssl.create_default_context().wrap_socket(
                plain, server_hostname=host, do_handshake_on_connect=False
            )
            connection.sock = plain = secured
            end.watch(secured)
            secured.do_handshake()
        connection.sock = plain
    except BaseException:
        plain.close()
        raise
    return connection
