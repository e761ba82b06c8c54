"""Carries out the steps of calls in the calling thread."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import requests
from urllib3.exceptions import HTTPError, NewConnectionError

from qdo.client.steps import InThread, Items, Listing, NoAnswer, Pause, Read, Reply, Request, Step, Steps, advance
from qdo.client.surroundings import TLS_HINT
from queuey.errors import ConfigurationError

__all__ = ["Transport"]

T = TypeVar("T")

_BROKEN = (
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,
    requests.exceptions.ContentDecodingError,
)
"""There was no answer, or only a part of one."""
_PIECE_BYTES = 1 << 16


class Transport:
    """One pool of connections, for one thread."""

    def __init__(self, sleep: Callable[[float], None] = time.sleep) -> None:
        self._sleep = sleep
        self._open()

    def _open(self) -> None:
        self._process, self._session = os.getpid(), _UnledSession()
        # requests lets a .netrc replace a plain header, but not an auth of our own.
        self._session.auth = _KeepHeaders()

    def close(self) -> None:
        self._session.close()

    def beside(self) -> Transport:
        """Another pool of connections, for another thread."""
        return Transport(self._sleep)

    def do(self, steps: Steps[T]) -> T:
        """Carry out a call."""
        outcome: Any = None
        try:
            while True:
                outcome = self._outcome(advance(steps, outcome))
        except StopIteration as end:
            result: T = end.value
            return result

    def each(self, steps: Listing[T]) -> Iterator[T]:
        """Carry out a call whose results come one after the other."""
        outcome: Any = None
        try:
            while True:
                step = advance(steps, outcome)
                outcome = None
                if isinstance(step, Items):
                    yield from step.items
                else:
                    outcome = self._outcome(step)
        except StopIteration:
            return
        finally:
            steps.close()

    def _outcome(self, step: Step) -> Any:
        match step:
            case Request():
                return self._attempt(step)
            case Pause(seconds):
                return self._sleep(seconds)
            case InThread(function):
                return function()
            case Read(answer, seconds):
                return answer.source.read(seconds) if isinstance(answer.source, _Source) else b""

    def _attempt(self, wanted: Request) -> Reply | NoAnswer:
        if self._process != os.getpid():
            self._open()  # on a connection from before a fork each process would read answers of the other
        session = self._session
        request = requests.Request(wanted.method, wanted.url, wanted.headers, data=wanted.body)
        from_outside = session.merge_environment_settings(wanted.url, {}, wanted.is_stream, None, None)
        patience = (wanted.connect_seconds, wanted.silence_seconds)
        try:
            response = session.send(
                session.prepare_request(request), timeout=patience, allow_redirects=False, **from_outside
            )
            streams = wanted.is_stream and response.status_code < 300
            body, source = (b"", _Source(response)) if streams else (response.content, None)
        except _BROKEN as error:
            return _no_answer(error)
        except (requests.exceptions.InvalidSchema, requests.exceptions.InvalidURL):
            # Not the error's own text: it may have the password of the proxy.
            raise ConfigurationError("a proxy of the environment is none for HTTP") from None
        except requests.RequestException:
            raise
        except OSError as error:
            raise ConfigurationError(f"the authorities that the environment names cannot be read: {error}") from error
        return Reply(response.status_code, response.reason, response.headers, body, response.url, source)


class _Source:
    """The unread body of a response."""

    def __init__(self, response: requests.Response) -> None:
        self._response = response
        self._pieces: _Pieces | None = None

    def close(self) -> None:
        if self._pieces is not None:
            self.interrupt()
            self._pieces.close()
        self._response.close()

    def interrupt(self) -> None:
        # Closing would wait for the reader: only the socket may be shut while somebody reads.
        with suppress(ValueError, RuntimeError, OSError):  # it is closed already
            self._response.raw.shutdown()

    def file(self) -> Any:
        return self._response.raw

    def read(self, seconds: float | None = None) -> bytes | NoAnswer | None:
        """:param seconds: None waits as long as the request allows. It is given at each read, or at none."""
        if seconds is None:
            return self._next()
        if self._pieces is None:
            self._pieces = _Pieces(self._next)
        return self._pieces.next(seconds)

    def _next(self) -> bytes | NoAnswer:
        try:
            piece: bytes = self._response.raw.read1(_PIECE_BYTES, decode_content=True)
        except (HTTPError, OSError, ValueError, AttributeError) as error:  # the last two, if it is closed meanwhile
            return NoAnswer(error)
        return piece


class _Pieces:
    """Reads pieces in a thread: a socket whose read ran out of time could not be read on."""

    def __init__(self, read: Callable[[], bytes | NoAnswer]) -> None:
        self._read = read
        self._wanted = SimpleQueue[bool]()
        self._came = SimpleQueue[bytes | NoAnswer]()
        self._is_reading = False
        threading.Thread(target=self._run, name="qdo follows", daemon=True).start()

    def next(self, seconds: float) -> bytes | NoAnswer | None:
        """The next piece; None if it does not come in this time."""
        if not self._is_reading:
            self._wanted.put(True)
            self._is_reading = True
        try:
            piece = self._came.get(timeout=max(seconds, 0))
        except Empty:
            return None
        self._is_reading = False
        return piece

    def close(self) -> None:
        self._wanted.put(False)

    def _run(self) -> None:
        while self._wanted.get():
            self._came.put(self._read())


class _UnledSession(requests.Session):
    """It goes nowhere else. requests reads where an answer leads even if nobody follows, and fails if that is no address."""

    def get_redirect_target(self, resp: requests.Response) -> None:
        """There is none."""


class _KeepHeaders(requests.auth.AuthBase):
    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        return request


def _no_answer(error: requests.RequestException) -> NoAnswer:
    cause = getattr(error.args[0], "reason", error) if error.args else error
    refused = str(getattr(cause, "original_error", ""))
    if refused.startswith("Tunnel connection failed: 4"):
        return NoAnswer(f"the proxy refuses: {refused.partition(': ')[2]}", is_final=True)
    if isinstance(error, requests.exceptions.SSLError):
        return NoAnswer(f"{cause}; {TLS_HINT}", is_final=True)
    by_proxy = isinstance(error, requests.exceptions.ProxyError)  # what comes later is no error of it
    never_sent = by_proxy or isinstance(error, requests.ConnectTimeout) or isinstance(cause, NewConnectionError)
    return NoAnswer(cause, never_sent=never_sent, by_proxy=by_proxy)
